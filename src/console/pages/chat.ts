// The room for chats: on the left those that there are, on the right one of them, or the place to begin one.
import type { Session } from '@townhall/agent';
import { ask, trying } from './agent-client.ts';
import { createComposer } from './composer.ts';
import { createConversation, statusPill, type Conversation } from './conversation.ts';
import { agoText, fill, fillWhenChanged, h, showControls, showCurrent } from './elements.ts';
import type { OpenPage } from './page.ts';

const suggestions = [
  'What can you do here?',
  'Which files are in the workspace?',
  'Remember that I like short answers.',
];

export const openChat: OpenPage = (root, [sessionId], { go }) => {
  const list = h('nav', { class: 'list', 'aria-label': 'Chats' }, h('p', { class: 'quiet' }, 'Reading …'));
  const place = h('div', { class: 'place' });
  fill(
    root,
    h(
      'div',
      { class: 'two' },
      h('aside', {}, h('a', { class: 'button primary wide', href: '#/chat' }, 'New chat'), list),
      place,
    ),
  );
  let conversation: Conversation | undefined;

  if (sessionId === undefined) {
    const chatId = `chat-${crypto.randomUUID()}`;
    const composer = createComposer({
      chatId,
      attended: true,
      placeholder: 'Ask your agent something',
      sent: (made) => go(`#/chat/${made}`),
    });
    const take = (text: string): void => {
      const area = composer.querySelector('textarea');
      if (area !== null) area.value = text;
      composer.requestSubmit();
    };
    fill(
      place,
      h(
        'div',
        { class: 'first' },
        h('h1', {}, 'What shall the agent do?'),
        h(
          'p',
          { class: 'quiet' },
          'It works in its own folder, with the tools of its plugins. What you write waits its turn while it works.',
        ),
        composer,
        h(
          'div',
          { class: 'suggestions', role: 'group', 'aria-label': 'To begin with' },
          suggestions.map((text) =>
            h('button', { type: 'button', class: 'plain', onclick: () => take(text) }, text),
          ),
        ),
      ),
    );
    composer.querySelector('textarea')?.focus();
  } else {
    conversation = createConversation(sessionId, { go });
    fill(place, conversation.element);
  }

  // Once, so that the list stays where it is scrolled to.
  let hasShownCurrent = false;

  async function refresh(): Promise<void> {
    const { items } = await ask<{ items: Session[] }>('sessions.list', {
      kind: 'chat',
      archived: false,
      limit: 100,
    });
    fillWhenChanged(
      list,
      items.map(({ id, title, status, updatedAt }) => [id, title, status, agoText(updatedAt), sessionId]),
      () =>
        items.length === 0
          ? h('p', { class: 'quiet' }, 'No chats yet.')
          : items.map(({ id, title, chatId, status, updatedAt }) =>
              h(
                'a',
                { href: `#/chat/${id}`, 'aria-current': id === sessionId ? 'page' : null },
                h('span', { class: 'name' }, showControls(title ?? chatId ?? id)),
                h('span', { class: 'quiet' }, status === 'idle' ? agoText(updatedAt) : statusPill(status)),
              ),
            ),
    );
    if (!hasShownCurrent) showCurrent(list);
    hasShownCurrent = true;
  }
  void trying(refresh);
  return {
    update: ({ agent }) => {
      if (agent.state === 'here') void refresh().catch(() => {});
    },
    rejoin: () => conversation?.rejoin(),
    close: () => conversation?.close(),
  };
};
