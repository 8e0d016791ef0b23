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

  function viewOf(message: Message, changedIds: Set<string>): MessageView {
    const existing = views.get(message.id);
    if (existing !== undefined) return existing;
    const view = createMessageView(message.role, actions);
    views.set(message.id, view);
    changedIds.add(message.id);
    return view;
  }

  /** Draws the changed messages and returns the elements of all, each followed by its remarks. */
  function drawMessages(thread: Thread, messages: readonly Message[]): Element[] {
    const changedIds = thread.takeChanged();
    const pendingCalls = new Set(thread.approvals().map(({ toolCallId }) => toolCallId));
    const positions = new Map(thread.queue().map(({ runId, queuePosition }) => [runId, queuePosition]));
    return messages.flatMap((message) => {
      const view = viewOf(message, changedIds);
      const queuePosition = message.role === 'user' ? positions.get(message.runId ?? '') : undefined;
      if (changedIds.has(message.id))
        view.draw(message, {
          pendingCalls,
          queuePosition: queuePosition ?? null,
          outcome: thread.outcome(message),
          fileChanges: thread.fileChanges(message),
        });
      return [view.element, ...remarksAfter(thread, message)];
    });
  }

  return {
    draw(thread) {
      if (shownThread !== thread) {
        shownThread = thread;
        views.clear();
        log.replaceChildren();
      }
      const messages = thread.messages();
      const visibleMessages = messages.slice(-maxMessages);
      const earlierCount = messages.length - visibleMessages.length;
      showEarlier.textContent = `Show ${Math.min(moreCount, earlierCount)} of ${earlierCount} earlier messages`;
      const children = drawMessages(thread, visibleMessages);
      if (messages.length === 0) children.push(h('p', { class: 'remark' }, 'No messages yet.'));
      if (earlierCount > 0) children.unshift(showEarlier);
      arrange(log, children);
    },
  };
}

function remarksAfter(thread: Thread, { id }: Message): HTMLElement[] {
  const remarks = thread.remarks().filter(({ afterMessageId }) => afterMessageId === id);
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
