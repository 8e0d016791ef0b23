// Agents in processes of their own, for tests that kill, pause or stop one.
import { type ChildProcess, spawn } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import type { DatabasePlace } from '../support/databases.ts';
import { kill } from '../support/processes.ts';

const program = join(import.meta.dirname, '../support/agent-process.ts');

export interface AgentProcess {
  child: ChildProcess;
  url: string;
  token: string;
}

/** Starts `test/support/agent-process.ts` on the database; `env` has further settings. */
export function launchAgent({
  place,
  gatewayUrl,
  dataDir,
  env = {},
}: {
  place: DatabasePlace;
  gatewayUrl: string;
  dataDir: string;
  env?: Record<string, string>;
}): Promise<AgentProcess> {
  return launch([program], {
    dataDir,
    env: {
      TEST_DATABASE: JSON.stringify(place.options),
      AGENT_PORT: '0',
      AGENT_DATA_DIR: dataDir,
      AGENT_GATEWAY_URL: gatewayUrl,
      ...env,
    },
  });
}

/** Runs a program with Node.js and resolves once it logs that its agent listens. */
export async function launch(
  args: readonly string[],
  { dataDir, env = {}, cwd }: { dataDir: string; env?: Record<string, string>; cwd?: string },
): Promise<AgentProcess> {
  const child = spawn(process.execPath, args, {
    env: { PATH: process.env['PATH'], AGENT_GATEWAY_TOKEN: 'th_usr_test', ...env },
    stdio: ['ignore', 'pipe', 'inherit'],
    ...(cwd === undefined ? {} : { cwd }),
  });
  try {
    for await (const line of createInterface({ input: child.stdout })) {
      const { msg, url } = JSON.parse(line) as { msg: string; url: string };
      if (msg !== 'listening') continue;
      const token = (await readFile(join(dataDir, 'agent.token'), 'utf8')).trim();
      // Discard the rest of the log: with a full pipe, the agent would block.
      child.stdout.resume();
      return { child, url, token };
    }
  } catch (error) {
    await kill(child);
    throw error;
  }
  throw new Error('The agent ended before it listened.');
}
