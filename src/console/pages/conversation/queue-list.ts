// The queued prompts of a session.
import { callConsole, runOrShowError } from '../shared/console-client.ts';
import { button, fillWhenChanged, h, showControls } from '../shared/elements.ts';
import type { QueuedPrompt } from './thread-state.ts';

/** Draws the queue when it has changed; an empty queue shows nothing. */
export function drawQueue(parent: HTMLElement, sessionId: string, queue: readonly QueuedPrompt[]): void {
  fillWhenChanged(parent, queue, () =>
    queue.length === 0
      ? null
      : h(
          'section',
          { class: 'queue', 'aria-label': 'Waiting' },
          h('h2', {}, queue.length === 1 ? 'One message is queued' : `${queue.length} messages are queued`),
          h(
            'ol',
            {},
            queue.map((prompt) => queueItem(sessionId, prompt)),
          ),
        ),
  );
}

function queueItem(sessionId: string, { queueItemId, queuePosition, text }: QueuedPrompt): HTMLElement {
  return h(
    'li',
    { 'data-queue-item': queueItemId },
    h(
      'span',
      { class: 'place', title: 'The number of prompts before this one, including the running one' },
      `${queuePosition}`,
    ),
    h('span', { class: 'grow', title: showControls(text) }, showControls(text)),
    button(
      'Remove',
      () =>
        runOrShowError(() => callConsole('sessions.removeQueueItem', { sessionId, queueItemId })).then(
          () => {},
        ),
      { class: 'plain small', 'aria-label': `Remove: ${text.slice(0, 60)}` },
    ),
  );
}
