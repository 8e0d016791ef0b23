// The lifecycle of one service: stopped, starting, running, stopping, and failed after its retries. The rule it keeps:
// there is one driver, which alone moves the state towards what was last asked for, so fifty callers at once are
// fifty who wait for one machine.
import type { Clock } from '../../kernel/clock.ts';
import type { Log } from '../../kernel/log.ts';
import { Problem } from '../../kernel/problem.ts';
import type { ServiceDefinition } from './definition.ts';

export type ServiceState = 'stopped' | 'starting' | 'running' | 'stopping' | 'failed';
export type ServiceCommand = 'start' | 'stop' | 'restart';

export interface ServiceSnapshot {
  state: ServiceState;
  /** When it came into this state. */
  since: string;
  /** How often it was started again, by itself or on demand, since the agent was. */
  restarts: number;
  lastError: string | null;
}

export interface ServiceMachine {
  snapshot(): ServiceSnapshot;
  /** Whether it changed anything; resolves when the state is reached, or with the state of then after `waitMs`. */
  control(command: ServiceCommand): Promise<{ changed: boolean }>;
  /** Aborted when the service leaves its present run; null while it does not run. */
  running(): AbortSignal | null;
  /** Ends it for good. */
  close(): Promise<void>;
}

export interface MachineLimits {
  /** Of one attempt to start, and of one stop. */
  startMs: number;
  stopMs: number;
  /** How long `control` waits. */
  waitMs: number;
  /** Attempts after the first one; then it has failed. */
  retries: number;
  /** Before the first retry, doubled each time up to `longestBackOffMs`. */
  backOffMs: number;
  longestBackOffMs: number;
  /** A run of this length makes up for failures before it. */
  stableMs: number;
  healthMs: number;
  healthMisses: number;
}

