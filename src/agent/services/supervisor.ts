// The lifecycle of one service: stopped, starting, running, stopping, and failed after its retries.
// A single driver moves the state towards the requested target, so that fifty concurrent callers
// share one start.
import { pause } from '../../kernel/async.ts';
import type { Clock } from '../../kernel/clock.ts';
import type { Log } from '../../kernel/log.ts';
import { Problem } from '../../kernel/problem.ts';
import type { ServiceDefinition } from '../service-definition.ts';
import { createRun, type RunLimits, type ServiceRun } from './run.ts';

export type ServiceState = 'stopped' | 'starting' | 'running' | 'stopping' | 'failed';
export type ServiceCommand = 'start' | 'stop' | 'restart';

export interface ServiceSnapshot {
  state: ServiceState;
  /** When the service entered this state. */
  since: string;
  /** Restarts since the agent started, after failures and on request. */
  restarts: number;
  lastError: string | null;
}

export interface ServiceSupervisor {
  snapshot(): ServiceSnapshot;
  /**
   * Resolves when the state is reached, after `waitMs` at the latest. Returns whether the command
   * changed anything.
   */
  control(command: ServiceCommand): Promise<{ changed: boolean }>;
  /** Aborted when the current run ends; null while the service does not run. */
  running(): AbortSignal | null;
  /** Stops the service permanently. */
  close(): Promise<void>;
}

export interface SupervisorLimits extends RunLimits {
  /** How long `control` waits. */
  waitMs: number;
  /** Attempts after the first one; then the service is `failed`. A requested start has all of them again. */
  retries: number;
  /** Pause before the first retry, doubled each time up to `longestBackOffMs`. */
  backOffMs: number;
  longestBackOffMs: number;
  /** A run of this length resets the count of failures. */
  stableMs: number;
}

export const supervisorLimits: SupervisorLimits = {
  startMs: 10_000,
  stopMs: 10_000,
  waitMs: 10_000,
  retries: 5,
  backOffMs: 250,
  longestBackOffMs: 30_000,
  stableMs: 60_000,
  healthMs: 10_000,
  healthMisses: 3,
};

type Phase =
  | { state: 'stopped' }
  /** `isBackingOff` is true between a failed attempt and the next one. */
  | { state: 'starting'; isBackingOff: boolean }
  | { state: 'running'; run: ServiceRun; startedMs: number }
  | { state: 'stopping' }
  | { state: 'failed' };

interface Supervision {
  readonly definition: ServiceDefinition;
  readonly limits: SupervisorLimits;
  readonly clock: Clock;
  readonly log: Log;
  phase: Phase;
  since: string;
  /** `restarted` is set only while the service runs; it becomes `running` when the end of that run begins. */
  target: 'running' | 'restarted' | 'stopped';
  /** Consecutive failures: failed starts, and runs that ended by themselves. */
  failures: number;
  restarts: number;
  lastError: string | null;
  /** Aborting it ends the driver's current wait; a new controller then replaces it. */
  interrupt: AbortController;
  /** Listeners that are called once, at the next change of the phase. */
  watchers: (() => void)[];
  /** The running driver; null while the target is reached. */
  driver: Promise<void> | null;
  isClosed: boolean;
}

export function createSupervisor(
  definition: ServiceDefinition,
  { limits, clock, log }: { limits: SupervisorLimits; clock: Clock; log: Log },
): ServiceSupervisor {
  const service: Supervision = {
    definition,
    limits,
    clock,
    log: log.child({ service: definition.name }),
    phase: { state: 'stopped' },
    since: clock.now().toISOString(),
    target: 'stopped',
    failures: 0,
    restarts: 0,
    lastError: null,
    interrupt: new AbortController(),
    watchers: [],
    driver: null,
    isClosed: false,
  };
  return {
    snapshot: () => ({
      state: service.phase.state,
      since: service.since,
      restarts: service.restarts,
      lastError: service.lastError,
    }),
    running: () => (service.phase.state === 'running' ? service.phase.run.signal : null),
    async control(command) {
      if (service.isClosed)
        throw new Problem('unavailable', 'draining', 'The agent is stopping.', {
          headers: { 'retry-after': '1' },
        });
      return command === 'stop' ? requestStop(service) : requestStart(service, command);
    },
    async close() {
      service.isClosed = true;
      service.target = 'stopped';
      if (service.phase.state !== 'stopped') drive(service);
      while (service.driver !== null) await service.driver;
    },
  };
}

async function requestStop(service: Supervision): Promise<{ changed: boolean }> {
  const hasChanged = service.target !== 'stopped' || service.phase.state !== 'stopped';
  service.target = 'stopped';
  if (service.phase.state !== 'stopped') drive(service);
  await waitUntil(service, () => service.phase.state === 'stopped' || service.target !== 'stopped');
  return { changed: hasChanged };
}

