// The page of chats: the list on the left; on the right one chat, or the composer of a new one.
import type { Session } from '@townhall/agent';
import { callConsole, runOrShowError } from './shared/console-client.ts';
import { createStaleNote } from './shared/connection-notice.ts';
import { createComposer } from './conversation/composer.ts';
import { statusPill } from './conversation/conversation-head.ts';
import { createConversation } from './conversation/conversation.ts';
import { agoText, fill, fillWhenChanged, h, showControls, showCurrent } from './shared/elements.ts';
import type { OpenPage } from './shared/page.ts';

const suggestions = [
  'What can you do here?',
  'Which files are in the workspace?',
  'Remember that I like short answers.',
];

// More chats would make the list beside a chat hard to scan. The page of sessions has the older ones.
const maxListed = 100;

export const openChat: OpenPage = (root, [sessionId], { go }) => {
  const list = h('nav', { class: 'list', 'aria-label': 'Chats' }, h('p', { class: 'quiet' }, 'Loading …'));
  const content = h('div', { class: 'place' });
  const newChat = h('a', { class: 'button primary wide', href: '#/chat' }, 'New chat');
  const staleNote = createStaleNote();
  fill(root, h('div', { class: 'two' }, h('aside', {}, newChat, list, staleNote.element), content));
  const conversation = sessionId === undefined ? undefined : createConversation(sessionId, { go });
  if (conversation === undefined) openNewChat(content, go);
  else fill(content, conversation.element);

  // Scroll to the current chat once; later redraws keep the reader's position.
  let hasShownCurrent = false;

  async function refresh(): Promise<void> {
    const members = { kind: 'chat', archived: false, limit: maxListed };
    const chats = await callConsole<ChatList>('sessions.list', members);
    drawChats(list, chats, sessionId);
    if (!hasShownCurrent) showCurrent(list);
    hasShownCurrent = true;
  }
  void runOrShowError(refresh);
  return {
    update: ({ agent }) => {
      // The header of the page shows an unreachable agent; the next overview loads the list again.
      if (agent.state === 'connected') staleNote.track(refresh());
    },
    rejoin: () => conversation?.rejoin(),
    close: () => conversation?.close(),
  };
};

interface ChatList {
  items: readonly Session[];
  nextCursor: string | null;
}

function drawChats(list: HTMLElement, { items, nextCursor }: ChatList, currentId: string | undefined): void {
  const hasMore = nextCursor !== null;
  const chats = items.map(({ id, title, status, updatedAt }) => [id, title, status, agoText(updatedAt)]);
  fillWhenChanged(list, [chats, currentId, hasMore], () =>
    items.length === 0
      ? h('p', { class: 'quiet' }, 'No chats yet.')
      : [
          ...items.map((chat) => chatLink(chat, chat.id === currentId)),
          hasMore && h('a', { href: '#/sessions' }, 'Older chats: all sessions'),
        ],
  );
}

function chatLink({ id, title, chatId, status, updatedAt }: Session, isCurrent: boolean): HTMLElement {
  return h(
    'a',
    { href: `#/chat/${id}`, 'aria-current': isCurrent ? 'page' : null },
    h('span', { class: 'name' }, showControls(title ?? chatId ?? id)),
    h('span', { class: 'quiet' }, status === 'idle' ? agoText(updatedAt) : statusPill(status)),
  );
}

function openNewChat(content: HTMLElement, go: (hash: string) => void): void {
  const composer = createComposer({
    chatId: `chat-${crypto.randomUUID()}`,
    isAttended: true,
    placeholder: 'Ask your agent something',
    onSent: (sessionId) => go(`#/chat/${sessionId}`),
  });
  const area = composer.querySelector('textarea');
  const submit = (text: string): void => {
    if (area !== null) area.value = text;
    composer.requestSubmit();
  };
  fill(
    content,
    h(
      'div',
      { class: 'first' },
      h('h1', {}, 'What should the agent do?'),
      h(
        'p',
        { class: 'quiet' },
        'It works in its own folder with the tools of its plugins. Messages that you write meanwhile are queued.',
      ),
      composer,
      h(
        'div',
        { class: 'suggestions', role: 'group', 'aria-label': 'Examples' },
        suggestions.map((text) =>
          h('button', { type: 'button', class: 'plain', onclick: () => submit(text) }, text),
        ),
      ),
    ),
  );
  area?.focus();
}
