// Starts the supervisor for the deploy commands when none is running, and controls it over its socket.
import { spawn, type ChildProcess } from 'node:child_process';
import { mkdir, open, readFile } from 'node:fs/promises';
import type { Clock } from '../kernel/clock.ts';
import { callControl } from '../kernel/control.ts';
import { Problem } from '../kernel/problem.ts';
import type { CityFolder, CityState } from './supervisor/city-folder.ts';
import type { Runner } from './supervisor/gateway-process.ts';
import type { CityRecord } from './supervisor/messages.ts';
import type { SupervisorStatus } from './supervisor/supervisor.ts';
import type { TrialRequest, TrialResult } from './supervisor/transitions.ts';

export interface SupervisorClient {
  /** Null when no supervisor runs. */
  status(): Promise<SupervisorStatus | null>;
  trial(request: TrialRequest): Promise<TrialResult>;
  switch(): Promise<void>;
  record(city: CityRecord): Promise<void>;
  confirm(state: CityState): Promise<void>;
  abandon(): Promise<void>;
  /** False when no supervisor runs. Resolves when its gateways have finished their requests. */
  stop(): Promise<boolean>;
}

export function supervisorClient(folder: CityFolder): SupervisorClient {
  const call = (name: string, input: unknown = null): Promise<unknown> =>
    callControl(folder.socket, name, input);
  return {
    status: async () => (await orNull(call('status'))) as SupervisorStatus | null,
    trial: async (request) => (await call('trial', request)) as TrialResult,
    switch: async () => void (await call('switch')),
    record: async (city) => void (await call('record', city)),
    confirm: async (state) => void (await call('confirm', state)),
    abandon: async () => void (await call('abandon')),
    stop: async () => (await orNull(call('stop').then(() => true))) ?? false,
  };
}

/** Null when no supervisor runs. */
async function orNull<T>(response: Promise<T>): Promise<T | null> {
  try {
    return await response;
  } catch (error) {
    if (error instanceof Problem && error.code === 'not_ready') return null;
    throw error;
  }
}

export interface StartOptions {
  folder: CityFolder;
  runner: Runner;
  env: Readonly<Record<string, string>>;
  clock: Clock;
  /** Whether the supervisor waits for a deployment instead of starting the last version again. */
  isForDeployment: boolean;
}

const startTimeoutMs = 15_000;
const pollIntervalMs = 50;

/**
 * Starts a supervisor that outlives this process; resolves when it answers. A supervisor that does not answer
 * in time is stopped.
 */
export async function startDetached(options: StartOptions): Promise<void> {
  const { folder, clock } = options;
  await mkdir(folder.root, { recursive: true, mode: 0o700 });
  const log = await open(folder.logFile, 'a', 0o600);
  // In bytes: the log of earlier runs may contain any text.
  const logStart = (await log.stat()).size;
  try {
    const child = spawnDetached(options, log.fd);
    let failure: string | null = null;
    child.once('error', (error) => (failure = error.message));
    child.once('exit', (code, signal) => (failure = `it exited with ${signal ?? `code ${code}`}`));
    const supervisor = supervisorClient(folder);
    const deadlineMs = clock.monotonicMs() + startTimeoutMs;
    while ((await supervisor.status()) === null) {
      if (failure !== null || clock.monotonicMs() > deadlineMs) {
        // Before the signal, which makes the child exit.
        const reason = failure ?? `no answer within ${startTimeoutMs / 1_000} seconds`;
        child.kill();
        const output = (await readFile(folder.logFile)).subarray(logStart).toString('utf8').trim();
        throw new Error(`The supervisor did not start: ${output === '' ? reason : output}`);
      }
      await clock.sleep(pollIntervalMs);
    }
  } finally {
    await log.close();
  }
}

function spawnDetached({ folder, runner, env, isForDeployment }: StartOptions, logFd: number): ChildProcess {
  const args = [...runner.arguments, 'city', 'run', '--project', folder.project, '--detached'];
  if (isForDeployment) args.push('--wait');
  const child = spawn(runner.command, args, {
    cwd: folder.root,
    env: { ...env },
    detached: true,
    stdio: ['ignore', logFd, logFd],
  });
  child.unref();
  return child;
}
