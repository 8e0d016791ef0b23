// The rules that decide tool calls, with a button to remove each granted rule.
import type { Permission } from '@townhall/agent';
import { callConsole, runOrShowError } from './shared/console-client.ts';
import { button, fillWhenChanged, h, pill, showControls } from './shared/elements.ts';

export interface PermissionList {
  element: HTMLElement;
  /** Reads the rules from the agent; shows none for an agent without permissions. */
  refresh(): Promise<void>;
}

const tones = { allow: 'good', ask: 'busy', deny: 'bad' } as const;

export function createPermissionList(): PermissionList {
  const rows = h('div', { class: 'cards' });
  const element = h(
    'section',
    { 'aria-label': 'Permissions', tabindex: '-1', hidden: true },
    h('h2', {}, 'Permissions'),
    h(
      'p',
      { class: 'quiet' },
      'These rules decide matching tool calls. Deny wins over ask, and ask over allow.',
    ),
    rows,
  );
  const list: PermissionList = {
    element,
    async refresh() {
      const answer = await callConsole<{ items: Permission[] }>('permissions.list', {}).catch(() => null);
      if (answer === null) return;
      element.hidden = answer.items.length === 0;
      fillWhenChanged(rows, answer.items, () => answer.items.map((rule) => permissionCard(rule, remove)));
    },
  };
  async function remove(permissionId: string): Promise<void> {
    await runOrShowError(() => callConsole('permissions.remove', { permissionId }));
    // The focused button is removed with its rule. Focus the section, so that the next Enter does not press
    // the button of another rule.
    element.focus();
    await list.refresh();
  }
  return list;
}

function permissionCard(rule: Permission, remove: (permissionId: string) => Promise<void>): HTMLElement {
  const { permissionId, tool, pattern, effect, sessionId, source, expiresAt } = rule;
  const label = pattern === null ? tool : `${tool}: ${pattern}`;
  return h(
    'div',
    { class: 'card permission', 'data-permission': permissionId },
    h('p', {}, pill(effect, tones[effect]), ' ', h('code', {}, showControls(label))),
    h(
      'p',
      { class: 'quiet' },
      sessionId === null
        ? 'In all sessions'
        : ['In ', h('a', { href: `#/sessions/${sessionId}` }, showControls(sessionId))],
      source === 'config' && ', from the configuration',
      expiresAt !== null && `, until ${new Date(expiresAt).toLocaleString()}`,
    ),
    source === 'grant' &&
      h(
        'div',
        { class: 'row' },
        button('Remove', () => remove(permissionId), { class: 'danger' }),
      ),
  );
}
