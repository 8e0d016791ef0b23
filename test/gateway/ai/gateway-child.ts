// A gateway in a child process, for tests that kill it.
import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { testMasterKey } from '../../support/gateway.ts';

export interface GatewayChild {
  url: string;
  /** A new token of the local user. */
  token: string;
  /** Sends the signal to the process. Resolves to its exit code, or null after SIGKILL. */
  end(signal: 'SIGKILL' | 'SIGTERM'): Promise<number | null>;
}

const script = join(import.meta.dirname, '../../support/gateway-process.ts');

/** Starts a gateway with the settings, which name its database. Resolves when it listens. */
export async function startGatewayChild(settings: Record<string, string>): Promise<GatewayChild> {
  const child = spawn(process.execPath, [script], {
    env: {
      HOST: '127.0.0.1',
      PORT: '0',
      LOG_LEVEL: 'warn',
      TOWNHALL_MASTER_KEY: testMasterKey,
      PATH: process.env['PATH'] ?? '',
      ...settings,
    },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const exitCode = new Promise<number | null>((resolve) => child.once('exit', (code) => resolve(code)));
  const end = (signal: 'SIGKILL' | 'SIGTERM') => {
    child.kill(signal);
    return exitCode;
  };
  for await (const line of createInterface({ input: child.stdout })) {
    const { msg, url, userToken } = JSON.parse(line) as { msg?: string; url: string; userToken: string };
    if (msg === 'listening') return { url, token: userToken, end };
  }
  throw new Error(`The process exited with ${await exitCode} before it listened.`);
}
