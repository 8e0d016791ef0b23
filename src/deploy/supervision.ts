// The supervisor as those see it who deploy: started when it is not there, and asked over its control socket.
import { spawn } from 'node:child_process';
import { mkdir, open, readFile } from 'node:fs/promises';
import type { Clock } from '../kernel/clock.ts';
import { callControl } from '../kernel/control.ts';
import { Problem } from '../kernel/problem.ts';
import type { CityFolder, CityState } from './city-folder.ts';
import type { Runner } from './supervisor/gateway-process.ts';
import type { CityRecord } from './supervisor/messages.ts';
import type { SupervisorStatus, TrialRequest, TrialResult } from './supervisor/supervisor.ts';

export interface SupervisorClient {
  /** Null when none runs. */
  status(): Promise<SupervisorStatus | null>;
  trial(request: TrialRequest): Promise<TrialResult>;
  switch(): Promise<void>;
  record(city: CityRecord): Promise<void>;
  confirm(state: CityState): Promise<void>;
  abandon(): Promise<void>;
  /** Whether there was one to stop. Resolves when what it served has finished. */
  stop(): Promise<boolean>;
}

export function supervisorClient(folder: CityFolder): SupervisorClient {
  const call = (name: string, input: unknown = null): Promise<unknown> =>
    callControl(folder.socket, name, input);
  return {
    async status() {
      try {
        return (await call('status')) as SupervisorStatus;
      } catch (error) {
        if (error instanceof Problem && error.code === 'not_ready') return null;
        throw error;
      }
    },
    trial: async (request) => (await call('trial', request)) as TrialResult,
    switch: async () => void (await call('switch')),
    record: async (city) => void (await call('record', city)),
    confirm: async (state) => void (await call('confirm', state)),
    abandon: async () => void (await call('abandon')),
    async stop() {
      try {
        await call('stop');
        return true;
      } catch (error) {
        if (error instanceof Problem && error.code === 'not_ready') return false;
        throw error;
      }
    },
  };
}

export interface StartOptions {
  folder: CityFolder;
  runner: Runner;
  env: Readonly<Record<string, string>>;
  clock: Clock;
  /** Whether it waits for a deployment, or serves again what served before. */
  isForDeployment: boolean;
}

const startMs = 15_000;
const lookEveryMs = 50;

/** Starts a supervisor that outlives this process, and resolves when it can be asked. */
export async function startDetached({
  folder,
  runner,
  env,
  clock,
  isForDeployment,
}: StartOptions): Promise<void> {
  await mkdir(folder.root, { recursive: true, mode: 0o700 });
  const log = await open(folder.logFile, 'a', 0o600);
  const before = (await log.stat()).size;
  try {
    const child = spawn(
      runner.command,
      [
        ...runner.arguments,
        'city',
        'run',
        '--project',
        folder.project,
        '--detached',
        ...(isForDeployment ? ['--wait'] : []),
      ],
      {
        cwd: folder.root,
        env: { ...env },
        detached: true,
        stdio: ['ignore', log.fd, log.fd],
      },
    );
    let ended: string | null = null;
    child.once('error', (error) => (ended = error.message));
    child.once('exit', (code, signal) => (ended = `it ended with ${signal ?? `code ${code}`}`));
    child.unref();
    const asked = supervisorClient(folder);
    const lateMs = clock.monotonicMs() + startMs;
    while ((await asked.status()) === null) {
      if (ended !== null || clock.monotonicMs() > lateMs) {
        const said = (await readFile(folder.logFile, 'utf8')).slice(before).trim();
        throw new Error(
          `The supervisor did not start: ${said === '' ? (ended ?? `no answer within ${startMs / 1_000} seconds`) : said}`,
        );
      }
      await clock.sleep(lookEveryMs);
    }
  } finally {
    await log.close();
  }
}
