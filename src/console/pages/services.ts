// The page of services: states, controls and commands.
import type { ServiceState } from '@townhall/agent';
import { callConsole, Refusal, refusalView, showError, runOrShowError } from './shared/console-client.ts';
import { loadingNotice, showUnavailable } from './shared/connection-notice.ts';
import {
  elapsedTime,
  agoText,
  button,
  emptyState,
  fill,
  fillWhenChanged,
  h,
  json,
  pill,
} from './shared/elements.ts';
import type { OpenPage } from './shared/page.ts';

export const openServices: OpenPage = (root, _path, frame) => {
  const rows = h('div', { class: 'cards' }, loadingNotice());
  fill(
    root,
    h(
      'div',
      { class: 'page' },
      h('h1', {}, 'Services'),
      h('p', { class: 'quiet' }, 'Long-running parts of the agent.'),
      rows,
    ),
  );
  const cards = new Map<string, Card>();

  function draw(services: readonly ServiceState[]): void {
    fillWhenChanged(
      rows,
      services.map(({ name }) => name),
      () => {
        cards.clear();
        if (services.length === 0)
          return emptyState(
            'No services',
            h('p', {}, 'Plugins can add services, and the plugin configuration can list programs.'),
          );
        return services.map((service) => {
          const card = createCard(service.name, frame.refresh);
          cards.set(service.name, card);
          return card.element;
        });
      },
    );
    for (const service of services) cards.get(service.name)?.draw(service);
  }
  return {
    update: ({ agent, services }) => {
      if (agent.state === 'connected') draw(services);
      else showUnavailable(rows, agent);
    },
  };
};

interface Card {
  element: HTMLElement;
  draw(service: ServiceState): void;
}

const tones = {
  running: 'good',
  starting: 'busy',
  stopping: 'busy',
  stopped: 'plain',
  failed: 'bad',
} as const;

function createCard(name: string, refresh: () => Promise<void>): Card {
  const head = h('div', { class: 'service', 'aria-live': 'polite' });
  const operations = h('div', {});
  const control = (action: 'start' | 'stop' | 'restart') => async (): Promise<void> => {
    await runOrShowError(() => callConsole('services.controlService', { serviceName: name, action }));
    await refresh();
  };
  const start = button('Start', control('start'));
  const stop = button('Stop', control('stop'), { class: 'danger' });
  const restart = button('Restart', control('restart'));
  const element = h(
    'section',
    { class: 'card', 'aria-label': name, 'data-service': name, tabindex: '-1' },
    head,
    h('div', { class: 'row' }, start, stop, restart),
    operations,
  );
  return {
    element,
    draw(service) {
      const focusedElement = document.activeElement;
      const isInside = element.contains(focusedElement);
      const { title, state, since, restarts, lastError, actions, commands } = service;
      fillWhenChanged(head, [state, agoText(since), restarts, lastError], () => [
        h('h2', {}, title, ' ', pill(state, tones[state])),
        h(
          'p',
          { class: 'quiet' },
          h('code', {}, name),
          ' · changed ',
          elapsedTime(since),
          restarts > 0 && ` · restarted ${restarts === 1 ? 'once' : `${restarts} times`}`,
        ),
        lastError !== null && h('p', { class: 'bad' }, lastError),
      ]);
      start.hidden = state === 'running' || state === 'starting';
      stop.hidden = state === 'stopped' || state === 'stopping';
      restart.hidden = state !== 'running';
      // Focus the card, not another button, which the next Enter would press.
      if (isInside && [start, stop, restart].some((control) => control === focusedElement && control.hidden))
        element.focus();
      fillWhenChanged(operations, [actions, commands], () => [
        ...commands.map((command) => operationView(name, 'command', command)),
        ...actions.map((action) => operationView(name, 'action', action)),
      ]);
    },
  };
}

function operationView(serviceName: string, kind: 'action' | 'command', name: string): HTMLElement {
  const payload = h('textarea', {
    class: 'code',
    rows: 2,
    'aria-label': `Input of ${name}, a JSON object`,
    placeholder: '{}',
    spellcheck: 'false',
  });
  const result = h('div', { class: 'result', 'aria-live': 'polite' });
  const run = button(kind === 'command' ? 'Run the command' : 'Call', async () => {
    fill(result);
    let members: object;
    try {
      members = payload.value.trim() === '' ? {} : (JSON.parse(payload.value) as object);
    } catch {
      fill(result, h('p', { class: 'bad' }, 'The input is not JSON.'));
      return;
    }
    try {
      const answer = await (kind === 'command'
        ? callConsole<{ result: unknown }>('services.callCommand', {
            serviceName,
            command: name,
            payload: members,
          })
        : callConsole<{ result: unknown }>('services.callAction', {
            ...members,
            serviceName,
            actionName: name,
          }));
      fill(result, h('p', { class: 'label' }, 'Result'), json(answer.result));
    } catch (error) {
      if (!(error instanceof Refusal)) return showError(error);
      fill(result, refusalView(error));
    }
  });
  return h(
    'details',
    { class: 'operation', 'data-operation': name },
    h('summary', {}, h('code', {}, name), h('span', { class: 'quiet' }, ` ${kind}`)),
    payload,
    h('div', { class: 'row' }, run),
    result,
  );
}
