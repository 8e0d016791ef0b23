// A conversation on the page, of a chat and of any other session alike: the messages as they grow, what waits, what is
// asked, and the place to write.
import type { Session } from '@townhall/agent';
import { approvalCard, createApprovalCards } from './approval-card.ts';
import { ask, tell, trying } from './agent-client.ts';
import { createComposer } from './composer.ts';
import { button, fill, fillWhenChanged, h, pill, showControls } from './elements.ts';
import { createMessageView, type MessageView } from './message-view.ts';
import { openSession, type SessionSource } from './session-source.ts';
import { sendPrompt } from './send.ts';
import { textOf, type Message, type Thread } from './thread.ts';

export interface Conversation {
  element: HTMLElement;
  rejoin(): void;
  close(): void;
}

const shownAtFirst = 100;

/** Begins to read at once; what goes wrong is told on the page. */
export function createConversation(sessionId: string, { go }: { go(hash: string): void }): Conversation {
  const head = h('div', { class: 'head' });
  const log = h('div', { class: 'log', role: 'log', 'aria-label': 'Messages', tabindex: '0' });
  const asked = h('div', { class: 'asked', 'aria-live': 'assertive' });
  const waiting = h('div', { class: 'waiting' });
  const place = h('div', {});
  const element = h(
    'section',
    { class: 'conversation', 'aria-label': 'Conversation' },
    head,
    log,
    h('div', { class: 'below' }, asked, waiting, place),
  );
  const drawQuestions = createApprovalCards(asked, (question) => approvalCard(question, { sessionId }));
  const views = new Map<string, MessageView>();
  let drawMs = 0;
  // The newest message stays in view while it grows, and while what stands below takes more room.
  let isAtEnd = true;
  log.addEventListener('scroll', () => {
    isAtEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 80;
  });
  const resized = new ResizeObserver(() => {
    if (isAtEnd) scrollDown();
  });
  resized.observe(log);
  let source: SessionSource | undefined;
  let isClosed = false;
  let isDue = false;
  let mostShown = shownAtFirst;
  let drawnThread: Thread | undefined;

  function changed(): void {
    if (isDue) return;
    isDue = true;
    // Not requestAnimationFrame alone: it stands still in a page that is not looked at.
    setTimeout(
      () => {
        isDue = false;
        if (source === undefined || isClosed) return;
        const startedMs = performance.now();
        draw(source.thread());
        drawMs = performance.now() - startedMs;
        // Redraws take at most a quarter of the time, so that a slow page stays usable.
      },
      Math.max(16, drawMs * 3),
    );
  }

  const fork = async (messageId: string): Promise<void> => {
    await trying(async () => {
      const made = await ask<Session>('sessions.fork', { sessionId, messageId });
      go(`#/sessions/${made.id}`);
    });
  };

  async function retry(message: Message): Promise<void> {
    const text = textOf(source?.thread().prompt(message));
    if (text.trim() === '')
      return tell('The prompt of this run had no text; attach its files again and send them.');
    if (await trying(() => sendPrompt({ sessionId, chatId: source?.session.chatId ?? null }, { text })))
      scrollDown();
  }

  function draw(thread: Thread): void {
    if (drawnThread !== thread) {
      drawnThread = thread;
      views.clear();
      log.replaceChildren();
    }
    drawHead(thread);
    drawMessages(thread);
    drawQuestions(thread.questions());
    const queue = thread.queue();
    fillWhenChanged(waiting, queue, () => (queue.length === 0 ? null : queueList(queue)));
    if (isAtEnd) scrollDown();
  }

  function drawHead(thread: Thread): void {
    const status = thread.status();
    const isBusy = thread.activeRunId() !== null;
    const isArchived = thread.isArchived();
    const { kind, chatId, forkedFrom } = source?.session ?? {};
    fillWhenChanged(head, [thread.title(), status, isBusy, isArchived], () => [
      h(
        'h1',
        { title: showControls(thread.title() ?? '') },
        showControls(thread.title() ?? '') || (chatId ? `Chat ${chatId}` : 'A session without a title'),
      ),
      h(
        'p',
        { class: 'facts' },
        statusPill(status),
        isArchived && pill('archived'),
        kind !== 'chat' && pill(kind ?? ''),
        forkedFrom &&
          h(
            'a',
            { class: 'quiet', href: `#/sessions/${forkedFrom.sessionId}` },
            'forked from another session',
          ),
      ),
      h(
        'div',
        { class: 'row' },
        isBusy &&
          button('Stop', () => void trying(() => ask('sessions.cancel', { sessionId })), {
            class: 'danger',
            title: 'Ends what runs; what waits goes on',
          }),
        button(
          'Fork',
          () =>
            trying(async () =>
              go(`#/sessions/${(await ask<Session>('sessions.fork', { sessionId })).id}`),
            ).then(() => {}),
          { title: 'A new session that shares all of this one so far' },
        ),
        button('Compact', () => trying(() => ask('sessions.compact', { sessionId })).then(() => {}), {
          title: 'Has the model sum up what was said, so that it takes less of its memory',
        }),
        isArchived
          ? button('Take back', () =>
              trying(() => ask('sessions.update', { sessionId, archived: false })).then(() => {}),
            )
          : button(
              'Archive',
              () => trying(() => ask('sessions.update', { sessionId, archived: true })).then(() => {}),
              { title: 'Takes no more input; it can be taken back' },
            ),
      ),
    ]);
  }

  function drawMessages(thread: Thread): void {
    const messages = thread.messages();
    const fresh = thread.takeChanged();
    const shown = messages.slice(-mostShown);
    const asked = new Set(thread.questions().map(({ toolCallId }) => toolCallId));
    const places = new Map(thread.queue().map(({ runId, queuePosition }) => [runId, queuePosition]));
    const order: Element[] = [];
    if (messages.length > shown.length) order.push(earlierButton(messages.length - shown.length));
    if (messages.length === 0) order.push(h('p', { class: 'quiet' }, 'Nothing was said yet.'));
    for (const message of shown) {
      let view = views.get(message.id);
      if (view === undefined) {
        view = createMessageView(message.role, { fork, retry });
        views.set(message.id, view);
        fresh.add(message.id);
      }
      if (fresh.has(message.id))
        view.draw(message, {
          asked,
          place: (message.role === 'user' ? places.get(message.runId ?? '') : undefined) ?? null,
          outcome: thread.outcome(message),
        });
      order.push(view.element);
      for (const { afterMessageId, text, tone } of thread.remarks())
        if (afterMessageId === message.id) order.push(h('p', { class: `remark ${tone}` }, text));
    }
    // Only what is not in its place is moved, since moving takes focus and marks away.
    for (const [index, child] of order.entries()) {
      const now = log.children[index];
      if (
        now === child ||
        (now?.className === child.className &&
          now.className.startsWith('remark') &&
          now.textContent === child.textContent)
      )
        continue;
      log.insertBefore(child, now ?? null);
    }
    while (log.children.length > order.length) log.lastElementChild?.remove();
  }

  const earlier = button(
    'Show earlier messages',
    () => {
      mostShown += 500;
      changed();
    },
    { class: 'plain earlier' },
  );
  function earlierButton(count: number): HTMLElement {
    earlier.textContent = `Show ${Math.min(500, count)} of ${count} earlier messages`;
    return earlier;
  }

  function queueList(queue: ReturnType<Thread['queue']>): HTMLElement {
    return h(
      'section',
      { class: 'queue', 'aria-label': 'Waiting' },
      h('h2', {}, queue.length === 1 ? 'One message waits' : `${queue.length} messages wait`),
      h(
        'ol',
        {},
        queue.map(({ queueItemId, queuePosition, text }) =>
          h(
            'li',
            { 'data-queue-item': queueItemId },
            h(
              'span',
              { class: 'place', title: 'How many are ahead of it, the running one included' },
              `${queuePosition}`,
            ),
            h('span', { class: 'grow', title: showControls(text) }, showControls(text)),
            button(
              'Take out',
              () => trying(() => ask('sessions.removeQueueItem', { sessionId, queueItemId })).then(() => {}),
              { class: 'plain small', 'aria-label': `Take out: ${text.slice(0, 60)}` },
            ),
          ),
        ),
      ),
    );
  }

  async function begin(): Promise<void> {
    fill(log, h('p', { class: 'quiet' }, 'Reading …'));
    try {
      const opened = await openSession(sessionId, changed);
      if (isClosed) return opened.close();
      source = opened;
      const { session } = opened;
      log.replaceChildren();
      fill(
        place,
        createComposer({
          sessionId,
          chatId: session.chatId,
          attended: session.attended,
          sent: () => scrollDown(),
        }),
      );
      draw(opened.thread());
      scrollDown();
    } catch (error) {
      tell(error);
      fill(log, h('p', { class: 'quiet' }, 'This session cannot be shown.'));
    }
  }

  function scrollDown(): void {
    isAtEnd = true;
    log.scrollTop = log.scrollHeight;
  }

  void begin();
  return {
    element,
    rejoin() {
      if (source === undefined) void begin();
      else source.rejoin();
    },
    close() {
      isClosed = true;
      resized.disconnect();
      source?.close();
    },
  };
}

export function statusPill(status: Session['status']): HTMLElement {
  return { idle: pill('idle'), running: pill('works', 'busy'), requires_action: pill('asks you', 'wait') }[
    status
  ];
}
