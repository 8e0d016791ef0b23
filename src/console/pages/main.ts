// The frame of the console: which room is open, how the agent is, and what waits for a person. It asks for the overview
// every other second while somebody looks at the page.
import type { Overview } from '../views.ts';
import { openApprovals } from './approvals.ts';
import { ask, hush, Refusal } from './agent-client.ts';
import { openChat } from './chat.ts';
import { empty, fill, fillWhenChanged, h, pill } from './elements.ts';
import { dropKey, fetchKey } from './key.ts';
import type { OpenPage, Page } from './page.ts';
import { openPlugins } from './plugins.ts';
import { openServices } from './services.ts';
import { openSessions } from './sessions.ts';

const pages: Readonly<Record<string, { title: string; open: OpenPage }>> = {
  chat: { title: 'Chat', open: openChat },
  sessions: { title: 'Sessions', open: openSessions },
  plugins: { title: 'Plugins', open: openPlugins },
  services: { title: 'Services', open: openServices },
  approvals: { title: 'Approvals', open: openApprovals },
};
const everyMs = 1_500;

const main = find('#main');
const rooms = find('#rooms');
const agent = find('#agent');
let page: Page = {};
let room = '';
let overview: Overview | null = null;
let isShut = false;
let lastRequest = 0;
let timer: ReturnType<typeof setTimeout> | undefined;

function find(selector: string): HTMLElement {
  const element = document.querySelector<HTMLElement>(selector);
  if (element === null) throw new Error(`The page has no ${selector}.`);
  return element;
}

function open(): void {
  const [name = '', ...path] = location.hash.replace(/^#\/?/, '').split('/').map(decodeURIComponent);
  const chosen = Object.hasOwn(pages, name) ? name : 'chat';
  const { title, open: openPage } = pages[chosen] as { title: string; open: OpenPage };
  page.close?.();
  hush();
  const isOther = room !== chosen;
  room = chosen;
  main.replaceChildren();
  page = openPage(
    main,
    path.filter((part) => part !== ''),
    { go, overview: () => overview, refresh },
  );
  document.title = `${title} · Townhall console`;
  drawRooms();
  if (overview !== null) page.update?.(overview);
  // Whoever works with the keyboard or a reader is taken to what has changed.
  if (isOther && document.activeElement instanceof HTMLAnchorElement) main.focus({ preventScroll: true });
}

function go(hash: string): void {
  location.hash = hash;
}

function drawRooms(): void {
  const asked = overview?.approvals.length ?? 0;
  fillWhenChanged(rooms, [room, asked], () =>
    Object.entries(pages).map(([name, { title }]) =>
      h(
        'a',
        { href: `#/${name}`, 'aria-current': name === room ? 'page' : null },
        title,
        name === 'approvals' &&
          asked > 0 &&
          h('span', { class: 'badge', 'aria-label': `, ${asked} to answer` }, asked),
      ),
    ),
  );
}

function drawAgent({ agent: now }: Overview): void {
  fillWhenChanged(agent, now, () =>
    now.state === 'here'
      ? [
          h('span', { class: 'name', title: now.url }, now.name),
          ' ',
          pill(now.status === 'running' ? 'here' : now.status, now.status === 'running' ? 'good' : 'wait'),
        ]
      : [
          h('span', { title: now.url }, `${now.message} The console goes on asking.`),
          ' ',
          pill(now.state === 'silent' ? 'not answering' : now.state, 'bad'),
        ],
  );
  document.body.classList.toggle('away', now.state !== 'here');
}

async function refresh(): Promise<void> {
  clearTimeout(timer);
  const request = (lastRequest += 1);
  try {
    const next = await ask<Overview>('console.overview');
    // A later request knows more, such as what an answer has just changed.
    if (request !== lastRequest) return;
    const isBack = overview !== null && overview.agent.state !== 'here' && next.agent.state === 'here';
    overview = next;
    drawAgent(next);
    drawRooms();
    page.update?.(next);
    if (isBack) {
      hush();
      page.rejoin?.();
    }
  } catch (error) {
    if (error instanceof Refusal && error.status === 401) return shut();
    if (request !== lastRequest) return;
    overview = {
      agent: {
        state: 'away',
        url: '',
        message: error instanceof Refusal ? error.message : 'The console does not answer.',
      },
      approvals: [],
      services: [],
    };
    drawAgent(overview);
    page.update?.(overview);
  } finally {
    if (!document.hidden && !isShut && request === lastRequest) {
      clearTimeout(timer);
      timer = setTimeout(() => void refresh(), everyMs);
    }
  }
}

// The page has no key, or one that has expired; only a new address helps.
function shut(): void {
  isShut = true;
  dropKey();
  page.close?.();
  page = {};
  fill(
    main,
    empty(
      'You are not let in',
      h(
        'p',
        {},
        'This page needs an address with a new one-time code. Press Enter in the terminal in which ',
        h('code', {}, 'townhall console'),
        ' runs, and open the address that it shows.',
      ),
    ),
  );
}

async function start(): Promise<void> {
  if (!(await fetchKey())) return shut();
  addEventListener('hashchange', open);
  document.addEventListener('visibilitychange', () => {
    if (!document.hidden && !isShut) void refresh();
  });
  open();
  await refresh();
}

void start();
