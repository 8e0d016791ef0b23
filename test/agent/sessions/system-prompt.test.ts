// The part of the system prompt that lists the plugins.
import { expect, test } from 'vitest';
import { createRegistry, definePlugin, type Plugin } from '../../../src/agent/plugins/index.ts';
import { systemSections } from '../../../src/agent/sessions/model-loop/prompt/system-prompt.ts';

const action = { description: 'Acts.', input: { type: 'object' }, run: async () => null };

const plugin = (name: string, members: Partial<Plugin>): Plugin =>
  definePlugin({ name, title: name, description: `About ${name}.`, actions: {}, ...members } as never);

test('the system prompt lists the plugins that may have tools', () => {
  const registry = createRegistry(
    [
      plugin('on', { actions: { act: action } }),
      plugin('off', { actions: { act: action } }),
      plugin('hooks-only', { hooks: { guards: { 'step.before': () => undefined } } }),
      plugin('offering', { start: () => {} }),
    ],
    { config: new Map([['off', { enabled: false }]]) },
  );
  const [agentSection] = systemSections('test', registry, { system: null, attended: false, mode: 'work' });
  const lines = agentSection?.text.split('\n').filter((line) => line.startsWith('- '));
  expect(lines).toEqual(['- on_… (on): About on.', '- offering_… (offering): About offering.']);
});
