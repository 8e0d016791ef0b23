// Calls of this process that keep running when their client disconnects: background responses, and streams
// with an Idempotency-Key. Each run has a log of its events, which clients can read while it runs and for
// five minutes after it ends.
import type { Log } from '../../../../kernel/log.ts';
import { Problem } from '../../../../kernel/problem.ts';
import { createEventLog, type EventLog } from './event-log.ts';

export interface Run<T = unknown> {
  readonly runId: string;
  readonly log: EventLog<T>;
  /** Set by the starter of the run for later readers, such as the status and headers of the reply. */
  head?: unknown;
  /** The signal of the call. */
  readonly signal: AbortSignal;
  /**
   * Aborts the call. With a Problem the request to the provider ends at once; without one the gateway may
   * first wait for the provider's usage, as for a client that disconnects.
   */
  abort(reason?: Problem): void;
  /** Resolves when the work has ended; never rejects. */
  readonly completion: Promise<void>;
}

export interface RunOptions {
  runId: string;
  owner: string;
  /** Aborts the call this long after its last reader has left; undefined for a call that needs no reader. */
  graceMs?: number;
}

export interface ResponseRuns {
  /**
   * Starts the work, which appends to the log of its run. If the work throws a Problem, the readers of the
   * log get it; any other error only ends the log. Throws a 429 when the owner has too many runs.
   */
  start<T>(options: RunOptions, work: (run: Run<T>) => Promise<void>): Run<T>;
  find(runId: string): Run | undefined;
  /** Aborts all calls and waits for their ends. */
  close(): Promise<void>;
}

const maxPerOwner = 50;
const maxLogBytes = 4 * 2 ** 20;
const maxTotalBytes = 128 * 2 ** 20;
/** How long the events stay readable after the call has ended. */
const keepMs = 5 * 60_000;

interface Entry {
  run: Run;
  owner: string;
  isRunning: boolean;
  timer: NodeJS.Timeout | undefined;
}

export interface ResponseRunsOptions {
  log: Log;
  /** Runs each work, which may outlive its request; for tracing and metrics. */
  runDetached?: ((work: () => Promise<void>) => Promise<void>) | undefined;
}

export function createResponseRuns(options: ResponseRunsOptions): ResponseRuns {
  return new MemoryRuns(options);
}

class MemoryRuns implements ResponseRuns {
  readonly #operatorLog: Log;
  readonly #runDetached: (work: () => Promise<void>) => Promise<void>;
  readonly #entries = new Map<string, Entry>();
  #totalBytes = 0;
  #isClosing = false;

  constructor({ log, runDetached = (work) => work() }: ResponseRunsOptions) {
    this.#operatorLog = log;
    this.#runDetached = runDetached;
  }

  start<T>({ runId, owner, graceMs }: RunOptions, work: (run: Run<T>) => Promise<void>): Run<T> {
    if (this.#isClosing) throw stoppingProblem();
    if (this.#countRunning(owner) >= maxPerOwner) throw tooManyRuns();
    const controller = new AbortController();
    const { promise: completion, resolve } = Promise.withResolvers<void>();
    const run: Run<T> = {
      runId,
      log: createEventLog<T>({
        maxBytes: maxLogBytes,
        onReaders: (readers) => this.#watchReaders(runId, graceMs, readers),
        onBytes: (change) => this.#countBytes(change),
      }),
      signal: controller.signal,
      abort: (reason) => controller.abort(reason),
      completion,
    };
    this.#entries.set(runId, { run: run as Run, owner, isRunning: true, timer: undefined });
    void this.#runDetached(() => this.#execute(run, work)).finally(() => {
      this.#end(runId);
      resolve();
    });
    return run;
  }

  find(runId: string): Run | undefined {
    return this.#entries.get(runId)?.run;
  }

  async close(): Promise<void> {
    this.#isClosing = true;
    const runs = [...this.#entries.values()].map(({ run }) => run);
    for (const run of runs) run.abort(stoppingProblem());
    await Promise.all(runs.map((run) => run.completion));
    for (const runId of this.#entries.keys()) this.#forget(runId);
  }

  /** Ends the log with the work. Never rejects. */
  async #execute<T>(run: Run<T>, work: (run: Run<T>) => Promise<void>): Promise<void> {
    try {
      await work(run);
      run.log.end();
    } catch (error) {
      const { runId } = run;
      if (!(error instanceof Problem)) this.#operatorLog.error({ err: error, runId }, 'a run failed');
      run.log.end(error instanceof Problem ? error : undefined);
    }
  }

  #countRunning(owner: string): number {
    return [...this.#entries.values()].filter((entry) => entry.isRunning && entry.owner === owner).length;
  }

  #countBytes(change: number): void {
    this.#totalBytes += change;
    if (change < 0) return;
    // Over the total limit, drop the oldest logs. Their calls continue; their readers get a 409.
    for (const { run } of this.#entries.values()) {
      if (this.#totalBytes <= maxTotalBytes) return;
      run.log.drop();
    }
  }

  #watchReaders(runId: string, graceMs: number | undefined, readers: number): void {
    const entry = this.#entries.get(runId);
    if (entry === undefined || !entry.isRunning || graceMs === undefined) return;
    clearTimeout(entry.timer);
    if (readers === 0) entry.timer = setTimeout(() => entry.run.abort(), graceMs);
  }

  /** Keeps the log for later readers, unless the process is stopping. */
  #end(runId: string): void {
    const entry = this.#entries.get(runId);
    if (entry === undefined) return;
    entry.isRunning = false;
    clearTimeout(entry.timer);
    entry.timer = setTimeout(() => this.#forget(runId), keepMs);
    entry.timer.unref();
    if (this.#isClosing) this.#forget(runId);
  }

  #forget(runId: string): void {
    const entry = this.#entries.get(runId);
    clearTimeout(entry?.timer);
    this.#entries.delete(runId);
    entry?.run.log.drop();
  }
}

function stoppingProblem(): Problem {
  return new Problem('unavailable', 'draining', 'The server is stopping; try again in a moment.', {
    headers: { 'retry-after': '1' },
  });
}

function tooManyRuns(): Problem {
  return new Problem(
    'rate_limited',
    'rate_limited',
    `You already have ${maxPerOwner} calls running in the background; wait until one ends, or cancel one.`,
    { headers: { 'retry-after': '1' } },
  );
}
