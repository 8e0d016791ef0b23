// The plugin routes in both variants, on one agent each: lists, calls and refusals.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createAgentClient as createClassicClient } from '@townhall/agent/classic';
import { definePlugin, type Plugin } from '../../../src/agent/plugins/index.ts';
import { startAgent, type TestAgent } from '../../support/agent.ts';
import { scriptedGateway, type ScriptedGateway } from '../../support/scripted-gateway.ts';

const effects: unknown[] = [];
let isAvailable = true;

const probe: Plugin = definePlugin<Record<string, never>>({
  name: 'probe',
  title: 'Probe',
  description: 'Does what a test needs.',
  system: 'Be careful with the probe.',
  availability: () => ({ available: isAvailable, reasons: isAvailable ? [] : ['The cable is out.'] }),
  actions: {
    echo: { description: 'Echoes.', api: true, input: { type: 'object' }, run: async (input) => input },
    typed: {
      description: 'Takes a number.',
      api: true,
      input: {
        type: 'object',
        required: ['n'],
        properties: { n: { type: 'integer' } },
        additionalProperties: false,
      },
      run: async () => null,
    },
    throws: {
      description: 'Throws.',
      api: true,
      input: { type: 'object' },
      run: async () => {
        throw new Error('secret detail');
      },
    },
    rejects: {
      description: 'Throws at once.',
      api: true,
      input: { type: 'object' },
      run: () => {
        throw new Error('secret detail');
      },
    },
    hangs: {
      description: 'Never ends.',
      api: true,
      input: { type: 'object' },
      run: () => new Promise(() => {}),
    },
    cycle: {
      description: 'Returns a value that is not JSON.',
      api: true,
      input: { type: 'object' },
      run: async () => {
        const cycle: Record<string, unknown> = {};
        cycle['self'] = cycle;
        return cycle;
      },
    },
    code: {
      description: 'Returns a function, which JSON would leave out.',
      api: true,
      input: { type: 'object' },
      run: async () => () => 1,
    },
    mismatch: {
      description: 'Returns a result that does not match its output schema.',
      api: true,
      input: { type: 'object' },
      output: { type: 'object', required: ['n'] },
      run: async () => ({ m: 1 }),
    },
    refuses: {
      description: 'Refuses.',
      api: true,
      input: { type: 'object' },
      run: async (_, { refuse }) => refuse('Not on a Sunday.'),
    },
    approval: {
      description: 'Needs an approval.',
      api: true,
      needsApproval: true,
      input: { type: 'object' },
      run: async () => 'done',
    },
    hidden: { description: 'For the model only.', input: { type: 'object' }, run: async () => null },
  },
  hooks: {
    guards: {
      'tool.before': ({ input }) =>
        (input as { forbidden?: boolean }).forbidden ? { refuse: 'That is forbidden.' } : undefined,
    },
    effects: { 'tool.after': (value) => void effects.push(value) },
  },
});
const brokenPlugin: Plugin = definePlugin({
  name: 'broken',
  title: 'Broken',
  description: 'Does not start.',
  actions: {},
  start: () => {
    throw new Error('no');
  },
});

interface PluginRoutes {
  list(): Promise<{ plugins: object[] }>;
  summaries(): Promise<{ plugins: { name: string }[] }>;
  availability(plugin: string): Promise<object>;
  call(plugin: string, action: string, payload?: Record<string, unknown>): Promise<{ result: unknown }>;
}

let gateway: ScriptedGateway;
beforeAll(async () => {
  gateway = await scriptedGateway();
});
afterAll(() => gateway.close());

