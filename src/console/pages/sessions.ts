// The room for sessions of every kind: the list, and one of them as it grows.
import type { Session } from '@townhall/agent';
import { ask, trying } from './agent-client.ts';
import { loading, showAway } from './connection-notice.ts';
import { createConversation, statusPill } from './conversation.ts';
import { ago, agoText, button, empty, fill, fillWhenChanged, h, pill, showControls } from './elements.ts';
import type { OpenPage } from './page.ts';

const kinds = ['sdk', 'chat', 'dashboard', 'execute'] as const;

export const openSessions: OpenPage = (root, [sessionId], { go }) => {
  if (sessionId !== undefined) {
    const conversation = createConversation(sessionId, { go });
    fill(
      root,
      h(
        'div',
        { class: 'alone' },
        h('p', { class: 'back' }, h('a', { href: '#/sessions' }, '← All sessions')),
        conversation.element,
      ),
    );
    return { rejoin: () => conversation.rejoin(), close: () => conversation.close() };
  }

  const kind = h(
    'select',
    { id: 'kind' },
    h('option', { value: '' }, 'every kind'),
    kinds.map((name) => h('option', { value: name }, name)),
  );
  const archived = h('input', { type: 'checkbox', id: 'archived' });
  const title = h('input', {
    type: 'text',
    id: 'title',
    placeholder: 'a title, if you like',
    maxlength: 500,
    autocomplete: 'off',
  });
  const create = h(
    'form',
    { class: 'row new' },
    h('label', { class: 'grow', for: 'title' }, h('span', { class: 'hidden' }, 'Title'), title),
    h('button', { type: 'submit', class: 'primary' }, 'New session'),
  );
  create.addEventListener('submit', (event) => {
    event.preventDefault();
    void trying(async () => {
      const made = await ask<Session>('sessions.create', {
        attended: true,
        ...(title.value.trim() === '' ? {} : { title: title.value.trim() }),
      });
      go(`#/sessions/${made.id}`);
    });
  });
  const rows = h(
    'div',
    { class: 'rows', role: 'region', 'aria-label': 'Sessions', tabindex: '0' },
    loading(),
  );
  const more = h('div', {});
  fill(
    root,
    h(
      'div',
      { class: 'page' },
      h('h1', {}, 'Sessions'),
      h(
        'div',
        { class: 'row filters' },
        h('label', { for: 'kind' }, 'Kind: ', kind),
        h('label', { class: 'check', for: 'archived' }, archived, ' archived ones'),
        h('span', { class: 'grow' }),
        create,
      ),
      rows,
      more,
    ),
  );
  let shown = 50;

  async function refresh(): Promise<void> {
    const members = {
      limit: Math.min(shown, 500),
      archived: archived.checked,
      ...(kind.value === '' ? {} : { kind: kind.value }),
    };
    const { items, nextCursor } = await ask<{ items: Session[]; nextCursor: string | null }>(
      'sessions.list',
      members,
    );
    fillWhenChanged(
      rows,
      items.map(({ id, title: name, status, messageCount, queueLength, updatedAt }) => [
        id,
        name,
        status,
        messageCount,
        queueLength,
        agoText(updatedAt),
      ]),
      () =>
        items.length === 0
          ? empty(
              'No sessions here',
              h('p', {}, 'Begin one above, or ', h('a', { href: '#/chat' }, 'write to the agent'), '.'),
            )
          : table(items),
    );
    fillWhenChanged(
      more,
      nextCursor !== null && shown < 500,
      () =>
        nextCursor !== null &&
        shown < 500 &&
        button('Show more', () => {
          shown += 50;
          return refresh();
        }),
    );
  }

  kind.addEventListener('change', () => void trying(refresh));
  archived.addEventListener('change', () => void trying(refresh));
  void trying(refresh);
  return {
    update: ({ agent }) => {
      if (agent.state === 'here') void refresh().catch(() => {});
      else showAway(rows, agent);
    },
  };
};

function table(items: readonly Session[]): HTMLElement {
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
            session.queueLength > 0 && h('span', { class: 'quiet' }, ` ${session.queueLength} wait`),
          ),
          h('td', { class: 'number' }, session.messageCount),
          h('td', { class: 'number' }, session.usage.inputTokens + session.usage.outputTokens),
          h('td', {}, ago(session.updatedAt)),
        ),
      ),
    ),
  );
}
