// An agent in a process of its own, with its defaults and a scripted model, for long measurements.
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { createAgentClient, type AgentClient } from '@townhall/agent';

export const root = join(import.meta.dirname, '..', '..');

export interface ScriptedAgent {
  client: AgentClient;
  pid: number;
  /** Stops the agent first and then its model. */
  stop(): Promise<void>;
}

/** The agent has its data in `folder`. Throws when a process exits before it is ready. */
export async function startScriptedAgent(folder: string): Promise<ScriptedAgent> {
  const model = launch(folder, [join(root, 'test/bench/agent-model.ts')]);
  let agent: Program | undefined;
  try {
    const port = await waitForMatch(model, /^(\d+)/);
    const program = launch(folder, [
      join(root, 'src/cli/main.ts'),
      'agent',
      '--port',
      '0',
      '--data-dir',
      folder,
      '--gateway-url',
      `http://127.0.0.1:${port}`,
    ]);
    agent = program;
    const url = await waitForMatch(program, /"url":"(http:[^"]+)"/);
    const token = readFileSync(join(folder, 'agent.token'), 'utf8').trim();
    return {
      client: createAgentClient({ baseUrl: url, token }),
      pid: program.pid as number,
      async stop() {
        await end(program);
        await end(model);
      },
    };
  } catch (error) {
    if (agent !== undefined) await end(agent);
    await end(model);
    throw error;
  }
}

type Program = ReturnType<typeof launch>;

function launch(folder: string, argumentList: readonly string[]) {
  return spawn(process.execPath, argumentList, {
    cwd: folder,
    env: {
      PATH: process.env['PATH'],
      HOME: folder,
      AGENT_GATEWAY_TOKEN: 'th_usr_bench',
      LOG_LEVEL: 'info',
    },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
}

/** The first match in the output of a program. */
async function waitForMatch(program: Program, pattern: RegExp): Promise<string> {
  for await (const line of createInterface({ input: program.stdout })) {
    const match = pattern.exec(line)?.[1];
    if (match === undefined) continue;
    program.stdout.resume();
    return match;
  }
  throw new Error(`${program.spawnargs[1]} exited before it was ready.`);
}

async function end(program: ChildProcess): Promise<void> {
  if (program.exitCode !== null || program.signalCode !== null) return;
  const exit = once(program, 'exit');
  program.kill('SIGTERM');
  await exit;
}
