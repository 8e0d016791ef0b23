// The page of sessions of all kinds: the list, or one session.
import type { Session } from '@townhall/agent';
import { callConsole, runOrShowError } from './shared/console-client.ts';
import { createStaleNote, loadingNotice, showUnavailable } from './shared/connection-notice.ts';
import { statusPill } from './conversation/conversation-head.ts';
import { createConversation } from './conversation/conversation.ts';
import {
  elapsedTime,
  agoText,
  button,
  emptyState,
  fill,
  fillWhenChanged,
  h,
  pill,
  showControls,
} from './shared/elements.ts';
import type { OpenPage, Page } from './shared/page.ts';

const kinds = ['sdk', 'chat', 'dashboard', 'execute'] as const;

const workspaces = [
  ['shared', 'shared folder'],
  ['folder', 'own folder'],
  ['worktree', 'own worktree'],
] as const;

const pageSize = 50;
// The highest limit of `sessions.list`.
const maxPerCall = 500;

export const openSessions: OpenPage = (root, [sessionId], { go }) =>
  sessionId === undefined ? openList(root, go) : openOne(root, sessionId, go);

function openOne(root: HTMLElement, sessionId: string, go: (hash: string) => void): Page {
  const conversation = createConversation(sessionId, { go });
  const backLink = h('p', { class: 'back' }, h('a', { href: '#/sessions' }, '← All sessions'));
  fill(root, h('div', { class: 'alone' }, backLink, conversation.element));
  return { rejoin: () => conversation.rejoin(), close: () => conversation.close() };
}

function openList(root: HTMLElement, go: (hash: string) => void): Page {
  const { filters, kind, archived: archivedFilter } = createFilters(createForm(go));
  const rows = h(
    'div',
    { class: 'rows', role: 'region', 'aria-label': 'Sessions', tabindex: '0' },
    loadingNotice(),
  );
  const staleNote = createStaleNote();
  const moreRow = h('div', {});
  fill(root, h('div', { class: 'page' }, h('h1', {}, 'Sessions'), filters, rows, staleNote.element, moreRow));
  let limit = pageSize;

  async function refresh(): Promise<void> {
    const { items, hasMore } = await readSessions(limit, {
      archived: archivedFilter.checked,
      ...(kind.value === '' ? {} : { kind: kind.value }),
    });
    drawRows(rows, items);
    fillWhenChanged(moreRow, hasMore, () => hasMore && button('Show more', showMore));
  }

  async function showMore(): Promise<void> {
    limit += pageSize;
    await runOrShowError(refresh);
  }

  kind.addEventListener('change', () => void runOrShowError(refresh));
  archivedFilter.addEventListener('change', () => void runOrShowError(refresh));
  void runOrShowError(refresh);
  return {
    update: ({ agent }) => {
      if (agent.state === 'connected') staleNote.track(refresh());
      else showUnavailable(rows, agent);
    },
  };
}

/** The first sessions of the list, in as many calls as the limit needs. */
async function readSessions(
  limit: number,
  filter: { archived: boolean; kind?: string },
): Promise<{ items: Session[]; hasMore: boolean }> {
  const items: Session[] = [];
  let cursor: string | null = null;
  do {
    const page: SessionPage = await callConsole<SessionPage>('sessions.list', {
      ...filter,
      limit: Math.min(limit - items.length, maxPerCall),
      ...(cursor === null ? {} : { cursor }),
    });
    items.push(...page.items);
    cursor = page.nextCursor;
  } while (cursor !== null && items.length < limit);
  return { items, hasMore: cursor !== null };
}

interface SessionPage {
  items: Session[];
  nextCursor: string | null;
}

function createFilters(form: HTMLElement): {
  filters: HTMLElement;
  kind: HTMLSelectElement;
  archived: HTMLInputElement;
} {
  const kind = h(
    'select',
    { id: 'kind' },
    h('option', { value: '' }, 'all kinds'),
    kinds.map((name) => h('option', { value: name }, name)),
  );
  const archivedBox = h('input', { type: 'checkbox', id: 'archived' });
  const filters = h(
    'div',
    { class: 'row filters' },
    h('label', { for: 'kind' }, 'Kind: ', kind),
    h('label', { class: 'check', for: 'archived' }, archivedBox, ' archived sessions'),
    form,
  );
  return { filters, kind, archived: archivedBox };
}

function createForm(go: (hash: string) => void): HTMLFormElement {
  const title = h('input', {
    type: 'text',
    id: 'title',
    placeholder: 'an optional title',
    maxlength: 500,
    autocomplete: 'off',
  });
  const workspace = h(
    'select',
    { id: 'workspace', title: 'Where the tools of the session read and write files' },
    workspaces.map(([value, label]) => h('option', { value }, label)),
  );
  const form = h(
    'form',
    { class: 'row new' },
    h('label', { class: 'grow', for: 'title' }, h('span', { class: 'hidden' }, 'Title'), title),
    h('label', { for: 'workspace' }, 'Files: ', workspace),
    h('button', { type: 'submit', class: 'primary' }, 'New session'),
  );
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    const text = title.value.trim();
    void runOrShowError(async () => {
      const members = {
        attended: true,
        ...(workspace.value === 'shared' ? {} : { workspace: workspace.value }),
        ...(text === '' ? {} : { title: text }),
      };
      const { id } = await callConsole<Session>('sessions.create', members);
      go(`#/sessions/${id}`);
    });
  });
  return form;
}

function drawRows(rows: HTMLElement, items: readonly Session[]): void {
  const key = items.map(({ id, title, status, messageCount, queueLength, updatedAt }) => [
    id,
    title,
    status,
    messageCount,
    queueLength,
    agoText(updatedAt),
  ]);
  fillWhenChanged(rows, key, () =>
    items.length === 0
      ? emptyState(
          'No sessions',
          h('p', {}, 'Create one above, or ', h('a', { href: '#/chat' }, 'write to the agent'), '.'),
        )
      : sessionTable(items),
  );
}

function sessionTable(items: readonly Session[]): HTMLElement {
  return h(
    'table',
    {},
    h(
      'thead',
      {},
      h(
        'tr',
        {},
        ['Session', 'Kind', 'State', 'Messages', 'Tokens', 'Changed'].map((name) =>
          h('th', { scope: 'col' }, name),
        ),
      ),
    ),
    h(
      'tbody',
      {},
      items.map((session) =>
        h(
          'tr',
          {},
          h(
            'td',
            {},
            h('a', { href: `#/sessions/${session.id}` }, showControls(session.title ?? session.id)),
            session.forkedFrom !== null && h('span', { class: 'quiet' }, ' (a fork)'),
          ),
          h('td', {}, pill(session.kind)),
          h(
            'td',
            {},
            statusPill(session.status),
            session.queueLength > 0 && h('span', { class: 'quiet' }, ` ${session.queueLength} queued`),
          ),
          h('td', { class: 'number' }, session.messageCount),
          h('td', { class: 'number' }, session.usage.inputTokens + session.usage.outputTokens),
          h('td', {}, elapsedTime(session.updatedAt)),
        ),
      ),
    ),
  );
}
