// Plugin hooks: the order and result of each kind. A hook that throws or hangs affects its own call
// only.
import { describe, expect, test } from 'vitest';
import { createRegistry, definePlugin, type Hooks, type Plugin } from '../../../src/agent/plugins/index.ts';
import { createLog } from '../../../src/kernel/log.ts';
import { createRedactor } from '../../../src/kernel/secrets/secret.ts';

type PluginHooks = NonNullable<Plugin['hooks']>;
const plugin = (name: string, hooks: PluginHooks): Plugin =>
  definePlugin({ name, title: name, description: '', actions: {}, hooks });
const hooksOf = (...plugins: [string, PluginHooks][]): Hooks =>
  createRegistry(
    plugins.map(([name, hooks]) => plugin(name, hooks)),
    { hookMs: 50 },
  ).hooks;
const context = { sessionId: 'ses_1' };
const hang = () => new Promise<never>(() => {});
const fail = () => {
  throw new Error('secret detail');
};

describe('pipelines', () => {
  test('transform a value in the order of the plugins', async () => {
    const add = (letter: string): PluginHooks => ({
      pipelines: { 'answer.before': async ({ text }) => ({ text: text + letter }) },
    });
    expect(
      await hooksOf(['a', add('a')], ['b', add('b')]).pipeline('answer.before', { text: '' }, context),
    ).toEqual({ text: 'ab' });
  });

  test('skip a hook that throws, hangs or returns a wrong type', async () => {
    const badPipelines = [
      fail,
      hang,
      () => undefined,
      () => null,
      () => 'text',
      () => ({}),
      () => ({ text: 7 }),
      () => [],
      () => hang,
    ] as never[];
    for (const run of badPipelines) {
      const hooks = hooksOf(
        ['bad', { pipelines: { 'answer.before': run } }],
        ['good', { pipelines: { 'answer.before': ({ text }) => ({ text: `${text}!` }) } }],
      );
      expect(await hooks.pipeline('answer.before', { text: 'yes' }, context)).toEqual({ text: 'yes!' });
    }
  });

  test('skip a hook that leaves out a member of any type', async () => {
    const value = { toolName: 't', toolCallId: 'c', input: { path: 'a' } };
    const withoutInput = ({ toolName, toolCallId }: object & { toolName: string; toolCallId: string }) =>
      ({ toolName, toolCallId }) as never;
    const hooks = hooksOf(['a', { pipelines: { 'tool.before': withoutInput } }]);
    expect(await hooks.pipeline('tool.before', value, context)).toEqual(value);
  });

  test('get a copy to which they cannot add members', async () => {
    const value = { toolName: 't', toolCallId: 'c', input: { deep: [1] } };
    const hooks = hooksOf([
      'a',
      {
        pipelines: {
          'tool.before': (call) => {
            (call.input as { deep: number[] }).deep.push(2);
            return { ...call, extra: true } as never;
          },
        },
      },
    ]);
    expect(await hooks.pipeline('tool.before', value, context)).toEqual({
      ...value,
      input: { deep: [1, 2] },
    });
    expect(value.input).toEqual({ deep: [1] });
  });
});

describe('guards', () => {
  test('let a value pass, or refuse it with a reason', async () => {
    const hooks = hooksOf([
      'a',
      { guards: { 'step.before': ({ step }) => (step > 2 ? { refuse: 'Enough.' } : undefined) } },
    ]);
    await hooks.guard('step.before', { step: 1 }, context);
    await expect(hooks.guard('step.before', { step: 3 }, context)).rejects.toMatchObject({
      code: 'plugin_refused',
      message: 'The plugin "a" refuses: Enough.',
    });
  });

  test.each([
    ['throws', fail],
    ['hangs', hang],
    ['returns false', () => false],
    ['returns true', () => true],
    ['refuses without a reason', () => ({ refuse: 1 })],
  ])('refuse only their own calls when one %s', async (_failure, run) => {
    const hooks = hooksOf(['a', { guards: { 'step.before': run as never } }]);
    const failure = (await hooks
      .guard('step.before', { step: 1 }, context)
      .catch((error: unknown) => error)) as Error;
    expect(failure).toMatchObject({ code: 'plugin_refused' });
    expect(failure.message).not.toContain('secret');
    await hooks.guard('answer.before', { text: '' }, context);
  });
});

// A model gets these texts, and its gateway refuses half of a surrogate pair.
describe('a text of a plugin that is too long', () => {
  const longText = `${'x'.repeat(16 * 1024 - 1)}\u{1f600}`;
  const longReason = `${'x'.repeat(499)}\u{1f600}`;

  test('is cut between characters in the system prompt', () => {
    const { sections } = createRegistry([{ ...plugin('a', {}), system: longText }]);
    expect(sections()[0]?.text).toBe('x'.repeat(16 * 1024 - 1));
  });

  test('is cut between characters in the reason of a guard', async () => {
    const hooks = hooksOf(['a', { guards: { 'step.before': () => ({ refuse: longReason }) } }]);
    const failure = (await hooks
      .guard('step.before', { step: 1 }, context)
      .catch((error: unknown) => error)) as Error;
    expect(failure.message.isWellFormed()).toBe(true);
  });

  test('is cut between characters in a reason for its unavailability', async () => {
    const availability = () => ({ available: false, reasons: [longReason] });
    const registry = createRegistry([{ ...plugin('a', {}), availability }]);
    const [reason] = (await registry.plugin('a')?.availability())?.reasons ?? [];
    expect(reason).toBe('x'.repeat(499));
  });
});

