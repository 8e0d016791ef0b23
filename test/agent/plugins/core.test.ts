// A call of an action over HTTP: pipelines change its input and its output, and nothing else.
import { describe, expect, test } from 'vitest';
import {
  createRegistry,
  definePlugin,
  type HookValues,
  type Plugin,
} from '../../../src/agent/plugins/index.ts';
import { pluginCore } from '../../../src/agent/plugins/core.ts';
import { systemClock } from '../../../src/kernel/clock.ts';
import { silentLog } from '../../support/databases.ts';

const danger = definePlugin({
  name: 'danger',
  title: 'Danger',
  description: 'Has one action.',
  actions: {
    act: { description: 'Acts.', api: true, input: { type: 'object' }, run: async () => 'done' },
  },
});
const hooksOnly = (name: string, hooks: NonNullable<Plugin['hooks']>): Plugin =>
  definePlugin({ name, title: name, description: '', actions: {}, hooks });

function call(...plugins: Plugin[]): Promise<unknown> {
  const registry = createRegistry([danger, ...plugins]);
  const core = pluginCore({ registry, workspace: '/', toolTimeoutMs: 5_000, clock: systemClock });
  return core.call({
    plugin: 'danger',
    action: 'act',
    payload: {},
    caller: 'api',
    callId: 'req_1',
    signal: new AbortController().signal,
    log: silentLog,
  });
}

describe('pluginCore.call', () => {
  test('shows guards the tool that it calls even if a pipeline names another', async () => {
    const rename = hooksOnly('rename', {
      pipelines: { 'tool.before': (value) => ({ ...value, toolName: 'harmless_act' }) },
    });
    const guard = hooksOnly('guard', {
      guards: {
        'tool.before': ({ toolName }) => (toolName === 'danger_act' ? { refuse: 'No.' } : undefined),
      },
    });
    await expect(call(rename, guard)).rejects.toMatchObject({ code: 'plugin_refused' });
  });

  test('reports the outcome to effects even if a pipeline reports another', async () => {
    const effectValue = Promise.withResolvers<HookValues['tool.after']>();
    const change = hooksOnly('change', {
      pipelines: { 'tool.after': (value) => ({ ...value, ok: false, output: 'changed' }) },
    });
    const watch = hooksOnly('watch', { effects: { 'tool.after': (value) => effectValue.resolve(value) } });
    expect(await call(change, watch)).toBe('changed');
    expect(await effectValue.promise).toMatchObject({ toolName: 'danger_act', ok: true, output: 'changed' });
  });
});
