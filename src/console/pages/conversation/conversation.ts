// A conversation of a chat or another session: head, messages, pending approvals, queue, composer.
import { showError, runOrShowError } from '../shared/console-client.ts';
import { approvalCard, createApprovalCards } from './approval-card.ts';
import { createComposer } from './composer.ts';
import { drawHead, forkSession } from './conversation-head.ts';
import { fill, h } from '../shared/elements.ts';
import { createMessageList } from './message-list.ts';
import { drawQueue } from './queue-list.ts';
import { createChangesView } from './run-changes.ts';
import { sendPrompt } from './send.ts';
import { openSession, type SessionSource } from './session-source.ts';
import { textOf, type Message } from './thread-state.ts';

export interface Conversation {
  element: HTMLElement;
  rejoin(): void;
  close(): void;
}

/** Starts to read the session at once; a failure is shown on the page. */
export function createConversation(sessionId: string, { go }: { go(hash: string): void }): Conversation {
  const { head, log, approvals, queue, composer, element } = createLayout();
  const { scrollDown, keepAtEnd, stop: stopScrolling } = followEnd(log);
  const drawApprovals = createApprovalCards(approvals, (approval) => approvalCard(approval, { sessionId }));
  let source: SessionSource | undefined;
  let isOpening = false;
  /** The agent is back while the session is being read: read it again if that fails. */
  let isRetryDue = false;
  let isClosed = false;
  const redraw = throttle(() => {
    if (source !== undefined && !isClosed) draw(source);
  });
  const messages = createMessageList(log, {
    redraw,
    fork: (messageId) => forkSession({ sessionId, messageId }, go),
    retry: async (message) => {
      if (source !== undefined && (await sendAgain(sessionId, source, message))) scrollDown();
    },
    showChanges: (changes) => createChangesView(sessionId, changes),
  });

  function draw({ session, thread: currentThread }: SessionSource): void {
    const thread = currentThread();
    drawHead(head, thread, { session, go });
    messages.draw(thread);
    drawApprovals(thread.approvals());
    drawQueue(queue, sessionId, thread.queue());
    keepAtEnd();
  }

  async function open(): Promise<void> {
    isOpening = true;
    isRetryDue = false;
    fill(log, h('p', { class: 'quiet' }, 'Loading …'));
    let failure: { error: unknown } | undefined;
    try {
      const opening = await openSession(sessionId, redraw);
      if (isClosed) return opening.close();
      source = opening;
      const { chatId, attended: isAttended } = opening.session;
      log.replaceChildren();
      fill(composer, createComposer({ sessionId, chatId, isAttended, onSent: scrollDown }));
      draw(opening);
      scrollDown();
    } catch (error) {
      failure = { error };
    }
    isOpening = false;
    if (failure === undefined) return;
    if (isRetryDue && !isClosed) return open();
    showError(failure.error);
    fill(log, h('p', { class: 'quiet' }, 'This session cannot be shown.'));
  }

  void open();
  return {
    element,
    rejoin() {
      if (source !== undefined) source.rejoin();
      // A second attempt beside the first would follow the session's events twice.
      else if (isOpening) isRetryDue = true;
      else void open();
    },
    close() {
      isClosed = true;
      stopScrolling();
      source?.close();
    },
  };
}

/** Sends the prompt of the message's run again; false when it could not be sent. */
async function sendAgain(
  sessionId: string,
  { session, thread }: SessionSource,
  message: Message,
): Promise<boolean> {
  const text = textOf(thread().prompt(message));
  if (text.trim() !== '')
    return runOrShowError(() => sendPrompt({ sessionId, chatId: session.chatId }, { text }));
  showError('The prompt of this run had no text; attach its files again and send them.');
  return false;
}

function createLayout() {
  const head = h('div', { class: 'head' });
  const log = h('div', { class: 'log', role: 'log', 'aria-label': 'Messages', tabindex: '0' });
  const approvals = h('div', { class: 'asked', 'aria-live': 'assertive' });
  const queue = h('div', { class: 'waiting' });
  const composer = h('div', {});
  const lowerArea = h('div', { class: 'below' }, approvals, queue, composer);
  const element = h('section', { class: 'conversation', 'aria-label': 'Conversation' }, head, log, lowerArea);
  return { head, log, approvals, queue, composer, element };
}

// Keeps the newest message in view while it grows, unless the reader has scrolled up.
function followEnd(log: HTMLElement): { scrollDown(): void; keepAtEnd(): void; stop(): void } {
  let isAtEnd = true;
  // A scroll event after a change of the size comes from the new layout, not from the reader.
  let size = '';
  const sizeOf = (): string => `${log.clientWidth} ${log.clientHeight}`;
  const scrollDown = (): void => {
    isAtEnd = true;
    log.scrollTop = log.scrollHeight;
  };
  const keepAtEnd = (): void => {
    if (isAtEnd) scrollDown();
  };
  log.addEventListener('scroll', () => {
    if (sizeOf() === size) isAtEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 80;
  });
  const observer = new ResizeObserver(() => {
    size = sizeOf();
    keepAtEnd();
  });
  observer.observe(log);
  return { scrollDown, keepAtEnd, stop: () => observer.disconnect() };
}

// Limits redraws to a quarter of the time, so that a slow page stays usable. Uses a timer, because
// requestAnimationFrame stops in a hidden page.
function throttle(draw: () => void): () => void {
  let isDue = false;
  let lastMs = 0;
  return () => {
    if (isDue) return;
    isDue = true;
    setTimeout(
      () => {
        isDue = false;
        const startedMs = performance.now();
        draw();
        lastMs = performance.now() - startedMs;
      },
      Math.max(16, lastMs * 3),
    );
  };
}
