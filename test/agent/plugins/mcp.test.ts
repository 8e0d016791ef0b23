// The plugin `mcp` against a real SDK server in a process of its own.
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startAgent, type TestAgent } from '../../support/agent.ts';
import { isRunning } from '../../support/processes.ts';
import {
  calls,
  says,
  scriptedGateway,
  toolResults,
  type ScriptedGateway,
} from '../../support/scripted-gateway.ts';

const program = join(import.meta.dirname, '../../support/mcp-server.ts');

async function listActions({ client }: TestAgent): Promise<string[]> {
  const { plugins } = await client.plugins.listCatalog();
  return plugins.find(({ name }) => name === 'mcp')?.actions ?? [];
}

const callAction = ({ client }: TestAgent, action_name: string, payload: object = {}) =>
  client.plugins.callAction({ plugin_name: 'mcp', action_name, payload: { ...payload } });

describe('the plugin mcp', () => {
  let folder: string;
  let gateway: ScriptedGateway;
  let agent: TestAgent;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'townhall-mcp-'));
    const config = join(folder, 'plugins.json');
    await writeFile(
      config,
      JSON.stringify({
        mcpServers: {
          probe: { command: process.execPath, args: [program], env: { PROBE: 'yes' } },
          absent: { command: join(folder, 'no-such-program') },
          off: { command: 'false', disabled: true },
        },
      }),
    );
    gateway = await scriptedGateway();
    agent = await startAgent({
      gatewayUrl: gateway.url,
      gatewayToken: 'th_usr_hidden',
      // The tests look up the servers' processes by id, so the servers must not have a PID namespace.
      settings: { pluginConfig: config, unsafeShell: true },
    });
  });
  afterAll(async () => {
    await agent.close();
    await gateway.close();
    await rm(folder, { recursive: true, force: true });
  });

  const call = (action: string, payload: object = {}) => callAction(agent, action, payload);

  test('stays available with one of two servers', async () => {
    await expect.poll(() => listActions(agent)).toContain('probe-add-numbers');
    expect(await listActions(agent)).toEqual([
      'probe-add-numbers',
      'probe-environment',
      'probe-fails',
      'probe-writes',
      'probe-dies',
      'probe-grow',
    ]);
    expect(await agent.client.plugins.checkAvailability({ plugin_name: 'mcp' })).toMatchObject({
      availability: { available: true, reasons: ['The server "absent" cannot be reached.'] },
    });
  });

  test('returns the result of a tool', async () => {
    expect(await call('probe-add-numbers', { a: 2, b: 3 })).toMatchObject({ result: { text: '5' } });
  });

  test('refuses input that does not fit the tool', async () => {
    await expect(call('probe-add-numbers', { a: 'two', b: 3 })).rejects.toMatchObject({ status: 400 });
  });

  test('returns the error of a tool', async () => {
    await expect(call('probe-fails')).rejects.toMatchObject({
      status: 422,
      code: 'action_refused',
      message: expect.stringContaining('No luck today.'),
    });
  });

  test('gives a server its own environment and none of the agent’s secrets', async () => {
    const { result } = await call('probe-environment');
    expect((result as { text: string }).text).toMatch(/\bPROBE\b/);
    expect((result as { text: string }).text).not.toMatch(/AGENT_|TEST_/);
  });

  test('sends no cancellation after a call has ended', async () => {
    await call('probe-add-numbers', { a: 1, b: 1 });
    // The server has read a message about the first call before it answers the second one.
    await call('probe-add-numbers', { a: 1, b: 2 });
    const input = await readFile(join(agent.workspace, 'mcp-input-probe'), 'utf8');
    expect(input).toContain('tools/call');
    expect(input).not.toContain('notifications/cancelled');
  });

  test('needs approval only for tools that may write', async () => {
    gateway.answer((request) => {
      const results = toolResults(request);
      if (results.length === 0)
        return calls(
          { name: 'mcp_probe-add-numbers', input: { a: 20, b: 22 } },
          { name: 'mcp_probe-writes', input: {} },
        );
      return says(JSON.stringify(results.map(({ output }) => output.value)));
    });
    const answer = await agent.client.sessions.execute({ instructions: 'Add.' });
    const text = (answer as { text: string }).text;
    expect(text).toContain('42');
    expect(text).toMatch(/approval/i);
  });

  test('offers a tool that the server adds later', async () => {
    await call('probe-grow');
    await expect.poll(() => listActions(agent)).toContain('probe-later');
    expect(await call('probe-later')).toMatchObject({ result: { text: 'here' } });
  });

  test('restarts a server that has exited', async () => {
    await expect(call('probe-dies')).rejects.toMatchObject({ status: 502 });
    await expect
      .poll(
        () =>
          call('probe-add-numbers', { a: 1, b: 1 }).then(
            ({ result }) => result,
            () => null,
          ),
        { timeout: 60_000 },
      )
      .toEqual({ text: '2' });
  });
});