export const machineLimits: MachineLimits = {
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

export function createMachine(
  definition: ServiceDefinition,
  { limits, clock, log }: { limits: MachineLimits; clock: Clock; log: Log },
): ServiceMachine {
  let state: ServiceState = 'stopped';
  let since = clock.now().toISOString();
  let restarts = 0;
  let lastError: string | null = null;
  let wanted: 'running' | 'stopped' = 'stopped';
  // Asked for while a run is on: that run ends before the next one begins.
  let isRestartDue = false;
  let isClosed = false;
  let run: AbortController | null = null;
  let runFailure: string | null = null;
  // Ends whatever the driver waits for, because what is wanted has changed.
  let change = new AbortController();
  let driver: Promise<void> | null = null;
  let watchers: (() => void)[] = [];

  function move(next: ServiceState): void {
    if (next === state) return;
    state = next;
    since = clock.now().toISOString();
    log.info({ service: definition.name, state }, 'a service has changed its state');
    wake();
  }

  function wake(): void {
    const waiting = watchers;
    watchers = [];
    for (const watcher of waiting) watcher();
  }

  function interrupt(): void {
    change.abort();
    change = new AbortController();
  }

  function drive(): void {
    interrupt();
    driver ??= keepMoving().finally(() => {
      driver = null;
      wake();
      // What was asked for between its last look and its end.
      if (isUnsettled()) drive();
    });
  }

  const isUnsettled = () =>
    isRestartDue || (wanted === 'running' ? state !== 'running' && state !== 'failed' : state !== 'stopped');

  async function keepMoving(): Promise<void> {
    let failures = 0;
    while (isUnsettled() || (wanted === 'running' && state === 'running')) {
      if (wanted === 'stopped' || (isRestartDue && run !== null)) {
        const wasRestart = isRestartDue && wanted === 'running';
        isRestartDue = false;
        await end();
        if (wasRestart) restarts += 1;
        failures = 0;
        if (wanted === 'stopped') {
          move('stopped');
          return;
        }
        continue;
      }
      isRestartDue = false;
      if (run === null) {
        if (await begin()) {
          move('running');
        } else {
          await end();
          if (isAskedOtherwise()) continue;
          failures += 1;
          if (failures > limits.retries) {
            move('failed');
            return;
          }
          await pause(Math.min(limits.backOffMs * 2 ** (failures - 1), limits.longestBackOffMs));
          continue;
        }
      }
      const startedMs = clock.monotonicMs();
      await watchOver();
      if (runFailure !== null && !isAskedOtherwise()) {
        lastError = runFailure;
        if (clock.monotonicMs() - startedMs >= limits.stableMs) failures = 0;
        failures += 1;
        log.warn({ service: definition.name, reason: runFailure }, 'a service has ended by itself');
        await end();
        if (failures > limits.retries) {
          move('failed');
          return;
        }
        move('starting');
        restarts += 1;
        await pause(Math.min(limits.backOffMs * 2 ** (failures - 1), limits.longestBackOffMs));
      }
    }
  }

  const isAskedOtherwise = () => wanted === 'stopped' || isRestartDue;

  async function begin(): Promise<boolean> {
    move('starting');
    const mine = new AbortController();
    run = mine;
    runFailure = null;
    try {
      const started = definition.start({
        signal: mine.signal,
        log: log.child({ service: definition.name }),
        failed(reason) {
          if (run !== mine || mine.signal.aborted) return;
          runFailure = String(reason).toWellFormed().slice(0, 500);
          interrupt();
        },
      });
      await within(started, limits.startMs);
      if (runFailure === null) return true;
      lastError = runFailure;
    } catch (error) {
      if (isAskedOtherwise()) return false;
      lastError =
        runFailure !== null
          ? runFailure
          : error instanceof Late
            ? `It did not start within ${limits.startMs / 1000} seconds.`
            : error instanceof Problem
              ? error.message
              : 'It failed to start; the log says why.';
      log.warn({ service: definition.name, err: error }, 'a service did not start');
    }
    return false;
  }

  async function end(): Promise<void> {
    if (run === null) return;
    if (state === 'running' || wanted === 'stopped') move('stopping');
    run.abort();
    run = null;
    try {
      await raceDeadline(definition.stop(), limits.stopMs);
    } catch (error) {
      log.warn({ service: definition.name, err: error }, 'a service did not stop well');
    }
  }

  // Until it fails, is not healthy any more, or something else is wanted.
  async function watchOver(): Promise<void> {
    let misses = 0;
    while (!isAskedOtherwise() && runFailure === null) {
      await pause(definition.healthy ? limits.healthMs : 24 * 60 * 60 * 1000);
      if (isAskedOtherwise() || runFailure !== null || !definition.healthy) continue;
      const isHealthy = await raceDeadline(ask(definition.healthy), limits.healthMs).then(
        (answer: unknown) => answer === true,
        () => false,
      );
      misses = isHealthy ? 0 : misses + 1;
      if (misses >= limits.healthMisses) runFailure = 'It was not healthy any more.';
    }
  }

  // A throw at once is an answer as well.
  const ask = async (question: () => Promise<boolean>) => question();
  const pause = (ms: number) => clock.sleep(ms, change.signal).catch(() => {});

  // A start that is waited for ends with its deadline or when something else is asked for, whichever comes first.
  async function within(work: Promise<void>, ms: number): Promise<void> {
    const { signal } = change;
    const interrupted = new Promise<never>((_, reject) =>
      signal.addEventListener('abort', () => reject(new Error('Something else was asked for.')), {
        once: true,
      }),
    );
    interrupted.catch(() => {});
    await Promise.race([raceDeadline(work, ms), interrupted]);
  }

  async function raceDeadline<T>(work: Promise<T>, ms: number): Promise<T> {
    work.catch(() => {});
    const over = new AbortController();
    const late = clock.sleep(ms, over.signal).then(() => {
      throw new Late(`It took longer than ${ms} ms.`);
    });
    late.catch(() => {});
    try {
      return await Promise.race([work, late]);
    } finally {
      over.abort();
    }
  }

  async function settled(isReached: () => boolean): Promise<void> {
    const over = new AbortController();
    let isLate = false;
    clock.sleep(limits.waitMs, over.signal).then(
      () => {
        isLate = true;
        wake();
      },
      () => {},
    );
    while (!isReached() && !isLate) await new Promise<void>((resolve) => watchers.push(resolve));
    over.abort();
  }

  return {
    snapshot: () => ({ state, since, restarts, lastError }),
    running: () => (state === 'running' ? (run?.signal ?? null) : null),
    async control(command) {
      if (isClosed)
        throw new Problem('unavailable', 'draining', 'The agent is stopping.', {
          headers: { 'retry-after': '1' },
        });
      if (command === 'stop') {
        const changed = wanted === 'running' || state !== 'stopped';
        wanted = 'stopped';
        isRestartDue = false;
        if (state !== 'stopped') drive();
        await settled(() => state === 'stopped' || wanted === 'running');
        return { changed };
      }
      const changed = command === 'restart' || wanted === 'stopped' || state === 'failed';
      // A start that is not done yet is new enough for whoever asks for a restart.
      if (command === 'restart' && state === 'running') isRestartDue = true;
      wanted = 'running';
      // A failed service is begun anew.
      if (state === 'failed') move('stopped');
      if (changed || state !== 'running') drive();
      await settled(
        () => (state === 'running' && !isRestartDue) || state === 'failed' || wanted === 'stopped',
      );
      return { changed };
    },
    async close() {
      isClosed = true;
      wanted = 'stopped';
      isRestartDue = false;
      if (state !== 'stopped') drive();
      while (driver !== null) await driver;
    },
  };
}

class Late extends Error {}
