// When an agent is killed, its child processes end as well, in any process group and whether or not they
// handle SIGTERM.
import { mkdtemp, readdir, readFile, readlink, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createAgentClient } from '@townhall/agent';
import { makeDatabase, type DatabasePlace } from '../../support/databases.ts';
import { isRunning, kill } from '../../support/processes.ts';
import { scriptedGateway, type ScriptedGateway } from '../../support/scripted-gateway.ts';
import { launchAgent, type AgentProcess } from '../launch.ts';

// Ignores SIGTERM and starts a child in another process group.
const stubbornService = [
  `trap '' TERM`,
  `setsid sh -c 'echo $$ > stray; exec sleep 300' & echo $$ > stubborn`,
  `while :; do sleep 1; done`,
].join('; ');
const shellCommand = [
  `env -i setsid /bin/sh -c 'echo $$ > bare; exec sleep 300' & echo $$ > command`,
  `exec sleep 300`,
].join('; ');
// The files in which the processes write their ids; the MCP server and its child share one.
const pidFiles = ['stubborn', 'stray', 'mcp-pids', 'command', 'bare'];
const processCount = 6;

describe('child processes of an agent', () => {
  let gateway: ScriptedGateway;
  let place: DatabasePlace;
  let folder: string;
  let agent: AgentProcess | undefined;
  beforeAll(async () => {
    gateway = await scriptedGateway();
    place = await makeDatabase();
    folder = await mkdtemp(join(tmpdir(), 'townhall-reaper-'));
  });
  afterAll(async () => {
    if (agent !== undefined) await kill(agent.child);
    await gateway.close();
    await place.remove();
    await rm(folder, { recursive: true, force: true });
  });

  async function start(): Promise<AgentProcess> {
    const config = join(folder, 'plugins.json');
    const mcp = join(import.meta.dirname, '../../support/mcp-server.ts');
    await writeFile(
      config,
      JSON.stringify({
        services: { stubborn: { command: ['/bin/sh', '-c', stubbornService] } },
        mcpServers: { probe: { command: process.execPath, args: [mcp] } },
      }),
    );
    return launchAgent({
      place,
      gatewayUrl: gateway.url,
      dataDir: folder,
      env: { AGENT_UNSAFE_SHELL: '1', AGENT_PLUGIN_CONFIG: config },
    });
  }

  const pidsIn = async (name: string) =>
    (await readFile(join(folder, 'workspace', name), 'utf8').catch(() => ''))
      .split(/\s+/)
      .filter(Boolean)
      .map(Number);

  const listPids = async () => (await Promise.all(pidFiles.map(pidsIn))).flat();

  test('end when the agent is killed', async () => {
    agent = await start();
    const call = createAgentClient({ baseUrl: agent.url, token: agent.token })
      .plugins.callAction({ plugin_name: 'shell', action_name: 'run', payload: { command: shellCommand } })
      .catch(() => 'disconnected');
    await expect.poll(async () => (await listPids()).length).toBe(processCount);
    const pids = await listPids();
    expect(await Promise.all(pids.map(isRunning))).toEqual(Array(processCount).fill(true));

    await kill(agent.child);
    expect(await call).toBe('disconnected');
    await expect.poll(() => Promise.all(pids.map(isRunning))).toEqual(Array(processCount).fill(false));
    await expect.poll(findRunning).toEqual([]);
  });

  /** The working directories of all processes that run below the folder. */
  async function findRunning(): Promise<string[]> {
    const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name));
    const directories = await Promise.all(pids.map((pid) => readlink(`/proc/${pid}/cwd`).catch(() => '')));
    return directories.filter((path) => path.startsWith(folder));
  }
});