test('an agent ends its MCP servers with their children', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'townhall-mcp-'));
  const pluginConfig = join(folder, 'plugins.json');
  const servers = { probe: { command: process.execPath, args: [program] } };
  await writeFile(pluginConfig, JSON.stringify({ mcpServers: servers }));
  const gateway = await scriptedGateway();
  const agent = await startAgent({
    gatewayUrl: gateway.url,
    dataDir: join(folder, 'data'),
    settings: { pluginConfig, unsafeShell: true },
  });
  await expect.poll(() => listActions(agent)).toContain('probe-add-numbers');
  const pids = (await readFile(join(agent.workspace, 'mcp-pids'), 'utf8')).split(' ').map(Number);
  expect(await Promise.all(pids.map(isRunning))).toEqual([true, true]);
  await agent.close();
  expect(await Promise.all(pids.map(isRunning))).toEqual([false, false]);
  await gateway.close();
  await rm(folder, { recursive: true, force: true });
});

describe('MCP tools with colliding names', () => {
  let folder: string;
  let gateway: ScriptedGateway;
  let agent: TestAgent;
  const longName = 'a-tool-with-a-name-that-is-much-too-long-for-any-provider-of-models';
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'townhall-mcp-'));
    const config = join(folder, 'plugins.json');
    const server = (name: string, moreTools: string) => ({
      command: process.execPath,
      args: [program],
      env: { SERVER: name, MORE_TOOLS: moreTools },
    });
    await writeFile(
      config,
      JSON.stringify({
        mcpServers: {
          a: server('a', `b-c,Same_Name,same-name,${longName}-1,${longName}-2,名前,道具`),
          'a-b': server('a-b', 'c'),
        },
      }),
    );
    gateway = await scriptedGateway();
    agent = await startAgent({
      gatewayUrl: gateway.url,
      settings: { pluginConfig: config, unsafeShell: true },
    });
  });
  afterAll(async () => {
    await agent.close();
    await gateway.close();
    await rm(folder, { recursive: true, force: true });
  });

  const call = async (action: string) => (await callAction(agent, action)).result as { text: string };

  test('belong to the server with the longer name', async () => {
    await expect.poll(() => listActions(agent)).toEqual(expect.arrayContaining(['a-same-name', 'a-b-c']));
    expect(await call('a-b-c')).toEqual({ text: 'a-b: c' });
    expect(await call('a-same-name')).toEqual({ text: 'a: Same_Name' });
    const { availability } = await agent.client.plugins.checkAvailability({ plugin_name: 'mcp' });
    expect(availability).toMatchObject({
      available: true,
      reasons: [
        expect.stringContaining('"b-c" of the server "a" is left out'),
        expect.stringContaining('"same-name" of the server "a" is left out'),
      ],
    });
  });

  test('get a digest if characters of the name are lost', async () => {
    await expect.poll(() => listActions(agent)).toContain('a-same-name');
    const names = (await listActions(agent)).filter((name) => /-[0-9a-f]{8}$/.test(name));
    const texts = (await Promise.all(names.map(call))).map(({ text }) => text);
    expect(texts.sort()).toEqual([`a: ${longName}-1`, `a: ${longName}-2`, 'a: 名前', 'a: 道具'].sort());
    expect(Math.max(...names.map((name) => `mcp_${name}`.length))).toBeLessThanOrEqual(64);
  });
});
