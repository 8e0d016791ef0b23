// Child processes of an agent that is killed end in any process group, whether or not they handle
// SIGTERM.
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readdir, readFile, readlink, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { makeDatabase, type DatabasePlace } from '../../support/databases.ts';
import { isRunning } from '../../support/processes.ts';
import { scriptedGateway, type ScriptedGateway } from '../../support/scripted-gateway.ts';

describe('child processes of an agent', { timeout: 60_000 }, () => {
  let gateway: ScriptedGateway;
  let place: DatabasePlace;
  let folder: string;
  let child: ChildProcess | undefined;
  beforeAll(async () => {
    gateway = await scriptedGateway();
    place = await makeDatabase();
    folder = await mkdtemp(join(tmpdir(), 'townhall-reaper-'));
  });
  afterAll(async () => {
    child?.kill('SIGKILL');
    await gateway.close();
    await place.remove();
    await rm(folder, { recursive: true, force: true });
  });

  async function launch(): Promise<{ process: ChildProcess; url: string; token: string }> {
    const config = join(folder, 'plugins.json');
    const mcp = join(import.meta.dirname, '../../support/mcp-server.ts');
    await writeFile(
      config,
      JSON.stringify({
        services: {
          // Ignores SIGTERM and starts a child in another process group.
          deaf: {
            command: [
              '/bin/sh',
              '-c',
              `trap '' TERM; setsid sh -c 'echo $$ > stray; exec sleep 300' & echo $$ > deaf; while :; do sleep 1; done`,
            ],
          },
        },
        mcpServers: { probe: { command: process.execPath, args: [mcp] } },
      }),
    );
    const agentProcess = spawn(
      process.execPath,
      [join(import.meta.dirname, '../../support/agent-process.ts')],
      {
        env: {
          PATH: process.env['PATH'],
          TEST_DATABASE: JSON.stringify(place.options),
          AGENT_PORT: '0',
          AGENT_UNSAFE_SHELL: '1',
          AGENT_DATA_DIR: folder,
          AGENT_PLUGIN_CONFIG: config,
          AGENT_GATEWAY_URL: gateway.url,
          AGENT_GATEWAY_TOKEN: 'th_usr_test',
        },
        stdio: ['ignore', 'pipe', 'inherit'],
      },
    );
    child = agentProcess;
    for await (const line of createInterface({ input: agentProcess.stdout })) {
      const { msg, url } = JSON.parse(line) as { msg: string; url: string };
      if (msg === 'listening')
        return {
          process: agentProcess,
          url,
          token: (await readFile(join(folder, 'agent.token'), 'utf8')).trim(),
        };
    }
    throw new Error('The agent ended before it listened.');
  }

  const pidsIn = async (name: string) =>
    (await readFile(join(folder, 'workspace', name), 'utf8').catch(() => ''))
      .split(/\s+/)
      .filter(Boolean)
      .map(Number);

  test('end when the agent is killed', async () => {
    const agent = await launch();
    // A shell command that is running when the agent is killed.
    const call = fetch(`${agent.url}/api/plugins/action`, {
      method: 'POST',
      headers: { authorization: `Bearer ${agent.token}`, 'content-type': 'application/json' },
      body: JSON.stringify({
        plugin_name: 'shell',
        action_name: 'run',
        payload: {
          command:
            "env -i setsid /bin/sh -c 'echo $$ > bare; exec sleep 300' & echo $$ > command; exec sleep 300",
        },
      }),
    }).catch(() => 'cut off');
    const allPids = async () =>
      (await Promise.all(['deaf', 'stray', 'mcp-pids', 'command', 'bare'].map(pidsIn))).flat();
    await expect.poll(async () => (await allPids()).length, { timeout: 60_000 }).toBe(6);
    const pids = await allPids();
    expect(await Promise.all(pids.map(isRunning))).toEqual(Array(6).fill(true));

    const exit = once(agent.process, 'exit');
    agent.process.kill('SIGKILL');
    await exit;
    expect(await call).toBe('cut off');
    await expect.poll(() => Promise.all(pids.map(isRunning))).toEqual(Array(6).fill(false));
    await expect.poll(findRunning).toEqual([]);
  });

  // All processes whose working directory is this folder.
  async function findRunning(): Promise<string[]> {
    const names = (await readdir('/proc')).filter((name) => /^\d+$/.test(name));
    const places = await Promise.all(names.map((name) => readlink(`/proc/${name}/cwd`).catch(() => '')));
    return places.filter((path) => path.startsWith(folder));
  }
});
