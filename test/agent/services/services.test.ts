// Agent services over HTTP: concurrent starts and stops, misbehaving commands, unknown names.
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { definePlugin } from '../../../src/agent/plugins/index.ts';
import { supervisorLimits } from '../../../src/agent/services/index.ts';
import type { ServiceDefinition } from '../../../src/agent/service-definition.ts';
import { startAgent, type TestAgent } from '../../support/agent.ts';
import { isRunning } from '../../support/processes.ts';
import { scriptedGateway, type ScriptedGateway } from '../../support/scripted-gateway.ts';

const calls: string[] = [];
let runningCount = 0;
let maxRunningCount = 0;
const anyObject = { type: 'object' };

// How long a start or a stop takes: long enough for concurrent commands to arrive meanwhile.
const transitionMs = 5;

const bell: ServiceDefinition = {
  name: 'bell',
  title: 'Bell',
  // The tests look up its programs by the ids that they report, so there is no PID namespace.
  sandbox: false,
  async start() {
    calls.push('start');
    runningCount += 1;
    maxRunningCount = Math.max(maxRunningCount, runningCount);
    await new Promise((resolve) => setTimeout(resolve, transitionMs));
  },
  async stop() {
    calls.push('stop');
    runningCount -= 1;
    await new Promise((resolve) => setTimeout(resolve, transitionMs));
  },
  actions: {
    ring: {
      description: 'Rings.',
      input: { type: 'object', properties: { times: { type: 'integer' } }, additionalProperties: false },
      run: async ({ times = 1 }: { times?: number }) => 'ding'.repeat(times),
    },
    hang: { description: 'Never ends.', input: anyObject, run: () => new Promise(() => {}) },
    fail: {
      description: 'Fails.',
      input: anyObject,
      run: () => {
        throw new Error('secret detail');
      },
    },
  },
  commands: {
    ignore: {
      description: 'Runs a program that ignores SIGTERM.',
      input: anyObject,
      run: async (_: object, { program }) =>
        program(['/bin/sh', '-c', `trap '' TERM; echo $$ > ignore; while :; do sleep 1; done`]),
    },
    flood: {
      description: 'Runs a program with endless output.',
      input: anyObject,
      run: async (_: object, { program }) => program(['/bin/sh', '-c', 'echo $$ > flood; exec yes']),
    },
  },
};
const sleeper: ServiceDefinition = {
  name: 'sleeper',
  title: 'Sleeper',
  autostart: false,
  start: async () => {},
  stop: async () => {},
  actions: { nap: { description: '', input: anyObject, run: async () => 'zzz' } },
};
const plugin = definePlugin({
  name: 'probe',
  title: 'Probe',
  description: '',
  actions: {},
  services: [bell, sleeper],
});

const unknownNames = ['__proto__', 'constructor', 'toString', '%2e%2e', 'bell ', 'Bell'];

let gateway: ScriptedGateway;
let folder: string;
beforeAll(async () => {
  gateway = await scriptedGateway();
  folder = await mkdtemp(join(tmpdir(), 'townhall-services-'));
});
afterAll(async () => {
  await gateway.close();
  await rm(folder, { recursive: true, force: true });
});

