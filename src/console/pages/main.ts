// The frame of the console: navigation, state of the agent, number of pending approvals. It polls
// the overview every 1.5 seconds while the page is visible.
import type { Overview } from './shared/views.ts';
import { openApprovals } from './approvals.ts';
import { callConsole, hideError, Refusal } from './shared/console-client.ts';
import { openChat } from './chat.ts';
import { emptyState, fill, fillWhenChanged, h, pill } from './shared/elements.ts';
import { dropKey, fetchKey } from './shared/key.ts';
import type { OpenPage, Page } from './shared/page.ts';
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
const refreshMs = 1_500;

const main = find('#main');
const navigation = find('#pages');
const agent = find('#agent');
let page: Page = {};
let pageName = '';
let overview: Overview | null = null;
let isSignedOut = false;
let lastRequest = 0;
let timer: ReturnType<typeof setTimeout> | undefined;

function find(selector: string): HTMLElement {
  const element = document.querySelector<HTMLElement>(selector);
  if (element === null) throw new Error(`The page has no ${selector}.`);
  return element;
}

function open(): void {
  // Without a key, every page would only show its refused calls.
  if (isSignedOut) return;
  const [name = '', ...path] = location.hash.replace(/^#\/?/, '').split('/').map(decodePart);
  const nextName = Object.hasOwn(pages, name) ? name : 'chat';
  const { title, open: openPage } = pages[nextName] as { title: string; open: OpenPage };
  page.close?.();
  hideError();
  const isOtherPage = pageName !== nextName;
  pageName = nextName;
  main.replaceChildren();
  page = openPage(
    main,
    path.filter((part) => part !== ''),
    { go, overview: () => overview, refresh },
  );
  document.title = `${title} · Townhall console`;
  drawNavigation();
  if (overview !== null) page.update?.(overview);
  // Moves keyboard and screen reader users to the new content.
  if (isOtherPage && document.activeElement instanceof HTMLAnchorElement) main.focus({ preventScroll: true });
}

/** The part as it is when it is malformed, such as in an address that was typed. */
function decodePart(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function go(hash: string): void {
  location.hash = hash;
}

function drawNavigation(): void {
  const pendingCount = overview?.approvals.length ?? 0;
  fillWhenChanged(navigation, [pageName, pendingCount], () =>
    Object.entries(pages).map(([name, { title }]) =>
      h(
        'a',
        { href: `#/${name}`, 'aria-current': name === pageName ? 'page' : null },
        title,
        name === 'approvals' &&
          pendingCount > 0 &&
          h('span', { class: 'badge', 'aria-label': `, ${pendingCount} pending` }, pendingCount),
      ),
    ),
  );
}

function drawAgent({ agent: view }: Overview): void {
  fillWhenChanged(agent, view, () =>
    view.state === 'connected'
      ? [
          h('span', { class: 'name', title: view.url }, view.name),
          ' ',
          pill(
            view.status === 'running' ? 'connected' : view.status,
            view.status === 'running' ? 'good' : 'wait',
          ),
        ]
      : [
          h('span', { title: view.url }, `${view.message} The console keeps trying.`),
          ' ',
          pill(view.state === 'silent' ? 'not answering' : view.state, 'bad'),
        ],
  );
  document.body.classList.toggle('disconnected', view.state !== 'connected');
}

async function refresh(): Promise<void> {
  clearTimeout(timer);
  const request = (lastRequest += 1);
  try {
    const next = await callConsole<Overview>('console.overview');
    // A later request may already show the effect of a decision.
    if (request !== lastRequest) return;
    const isBack =
      overview !== null && overview.agent.state !== 'connected' && next.agent.state === 'connected';
    overview = next;
    drawAgent(next);
    drawNavigation();
    page.update?.(next);
    if (isBack) {
      hideError();
      page.rejoin?.();
    }
  } catch (error) {
    if (error instanceof Refusal && error.status === 401) return signOut();
    if (request !== lastRequest) return;
    overview = {
      agent: {
        state: 'unreachable',
        url: '',
        message: error instanceof Refusal ? error.message : 'The console does not answer.',
      },
      approvals: [],
      services: [],
    };
    drawAgent(overview);
    page.update?.(overview);
  } finally {
    if (!document.hidden && !isSignedOut && request === lastRequest) {
      clearTimeout(timer);
      timer = setTimeout(() => void refresh(), refreshMs);
    }
  }
}

// Without a valid key only a new address from the console helps.
function signOut(): void {
  isSignedOut = true;
  dropKey();
  page.close?.();
  page = {};
  fill(
    main,
    emptyState(
      'You are not signed in',
      h(
        'p',
        {},
        'Each address signs one browser in, once and within ten minutes. For another address, press Enter in the ',
        'terminal in which Townhall runs.',
      ),
    ),
  );
}

async function start(): Promise<void> {
  if (!(await fetchKey())) return signOut();
  addEventListener('hashchange', open);
  document.addEventListener('visibilitychange', () => {
    if (!document.hidden && !isSignedOut) void refresh();
  });
  open();
  await refresh();
}

void start();
