// The messages of a conversation on the page: a view for each, in reading order.
import { button, h } from '../shared/elements.ts';
import { createMessageView, type MessageActions, type MessageView } from './message-view.ts';
import type { Message } from './thread-state.ts';
import type { Thread } from './thread.ts';

const firstCount = 100;
const moreCount = 500;

export interface MessageList {
  draw(thread: Thread): void;
}

/** `redraw` is called when the reader requests earlier messages. */
export function createMessageList(
  log: HTMLElement,
  { redraw, ...actions }: MessageActions & { redraw(): void },
): MessageList {
  const views = new Map<string, MessageView>();
  // Messages whose view has to be redrawn once it is visible: earlier messages may change while hidden.
  const changedIds = new Set<string>();
  let shownThread: Thread | undefined;
  let maxMessages = firstCount;
  const showEarlier = button(
    'Show earlier messages',
    () => {
      maxMessages += moreCount;
      redraw();
    },
    { class: 'plain earlier' },
  );

  function viewOf(message: Message): MessageView {
    const existing = views.get(message.id);
    if (existing !== undefined) return existing;
    const view = createMessageView(message.role, actions);
    views.set(message.id, view);
    changedIds.add(message.id);
    return view;
  }

  /** Draws the changed messages and returns the elements of all, each followed by its remarks. */
  function drawMessages(thread: Thread, messages: readonly Message[]): Element[] {
    for (const id of thread.takeChanged()) changedIds.add(id);
    const pendingCalls = new Set(thread.approvals().map(({ toolCallId }) => toolCallId));
    const positions = new Map(thread.queue().map(({ runId, queuePosition }) => [runId, queuePosition]));
    return messages.flatMap((message) => {
      const view = viewOf(message);
      const queuePosition = message.role === 'user' ? positions.get(message.runId ?? '') : undefined;
      if (changedIds.delete(message.id))
        view.draw(message, {
          pendingCalls,
          queuePosition: queuePosition ?? null,
          outcome: thread.outcome(message),
          fileChanges: thread.fileChanges(message),
        });
      return [view.element, ...remarksAfter(thread, message.id)];
    });
  }

  return {
    draw(thread) {
      if (shownThread !== thread) {
        shownThread = thread;
        views.clear();
        changedIds.clear();
        log.replaceChildren();
      }
      const messages = thread.messages();
      const visibleMessages = messages.slice(-maxMessages);
      const earlierCount = messages.length - visibleMessages.length;
      showEarlier.textContent = `Show ${Math.min(moreCount, earlierCount)} of ${earlierCount} earlier messages`;
      // Remarks from before the first message come first.
      const children = [...remarksAfter(thread, null), ...drawMessages(thread, visibleMessages)];
      if (messages.length === 0) children.push(h('p', { class: 'remark' }, 'No messages yet.'));
      if (earlierCount > 0) children.unshift(showEarlier);
      arrange(log, children);
    },
  };
}

function remarksAfter(thread: Thread, messageId: string | null): HTMLElement[] {
  const remarks = thread.remarks().filter(({ afterMessageId }) => afterMessageId === messageId);
  return remarks.map(({ text, tone }) => h('p', { class: `remark ${tone}` }, text));
}

// Moves only children that are out of place, since moving an element loses its focus and selection.
function arrange(log: HTMLElement, children: readonly Element[]): void {
  for (const [index, child] of children.entries()) {
    const current = log.children[index];
    const isSameRemark =
      current?.className === child.className &&
      current.className.startsWith('remark') &&
      current.textContent === child.textContent;
    if (current !== child && !isSameRemark) log.insertBefore(child, current ?? null);
  }
  while (log.children.length > children.length) log.lastElementChild?.remove();
}