describe.each(['current', 'classic'] as const)('the services of the %s variant', (variant) => {
  let agent: TestAgent;
  beforeAll(async () => {
    const config = join(folder, `${variant}.json`);
    const services = {
      ticker: {
        command: ['/bin/sh', '-c', 'echo tick; exec sleep 300'],
        commands: { date: { command: ['date'] } },
      },
      faulty: { command: ['/bin/sh', '-c', 'exit 7'], autostart: false },
    };
    await writeFile(config, JSON.stringify({ services }));
    agent = await startAgent({
      gatewayUrl: gateway.url,
      variant,
      settings: { pluginConfig: config, commandTimeoutMs: 2_000 },
      createOptions: { plugins: [plugin] },
    });
  });
  afterAll(() => agent.close());
  const control = (serviceName: string, action: 'start' | 'stop' | 'restart' | 'status') =>
    agent.client.services.controlService({ serviceName, action });
  const callAction = (actionName: string, payload: Record<string, unknown> = {}) =>
    agent.client.services.callAction({ serviceName: 'bell', actionName, ...payload });

  test('are listed with their state, actions and commands', async () => {
    const { services } = await agent.client.services.listServices();
    expect(services).toMatchObject([
      { name: 'chat', state: 'running', actions: ['send'] },
      {
        name: 'bell',
        state: 'running',
        restarts: 0,
        lastError: null,
        actions: ['ring', 'hang', 'fail'],
        commands: ['ignore', 'flood'],
      },
      { name: 'sleeper', state: 'stopped' },
      { name: 'ticker', state: 'running', commands: ['output', 'date'] },
      { name: 'faulty', state: 'stopped' },
    ]);
  });

  test('report whether a start or stop changed the state', async () => {
    expect(await control('sleeper', 'status')).toMatchObject({
      changed: false,
      service: { state: 'stopped' },
    });
    expect(await control('sleeper', 'start')).toMatchObject({ changed: true, service: { state: 'running' } });
    expect(await control('sleeper', 'start')).toMatchObject({
      changed: false,
      service: { state: 'running' },
    });
    expect(await control('sleeper', 'stop')).toMatchObject({ changed: true, service: { state: 'stopped' } });
    expect(await control('sleeper', 'stop')).toMatchObject({ changed: false });
  });

  test('refuse an action while they are stopped', async () => {
    const nap = () => agent.client.services.callAction({ serviceName: 'sleeper', actionName: 'nap' });
    await expect(nap()).rejects.toMatchObject({ status: 503, code: 'service_stopped' });
    await control('sleeper', 'start');
    expect(await nap()).toEqual({ success: true, serviceName: 'sleeper', result: 'zzz' });
    await control('sleeper', 'stop');
  });

  test('run at most once under fifty concurrent starts and stops', async () => {
    calls.length = 0;
    maxRunningCount = 0;
    const actions = Array.from(
      { length: 50 },
      (_, index) => (['start', 'stop', 'restart'] as const)[index % 3] ?? 'start',
    );
    const answers = await Promise.all(actions.map((action) => control('bell', action)));
    expect(answers.every(({ success }) => success)).toBe(true);
    expect(await control('bell', 'start')).toMatchObject({ service: { state: 'running' } });
    expect(maxRunningCount).toBe(1);
    expect(runningCount).toBe(1);
    // The service ran before and runs afterwards, so stops and starts must alternate.
    expect(calls.length).toBeGreaterThan(0);
    expect(calls).toEqual(calls.map((_, index) => (index % 2 === 0 ? 'stop' : 'start')));
    expect(await callAction('ring', { times: 2 })).toMatchObject({ result: 'dingding' });
  });

  test.each([
    ['fail', {}, { status: 502, code: 'action_failed' }],
    ['hang', {}, { status: 504, code: 'action_timeout' }],
    ['ring', { times: 'x' }, { status: 400, code: 'invalid_request' }],
  ])('limit the failure of %s with %j to its call', async (actionName, payload, problem) => {
    await expect(callAction(actionName, payload)).rejects.toMatchObject(problem);
    expect(await callAction('ring')).toMatchObject({ result: 'ding' });
  });

  test('hide the error of a failed action', async () => {
    await expect(callAction('fail')).rejects.toMatchObject({
      message: expect.not.stringContaining('secret'),
    });
  });

  // A flooding program is stopped at the output limit or, on a slow machine, at the deadline.
  test.each([
    ['ignore', /^deadline$/],
    ['flood', /^(flood|deadline)$/],
  ])('end the program of the command %s', async (command, endReason) => {
    const startedMs = performance.now();
    const { result } = await agent.client.services.callCommand({ serviceName: 'bell', command });
    // The deadline is two seconds; the rest allows for a busy machine.
    expect(performance.now() - startedMs).toBeLessThan(15_000);
    expect(result).toMatchObject({ endReason: expect.stringMatching(endReason) });
    expect((result as { output: string }).output.length).toBeLessThan(1024 * 1024 + 100);
    const pid = Number(await readFile(join(agent.workspace, command), 'utf8'));
    expect(pid).toBeGreaterThan(1);
    await expect.poll(() => isRunning(pid)).toBe(false);
  });

  test('run a configured program and keep its output', async () => {
    const output = () => agent.client.services.callCommand({ serviceName: 'ticker', command: 'output' });
    await expect.poll(async () => (await output()).result).toMatchObject({ text: 'tick\n' });
  });

  test('run configured commands', async () => {
    expect(await agent.client.services.callCommand({ serviceName: 'ticker', command: 'date' })).toMatchObject(
      { result: { exitCode: 0, ended: 'exit' } },
    );
  });

  test('count restarts', async () => {
    expect(await control('ticker', 'restart')).toMatchObject({
      changed: true,
      service: { state: 'running', restarts: 1 },
    });
  });

  test('fail after their retries with the reason', async () => {
    await control('faulty', 'start');
    await expect
      .poll(async () => (await control('faulty', 'status')).service, { timeout: 80_000, interval: 100 })
      .toMatchObject({
        state: 'failed',
        restarts: supervisorLimits.retries,
        lastError: 'It exited by itself with the exit code 7.',
      });
    expect(await control('faulty', 'stop')).toMatchObject({ changed: true, service: { state: 'stopped' } });
  });

  test.each([...unknownNames, '../x', '..'])(
    'answer 404 for the name %j of a service or a command',
    async (name) => {
      await expect(control(name, 'status')).rejects.toMatchObject({ status: 404, code: 'service_not_found' });
      await expect(control(name, 'start')).rejects.toMatchObject({ status: 404, code: 'service_not_found' });
      await expect(
        agent.client.services.callCommand({ serviceName: name, command: 'x' }),
      ).rejects.toMatchObject({ status: 404, code: 'service_not_found' });
      await expect(
        agent.client.services.callCommand({ serviceName: 'bell', command: name }),
      ).rejects.toMatchObject({ status: 404, code: 'command_not_found' });
    },
  );

  // Not `..`: a client refuses it in a path, and fetch would resolve it.
  test.each(unknownNames)('answer 404 for the name %j of an action or its service', async (name) => {
    await expect(
      agent.client.services.callAction({ serviceName: name, actionName: 'ring' }),
    ).rejects.toMatchObject({ status: 404, code: 'service_not_found' });
    await expect(callAction(name)).rejects.toMatchObject({ status: 404, code: 'action_not_found' });
  });

  test('refuse an encoded slash in the path of an action', async () => {
    await expect(callAction('../x')).rejects.toMatchObject({ status: 400 });
  });
});
