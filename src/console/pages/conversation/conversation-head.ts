// The head of a conversation: title, status, and actions on the whole session.
import type { Session } from '@townhall/agent';
import { callConsole, runOrShowError } from '../shared/console-client.ts';
import { button, fillWhenChanged, h, pill, showControls } from '../shared/elements.ts';
import type { Thread } from './thread.ts';

const workspaceLabels = { shared: null, folder: 'own folder', worktree: 'own worktree' } as const;

/** Draws the head when it has changed. */
export function drawHead(
  head: HTMLElement,
  thread: Thread,
  { session, go }: { session: Session; go(hash: string): void },
): void {
  const status = thread.status();
  const isBusy = thread.activeRunId() !== null;
  const isArchived = thread.isArchived();
  const isPlanning = thread.mode() === 'plan';
  const title = showControls(thread.title() ?? '');
  const { kind, chatId, forkedFrom, workspace } = session;
  fillWhenChanged(head, [thread.title(), status, isBusy, isArchived, isPlanning], () => [
    h('h1', { title }, title || (chatId ? `Chat ${chatId}` : 'Untitled session')),
    h(
      'p',
      { class: 'facts' },
      statusPill(status),
      isPlanning && pill('plan mode', 'busy'),
      isArchived && pill('archived'),
      kind !== 'chat' && pill(kind),
      workspaceLabels[workspace] && pill(workspaceLabels[workspace]),
      forkedFrom &&
        h('a', { class: 'quiet', href: `#/sessions/${forkedFrom.sessionId}` }, 'forked from another session'),
    ),
    h('div', { class: 'row' }, sessionButtons(session.id, { isBusy, isArchived, isPlanning, go })),
  ]);
}

function sessionButtons(
  sessionId: string,
  {
    isBusy,
    isArchived,
    isPlanning,
    go,
  }: { isBusy: boolean; isArchived: boolean; isPlanning: boolean; go(hash: string): void },
): (HTMLButtonElement | false)[] {
  const call =
    (operation: string, members: object = {}) =>
    (): Promise<void> =>
      runOrShowError(() => callConsole(operation, { sessionId, ...members })).then(() => {});
  const fork = (): Promise<void> => forkSession({ sessionId }, go);
  return [
    isBusy &&
      button('Stop', () => void call('sessions.cancel')(), {
        class: 'danger',
        title: 'Stops the current run; queued messages run next',
      }),
    isPlanning
      ? button('Allow changes', call('sessions.update', { mode: 'work' }), {
          title: 'Lets the model call all of its tools again',
        })
      : button('Plan only', call('sessions.update', { mode: 'plan' }), {
          title: 'The model may only read; it changes nothing until you allow it',
        }),
    button('Fork', fork, { title: 'Creates a session that shares this one up to now' }),
    button('Compact', call('sessions.compact'), {
      title: 'Lets the model summarize the conversation to free context',
    }),
    isArchived
      ? button('Unarchive', call('sessions.update', { archived: false }))
      : button('Archive', call('sessions.update', { archived: true }), {
          title: 'Accepts no more messages; can be undone',
        }),
  ];
}

/** Forks a session, up to a message or as a whole, and opens the fork; shows an error. */
export async function forkSession(
  members: { sessionId: string; messageId?: string },
  go: (hash: string) => void,
): Promise<void> {
  await runOrShowError(async () => {
    const { id } = await callConsole<Session>('sessions.fork', members);
    go(`#/sessions/${id}`);
  });
}

export function statusPill(status: Session['status']): HTMLElement {
  switch (status) {
    case 'idle':
      return pill('idle');
    case 'running':
      return pill('working', 'busy');
    case 'requires_action':
      return pill('waits for you', 'wait');
  }
}