describe('effects and resolves', () => {
  test('start effects without awaiting them or their failures', async () => {
    const reason = Promise.withResolvers<string>();
    const slow = Promise.withResolvers<void>();
    const { hooks } = createRegistry(
      [
        plugin('bad', { effects: { 'answer.after': fail } }),
        plugin('slow', { effects: { 'answer.after': () => slow.promise } }),
        plugin('good', { effects: { 'answer.after': ({ text }) => reason.resolve(text) } }),
      ],
      // Longer than the test may take.
      { hookMs: 600_000 },
    );
    hooks.effect('answer.after', { text: 'done' }, context);
    expect(await reason.promise).toBe('done');
    slow.resolve();
  });

  test('skip a resolver that returns nothing, throws or hangs', async () => {
    const value = { toolName: 't', toolCallId: 'c', input: null };
    const resolveWith = (run: () => unknown) =>
      hooksOf(['a', { resolves: { 'tool.before': run as never } }]).resolve('tool.before', value, context);
    expect(await resolveWith(() => ({ cached: true }))).toEqual({ cached: true });
    expect([
      await resolveWith(() => undefined),
      await resolveWith(fail),
      await resolveWith(hang),
      await hooksOf().resolve('tool.before', value, context),
    ]).toEqual([undefined, undefined, undefined, undefined]);
  });

  test.each([
    ['a function', () => 'text'],
    ['a bigint', 7n],
  ])('log and drop %s, which is not JSON', async (_kind, result) => {
    const lines: string[] = [];
    const log = createLog({ level: 'warn', redactor: createRedactor(), write: (line) => lines.push(line) });
    const resolver = plugin('a', { resolves: { 'tool.before': () => result } });
    const { hooks } = createRegistry([resolver], { log });
    const value = { toolName: 't', toolCallId: 'c', input: null };
    expect(await hooks.resolve('tool.before', value, context)).toBeUndefined();
    expect(lines.map((line) => JSON.parse(line) as unknown)).toEqual([
      expect.objectContaining({ plugin: 'a', hook: 'tool.before' }),
    ]);
  });

  test('refuse a second resolver for a name', () => {
    expect(() =>
      hooksOf(['a', { resolves: { 'tool.before': fail } }], ['b', { resolves: { 'tool.before': fail } }]),
    ).toThrow('Two plugins resolve "tool.before": "a" and "b".');
  });
});

describe('the registry', () => {
  test('refuses an unknown hook', () => {
    expect(() => hooksOf(['a', { guards: { 'tool.during': fail } } as never])).toThrow(/never called/);
  });

  test('refuses an unknown kind of hooks', () => {
    expect(() => hooksOf(['a', { watchers: {} } as never])).toThrow(/the kind "watchers"/);
  });

  test('refuses settings of a plugin that takes none', () => {
    expect(() =>
      createRegistry([plugin('a', {})], { config: new Map([['a', { settings: { x: 1 } }]]) }),
    ).toThrow(/takes no settings/);
  });

  test('refuses a configuration of an absent plugin', () => {
    expect(() => createRegistry([], { config: new Map([['b', {}]]) })).toThrow(
      /names the plugin "b", which does not exist/,
    );
  });

  test('starts the other plugins when one hangs or throws', async () => {
    const stoppedNames: string[] = [];
    const makePlugin = (name: string, start: () => Promise<void> | void, hooks: PluginHooks = {}): Plugin =>
      definePlugin<{ act: object }>({
        name,
        title: name,
        description: '',
        start,
        stop: () => void stoppedNames.push(name),
        hooks,
        actions: { act: { description: '', input: { type: 'object' }, run: async () => null } },
      });
    const registry = createRegistry(
      [
        makePlugin('hangs', hang),
        makePlugin('throws', fail),
        makePlugin('off', fail),
        makePlugin('healthy', () => {}, { guards: { 'step.before': () => ({ refuse: 'Enough.' }) } }),
      ],
      { startMs: 50, config: new Map([['off', { enabled: false }]]) },
    );
    await registry.start('/');
    expect(registry.plugins.map((plugin) => plugin.state().state)).toEqual([
      'failed',
      'failed',
      'unavailable',
      'ready',
    ]);
    expect(registry.tools.map(({ name }) => name)).toEqual(['healthy_act']);
    await expect(registry.hooks.guard('step.before', { step: 1 }, context)).rejects.toThrow('"healthy"');
    await registry.stop();
    expect(stoppedNames).toEqual(['healthy']);
  });

  describe('with a guard whose plugin fails to start', () => {
    const brokenPlugin = definePlugin({
      ...plugin('broken', { guards: { 'tool.before': () => undefined } }),
      start: fail,
    });
    const call = { toolName: 't', toolCallId: 'c', input: null };

    test('refuses only the calls that the guard checks', async () => {
      const registry = createRegistry([brokenPlugin]);
      await registry.start('/');
      await expect(registry.hooks.guard('tool.before', call, context)).rejects.toMatchObject({
        code: 'plugin_refused',
        message: expect.stringContaining('The plugin "broken" refuses: it did not start'),
      });
      await registry.hooks.guard('step.before', { step: 1 }, context);
    });

    test('lets the calls pass when the plugin is disabled', async () => {
      const registry = createRegistry([brokenPlugin], {
        config: new Map([['broken', { enabled: false }]]),
      });
      await registry.start('/');
      const guard = registry.hooks.guard('tool.before', call, context);
      await expect(guard).resolves.toBeUndefined();
    });
  });
});