describe.each(['current', 'classic'] as const)('the plugin routes of the %s variant', (variant) => {
  let agent: TestAgent;
  let routes: PluginRoutes;
  beforeAll(async () => {
    agent = await startAgent({
      gatewayUrl: gateway.url,
      variant,
      settings: { toolTimeoutMs: 400 },
      createOptions: { plugins: [probe, brokenPlugin] },
    });
    const classic = createClassicClient({ baseUrl: agent.url, token: agent.token });
    const current = agent.client;
    routes =
      variant === 'classic'
        ? {
            list: () => classic.plugins.listPlugins(),
            summaries: () => classic.plugins.listPlugins(),
            availability: (pluginName) => classic.plugins.checkAvailability({ pluginName }),
            call: (pluginName, actionName, payload) =>
              classic.plugins.callAction({ pluginName, actionName, ...(payload ? { payload } : {}) }),
          }
        : {
            list: () => current.plugins.listPlugins(),
            summaries: () => current.plugins.listCatalog(),
            availability: (plugin_name) => current.plugins.checkAvailability({ plugin_name }),
            call: (plugin_name, action_name, payload) =>
              current.plugins.callAction({ plugin_name, action_name, ...(payload ? { payload } : {}) }),
          };
  });
  afterAll(() => agent.close());

  test('list the plugins with actions, hooks and availability', async () => {
    const { plugins } = await routes.summaries();
    const summary = plugins.find(({ name }) => name === 'probe');
    expect(summary).toMatchObject({
      name: 'probe',
      guards: ['tool.before'],
      effects: ['tool.after'],
      pipelines: [],
      resolves: [],
      hasSystem: true,
      hasAvailability: true,
      availability: { enabled: true, available: true, reasons: [] },
    });
    const { config } = summary as unknown as { config: { actions: { name: string }[] } };
    expect(config.actions.find(({ name }) => name === 'echo')).toMatchObject({
      supportsApi: true,
      supportsCommand: false,
      apiMethod: 'POST',
      apiPath: '/api/plugins/action',
      needsApproval: false,
    });
    expect(config.actions.find(({ name }) => name === 'hidden')).toMatchObject({
      supportsApi: false,
      apiMethod: '',
      apiPath: '',
    });
    expect(await agent.client.ui.listPlugins()).toEqual({ success: true, plugins });
  });

  test.runIf(variant === 'classic')('have no catalog', async () => {
    const response = await agent.fetch('/api/plugins/catalog', {
      headers: { authorization: `Bearer ${agent.token}` },
    });
    expect(response.status).toBe(404);
  });

  test.runIf(variant === 'current')('list the managed states', async () => {
    const { plugins } = await routes.list();
    expect(plugins).toContainEqual({ name: 'probe', state: 'ready', reasons: [], since: expect.any(String) });
    expect(plugins).toContainEqual({
      name: 'broken',
      state: 'failed',
      reasons: ['It failed to start; the log has the details.'],
      since: expect.any(String),
    });
  });

  test('call an action and then its effect', async () => {
    effects.length = 0;
    expect(await routes.call('probe', 'echo', { a: [1, null, 'é'] })).toMatchObject({
      success: true,
      result: { a: [1, null, 'é'] },
    });
    expect(await routes.call('probe', 'echo')).toMatchObject({ result: {} });
    expect(await routes.call('probe', 'approval')).toMatchObject({ result: 'done' });
    await expect.poll(() => effects.length).toBe(3);
    expect(effects[0]).toMatchObject({ toolName: 'probe_echo', ok: true, output: { a: [1, null, 'é'] } });
  });

  test.each([
    ['throws', {}, 502, 'action_failed'],
    ['rejects', {}, 502, 'action_failed'],
    ['cycle', {}, 502, 'action_failed'],
    ['code', {}, 502, 'action_failed'],
    ['mismatch', {}, 502, 'action_failed'],
    ['hangs', {}, 504, 'action_timeout'],
    ['refuses', {}, 422, 'action_refused'],
    ['typed', { n: 'x' }, 400, 'invalid_request'],
    ['hidden', {}, 403, 'action_not_api'],
    ['echo', { forbidden: true }, 403, 'plugin_refused'],
  ])('limit the failure of %s with %j to its call', async (action, payload, status, code) => {
    const failure = await routes.call('probe', action, payload).catch((error: unknown) => error);
    expect(failure).toMatchObject({ status, code });
    expect(String((failure as Error).message)).not.toContain('secret');
    expect(await routes.call('probe', 'echo', { still: 'there' })).toMatchObject({
      result: { still: 'there' },
    });
  });

  test.each([
    '__proto__',
    'constructor',
    'toString',
    '../x',
    'Probe',
    'probe ',
    'pro_be',
    '\u0000',
    'x'.repeat(128),
  ])('answer 404 for the name %j of a plugin and of an action', async (name) => {
    await expect(routes.availability(name)).rejects.toMatchObject({ status: 404, code: 'plugin_not_found' });
    await expect(routes.call(name, 'echo')).rejects.toMatchObject({ status: 404, code: 'plugin_not_found' });
    await expect(routes.call('probe', name)).rejects.toMatchObject({ status: 404, code: 'action_not_found' });
  });

  test('refuse calls of an unavailable plugin with the reason', async () => {
    isAvailable = false;
    try {
      expect(await routes.availability('probe')).toMatchObject({
        availability: { enabled: true, available: false, reasons: ['The cable is out.'] },
      });
      await expect(routes.call('probe', 'echo')).rejects.toMatchObject({
        status: 409,
        code: 'plugin_unavailable',
      });
    } finally {
      isAvailable = true;
    }
    expect(await routes.availability('probe')).toMatchObject({
      availability: { available: true, reasons: [] },
    });
  });

  test('report a plugin that did not start as unavailable', async () => {
    expect(await routes.availability('broken')).toMatchObject({
      availability: { enabled: true, available: false },
    });
  });

  test('refuse the member names of the other variant', async () => {
    const body =
      variant === 'classic'
        ? { plugin_name: 'probe', action_name: 'echo' }
        : { pluginName: 'probe', actionName: 'echo' };
    const response = await agent.fetch('/api/plugins/action', {
      method: 'POST',
      headers: { authorization: `Bearer ${agent.token}`, 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
    expect(response.status).toBe(400);
  });
});