async function requestStart(
  service: Supervision,
  command: 'start' | 'restart',
): Promise<{ changed: boolean }> {
  const { state } = service.phase;
  const hasChanged = command === 'restart' || service.target === 'stopped' || state === 'failed';
  // A start that is in progress also serves a restart.
  if (command === 'restart' && state === 'running') service.target = 'restarted';
  else if (service.target === 'stopped') service.target = 'running';
  if (state === 'failed') {
    service.failures = 0;
    enter(service, { state: 'stopped' });
  }
  if (hasChanged || state !== 'running') drive(service);
  await waitUntil(
    service,
    () =>
      service.target === 'stopped' ||
      service.phase.state === 'failed' ||
      (service.phase.state === 'running' && service.target === 'running'),
  );
  return { changed: hasChanged };
}

/** Starts the driver, or ends its current wait so that it sees the new target. */
function drive(service: Supervision): void {
  // An attempt to start that is in progress also serves this request; every other wait is ended.
  const { phase, target } = service;
  const isStarting = phase.state === 'starting' && !phase.isBackingOff && target === 'running';
  if (!isStarting) {
    service.interrupt.abort();
    service.interrupt = new AbortController();
  }
  service.driver ??= reachTarget(service).finally(() => {
    service.driver = null;
    notify(service);
    // A command may have arrived between the driver's last check and its end.
    if (!isSettled(service)) drive(service);
  });
}

/** The driver: one transition after the other until the target is reached. */
async function reachTarget(service: Supervision): Promise<void> {
  while (!isSettled(service)) {
    const { phase, target } = service;
    if (target === 'stopped') await stopService(service);
    else if (phase.state !== 'running') await startService(service);
    else if (target === 'restarted') await restartService(service, phase.run);
    else await watchService(service, phase);
  }
}

// A running service is never settled: the driver watches it.
function isSettled({ target, phase }: Supervision): boolean {
  return phase.state === (target === 'stopped' ? 'stopped' : 'failed');
}

async function startService(service: Supervision): Promise<void> {
  enter(service, { state: 'starting', isBackingOff: false });
  const run = createRun(service.definition, service);
  const { signal } = service.interrupt;
  const reason = await run.start(signal);
  if (reason === null)
    return enter(service, { state: 'running', run, startedMs: service.clock.monotonicMs() });
  // A stop ended this attempt, which is no failure, even if another start has followed the stop.
  if (signal.aborted) return endRun(service, run);
  if (service.target === 'running') service.lastError = reason;
  await endRun(service, run);
  if (service.target === 'running' && countFailure(service)) await backOff(service);
}

async function watchService(
  service: Supervision,
  { run, startedMs }: { run: ServiceRun; startedMs: number },
): Promise<void> {
  const reason = await run.watch(service.interrupt.signal);
  if (reason === null || service.target !== 'running') return;
  service.lastError = reason;
  service.log.warn({ reason }, 'a service has ended by itself');
  if (service.clock.monotonicMs() - startedMs >= service.limits.stableMs) service.failures = 0;
  await endRun(service, run);
  // A stop may have arrived while the run was ending.
  if (service.target !== 'running' || !countFailure(service)) return;
  service.restarts += 1;
  await backOff(service);
}

async function restartService(service: Supervision, run: ServiceRun): Promise<void> {
  service.target = 'running';
  await endRun(service, run);
  service.restarts += 1;
  service.failures = 0;
}

async function stopService(service: Supervision): Promise<void> {
  if (service.phase.state === 'running') await endRun(service, service.phase.run);
  service.failures = 0;
  enter(service, { state: 'stopped' });
}

// Between a failed start and its retry the service counts as starting.
async function endRun(service: Supervision, run: ServiceRun): Promise<void> {
  if (service.phase.state === 'running' || service.target === 'stopped')
    enter(service, { state: 'stopping' });
  await run.stop();
}

/** Counts a failure. Returns whether another attempt follows; otherwise the service is `failed`. */
function countFailure(service: Supervision): boolean {
  service.failures += 1;
  const isRetried = service.failures <= service.limits.retries;
  enter(service, isRetried ? { state: 'starting', isBackingOff: true } : { state: 'failed' });
  return isRetried;
}

async function backOff({ failures, limits, clock, interrupt }: Supervision): Promise<void> {
  const ms = Math.min(limits.backOffMs * 2 ** (failures - 1), limits.longestBackOffMs);
  await pause(ms, { clock, signal: interrupt.signal });
}

function enter(service: Supervision, phase: Phase): void {
  const isNew = phase.state !== service.phase.state;
  service.phase = phase;
  if (!isNew) return;
  service.since = service.clock.now().toISOString();
  service.log.info({ state: phase.state }, 'a service has changed its state');
  notify(service);
}

function notify(service: Supervision): void {
  for (const watcher of service.watchers.splice(0)) watcher();
}

async function waitUntil(service: Supervision, isReached: () => boolean): Promise<void> {
  const timer = new AbortController();
  let isLate = false;
  service.clock.sleep(service.limits.waitMs, timer.signal).then(
    () => {
      isLate = true;
      notify(service);
    },
    () => {},
  );
  while (!isReached() && !isLate)
    await new Promise<void>((resolve) => {
      service.watchers.push(resolve);
    });
  timer.abort();
}
