// The page of plugins: their states, and a form for each action.
import type { PluginActionConfig } from '@townhall/agent';
import type { PluginView } from './shared/views.ts';
import { callConsole, Refusal, refusalView, showError, runOrShowError } from './shared/console-client.ts';
import { loadingNotice, showUnavailable } from './shared/connection-notice.ts';
import { elapsedTime, emptyState, fill, h, json, pill, showCurrent } from './shared/elements.ts';
import { createSchemaForm, FieldError, type Schema, type SchemaForm } from './shared/schema-form.ts';
import type { OpenPage } from './shared/page.ts';

export const openPlugins: OpenPage = (root, [selectedName]) => {
  const list = h('nav', { class: 'list', 'aria-label': 'Plugins' });
  const place = h('div', { class: 'place page' }, loadingNotice());
  fill(root, h('div', { class: 'two' }, h('aside', {}, list), place));

  async function refresh(): Promise<void> {
    const { plugins } = await callConsole<{ plugins: PluginView[] }>('console.plugins');
    fill(
      list,
      plugins.map((plugin) =>
        h(
          'a',
          { href: `#/plugins/${plugin.name}`, 'aria-current': plugin.name === selectedName ? 'page' : null },
          h('span', { class: 'name' }, plugin.title),
          statePill(plugin),
        ),
      ),
    );
    showCurrent(list);
    if (plugins.length === 0)
      return fill(place, emptyState('No plugins', h('p', {}, 'This agent has no plugins.')));
    if (selectedName === undefined)
      return fill(
        place,
        emptyState('Plugins', h('p', {}, 'Choose a plugin to see its actions and to call them.')),
      );
    const plugin = plugins.find(({ name }) => name === selectedName);
    fill(place, plugin === undefined ? emptyState('This plugin does not exist') : pluginView(plugin));
  }
  void runOrShowError(refresh);
  return {
    update({ agent }) {
      if (agent.state !== 'connected') showUnavailable(place, agent);
    },
    rejoin: () => void runOrShowError(refresh),
  };
};

function statePill({ availability: { enabled, available }, managed }: PluginView): HTMLElement {
  if (!enabled) return pill('disabled');
  if (managed?.state === 'failed') return pill('failed', 'bad');
  return available ? pill('ready', 'good') : pill('unavailable', 'wait');
}

function pluginView(plugin: PluginView): Node[] {
  const { availability, managed: managedState, config } = plugin;
  const reasons = [...new Set([...availability.reasons, ...(managedState?.reasons ?? [])])];
  const hooks = (['pipelines', 'guards', 'effects', 'resolves'] as const).flatMap((kind) =>
    plugin[kind].length === 0 ? [] : [[kind, plugin[kind]] as const],
  );
  return [
    h('h1', {}, plugin.title, ' ', statePill(plugin)),
    h('p', {}, plugin.description),
    h(
      'p',
      { class: 'quiet' },
      h('code', {}, plugin.name),
      managedState !== null && [' · changed ', elapsedTime(managedState.since)],
      plugin.hasSystem && ' · adds text to the system prompt',
    ),
    ...(reasons.length === 0
      ? []
      : [
          h(
            'ul',
            { class: 'reasons' },
            reasons.map((reason) => h('li', {}, reason)),
          ),
        ]),
    ...hooks.map(([kind, names]) =>
      h(
        'p',
        { class: 'quiet' },
        `${kind}: `,
        names.map((name, index) => [index > 0 && ', ', h('code', {}, name)]),
      ),
    ),
    h('h2', {}, config.actions.length === 0 ? 'No actions' : 'Actions'),
    ...config.actions.map((action) => actionView(plugin.name, action)),
  ];
}

function actionView(plugin: string, action: PluginActionConfig): HTMLElement {
  const form = createSchemaForm(action.input as Schema, `${plugin}.${action.name}`);
  const result = h('div', { class: 'result', 'aria-live': 'polite' });
  const run = h('button', { type: 'submit', class: 'primary' }, 'Run');
  const body = action.supportsApi
    ? h('form', { novalidate: true }, form.element, h('div', { class: 'row' }, run))
    : h(
        'p',
        { class: 'quiet' },
        'Only the model',
        action.supportsCommand && ' and the command line',
        ' can call it.',
      );
  const element = h(
    'details',
    { class: 'card action', 'data-action': action.name },
    h('summary', {}, h('code', {}, action.name), action.needsApproval && pill('needs approval', 'wait')),
    h('p', {}, action.description),
    body,
    result,
  );

  async function submit(): Promise<void> {
    if (run.getAttribute('aria-disabled') === 'true') return;
    form.showErrors([]);
    fill(result);
    run.setAttribute('aria-disabled', 'true');
    run.setAttribute('aria-busy', 'true');
    try {
      const payload = form.read();
      const members = { plugin, action: action.name, payload };
      const answer = await callConsole<{ result: unknown }>('console.callPlugin', members);
      fill(result, h('p', { class: 'label' }, 'Result'), json(answer.result));
      result.scrollIntoView({ block: 'nearest' });
    } catch (error) {
      showActionError(error, form, result);
      element.querySelector<HTMLElement>('[aria-invalid]')?.focus();
    } finally {
      run.removeAttribute('aria-disabled');
      run.removeAttribute('aria-busy');
    }
  }

  body.addEventListener('submit', (event) => {
    event.preventDefault();
    void submit();
  });
  return element;
}

/** Shows an error at the fields that it names, and the rest below the form. */
function showActionError(error: unknown, form: SchemaForm, result: HTMLElement): void {
  if (error instanceof FieldError) {
    form.showErrors([{ path: error.path, message: error.message }]);
  } else if (error instanceof Refusal) {
    const errors = error.details.map(({ path, message }) => ({
      path: path.replace(/^payload\.?/, ''),
      message,
    }));
    fill(result, refusalView(error, form.showErrors(errors)));
  } else showError(error);
}
