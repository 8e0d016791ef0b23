// Plugin code that fails or prints outside of any call. The agent runs in a process of its own: it
// must go on, and its standard output must stay a JSON log.
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { type AgentClient, createAgentClient } from '@townhall/agent';
import { databaseFlags, type DatabasePlace, makeDatabase } from '../../support/databases.ts';
import { kill } from '../../support/processes.ts';
import { type ScriptedGateway, scriptedGateway } from '../../support/scripted-gateway.ts';

const main = join(import.meta.dirname, '../../../src/cli/main.ts');

// Each way to fail gets a plugin of its own, so that its failure affects no other.
const pluginFile = (name: string, body: string, top = ''): string => `
import { EventEmitter } from 'node:events';
import { connect } from 'node:net';
${top}
export const plugin = {
  name: '${name}', title: '${name}', description: 'Fails late.',
  actions: {
    act: {
      description: 'Acts.',
      api: true,
      input: { type: 'object' },
      async run() { ${body}; return { done: true }; },
    },
  },
  hooks: { guards: { 'tool.before': ({ input }) => (input?.forbidden ? { refuse: 'Never.' } : undefined) } },
};
`;
const lateFailures: Record<string, string> = {
  timer: `setTimeout(() => { throw new Error('late in a timer'); }, 5)`,
  rejection: `void Promise.reject(new Error('nothing awaits this'))`,
  'no-error': `void Promise.reject('a text')`,
  tick: `process.nextTick(() => { throw new Error('late in a tick'); })`,
  emitter: `setImmediate(() => new EventEmitter().emit('error', new Error('without a listener')))`,
  socket: `connect(1, '127.0.0.1')`,
};

interface LogLine {
  level?: string;
  msg: string;
  plugin?: string;
  line?: string;
  url?: string;
}

describe('an agent with third-party plugins', () => {
  let gateway: ScriptedGateway;
  let place: DatabasePlace;
  let folder: string;
  let child: ChildProcess;
  let client: AgentClient;
  let lines: string[];
  let errors: string;

  beforeAll(async () => {
    gateway = await scriptedGateway();
    place = await makeDatabase({ isEmpty: true });
  });
  afterAll(async () => {
    await gateway.close();
    await place.remove();
  });
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'townhall-contain-'));
  });
  afterEach(async () => {
    await kill(child);
    await rm(folder, { recursive: true, force: true });
  });

  async function launch(plugins: Record<string, string>, nodeOptions = ''): Promise<void> {
    const files: string[] = [];
    for (const [name, text] of Object.entries(plugins)) {
      files.push(join(folder, `${name}.mjs`));
      await writeFile(join(folder, `${name}.mjs`), text);
    }
    const flags = [
      '--port',
      '0',
      '--data-dir',
      join(folder, 'data'),
      '--gateway-url',
      gateway.url,
      ...databaseFlags(place.options),
      ...files.flatMap((file) => ['--plugin', file]),
    ];
    child = spawn(process.execPath, [main, 'agent', ...flags], {
      cwd: folder,
      env: { PATH: process.env['PATH'], NODE_OPTIONS: nodeOptions, AGENT_GATEWAY_TOKEN: 'th_usr_test' },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    lines = [];
    errors = '';
    child.stderr?.on('data', (piece: Buffer) => (errors += piece.toString('utf8')));
    const listeningUrl = Promise.withResolvers<string>();
    createInterface({ input: child.stdout as NonNullable<ChildProcess['stdout']> }).on('line', (line) => {
      lines.push(line);
      if (line.includes('"listening"')) listeningUrl.resolve((JSON.parse(line) as { url: string }).url);
    });
    child.once('exit', () => listeningUrl.reject(new Error(`The agent ended before it listened: ${errors}`)));
    const url = await listeningUrl.promise;
    const token = (await readFile(join(folder, 'data', 'agent.token'), 'utf8')).trim();
    client = createAgentClient({ baseUrl: url, token });
  }

  const act = (plugin: string, payload: Record<string, unknown> = {}) =>
    client.plugins.callAction({ plugin_name: plugin, action_name: 'act', payload });
  const stateOf = async (plugin: string) =>
    (await client.plugins.listPlugins()).plugins.find(({ name }) => name === plugin);
  const logLines = (): LogLine[] => lines.map((line) => JSON.parse(line) as LogLine);

  test('shows a plugin as failed after an error outside of a call', async () => {
    await launch({
      ...Object.fromEntries(
        Object.entries(lateFailures).map(([name, body]) => [name, pluginFile(name, body)]),
      ),
      healthy: pluginFile('healthy', ''),
    });
    for (const name of Object.keys(lateFailures)) {
      expect(await act(name)).toMatchObject({ result: { done: true } });
      await expect
        .poll(() => stateOf(name), { message: name })
        .toMatchObject({ state: 'failed', reasons: [expect.stringContaining('outside of any call')] });
      await expect(act(name)).rejects.toMatchObject({ code: 'plugin_unavailable' });
    }
    expect(await act('healthy')).toMatchObject({ result: { done: true } });
    expect(await stateOf('healthy')).toMatchObject({ state: 'ready' });
    expect(logLines()).toContainEqual(
      expect.objectContaining({
        level: 'error',
        plugin: 'timer',
        err: expect.objectContaining({ message: 'late in a timer' }),
      }),
    );
  });

  test('keeps the guards of a plugin that failed after its start', async () => {
    await launch({
      timer: pluginFile('timer', lateFailures['timer'] ?? ''),
      // Without a guard of its own, so that only the guard of `timer` can refuse the call.
      other: pluginFile('other', '').replace('guards', 'effects'),
    });
    await act('timer');
    await expect.poll(() => stateOf('timer')).toMatchObject({ state: 'failed' });
    await expect(act('other', { forbidden: true })).rejects.toMatchObject({ code: 'plugin_refused' });
  });

  test.each([
    ['process.exit()', 'process.exit(3)'],
    ['process.abort()', 'process.abort()'],
    ['a signal to itself', 'process.kill(process.pid)'],
    ['process.exit() in a timer', 'setTimeout(() => process.exit(3), 5)'],
    ['an exit whose error it catches', 'try { process.exit(3) } catch {}'],
  ])('shows a plugin as failed after %s', async (_failure, body) => {
    await launch({ exiting: pluginFile('exiting', body), healthy: pluginFile('healthy', '') });
    // Some of these calls succeed, and others fail before the plugin is marked.
    await act('exiting').catch(() => {});
    await expect.poll(() => stateOf('exiting')).toMatchObject({ state: 'failed' });
    expect(await act('healthy')).toMatchObject({ result: { done: true } });
  });

  test('lets plugins send signal 0, which only checks that a process exists', async () => {
    await launch({
      signals: pluginFile('signals', 'process.kill(process.ppid, 0); process.kill(process.pid, 0)'),
    });
    expect(await act('signals')).toMatchObject({ result: { done: true } });
  });

  test('survives failures in the start, services, checks and hooks of a plugin', async () => {
    const throwLater = (failure: string): string =>
      `setTimeout(() => { throw new Error('late: ${failure}'); }, 5)`;
    const extendPlugin = (name: string, member: string): string =>
      `${pluginFile(name, '')}\nObject.assign(plugin, { ${member} });`;
    await launch({
      starter: extendPlugin('starter', `start() { ${throwLater('start')}; }`),
      server: extendPlugin(
        'server',
        `services: [{
          name: 'ticker', title: 'Ticker', async start() { ${throwLater('service')}; }, async stop() {},
        }]`,
      ),
      watcher: extendPlugin(
        'watcher',
        `hooks: { effects: { 'tool.after': () => { ${throwLater('hook')}; } } }`,
      ),
      checker:
        pluginFile('checker', '') +
        `\nplugin.actions.act.check = () => { ${throwLater('check')}; return { ok: true }; };`,
    });
    await client.plugins.callAction({ plugin_name: 'files', action_name: 'list', payload: {} });
    await act('checker');
    for (const name of ['starter', 'server', 'watcher', 'checker'])
      await expect.poll(() => stateOf(name), { message: name }).toMatchObject({ state: 'failed' });
  });

  test('survives tasks that a plugin file starts while it is imported', async () => {
    await launch({
      early: pluginFile('early', '', `setTimeout(() => { throw new Error('of the module'); }, 5);`),
    });
    await expect.poll(() => stateOf('early')).toMatchObject({ state: 'failed' });
  });

  test('exits on an uncaught error that belongs to no plugin', async () => {
    await writeFile(
      join(folder, 'crash.mjs'),
      `process.on('SIGUSR2', () => { Promise.reject(new Error('of the agent itself')); });`,
    );
    await launch({ healthy: pluginFile('healthy', '') }, `--import=${join(folder, 'crash.mjs')}`);
    const exit = once(child, 'exit');
    child.kill('SIGUSR2');
    expect(await exit).toEqual([1, null]);
    expect(errors).toContain('of the agent itself');
  });

  test('logs the output of plugins under their names', async () => {
    const body = `
      console.log('first\\nsecond');
      process.stdout.write('half ');
      process.stdout.write(new TextEncoder().encode('and half\\n'), () => console.info('written'))`;
    await launch({ printer: pluginFile('printer', body, `console.log('while loading');`) });
    await act('printer');
    const printedLines = () =>
      logLines().flatMap(({ line, plugin }) => (line === undefined ? [] : [[plugin, line]]));
    await expect
      .poll(() => printedLines().slice(1))
      .toEqual([
        ['printer', 'first'],
        ['printer', 'second'],
        ['printer', 'half and half'],
        ['printer', 'written'],
      ]);
    expect(printedLines()[0]).toEqual([expect.stringContaining('printer.mjs'), 'while loading']);
  });
});
