// Counts tokens in a worker thread, since a tokenizer takes 100 ms for 256 KiB of text, and longer
// for hostile text. The thread starts with the first job and ends after an idle minute.
import type { Worker } from 'node:worker_threads';
import { startThread } from '../../../kernel/assets.ts';
import type { Encoding } from './encodings.ts';

/** A message to the thread, and its answer. */
export interface CountTokens {
  jobId: number;
  encoding: Encoding;
  texts: readonly string[];
}
export interface TokensCounted {
  jobId: number;
  tokens: number;
}

export interface TokenCounter {
  /**
   * The sum over the texts. Undefined when the queue is full, the deadline passes or
   * the thread fails; never rejects.
   */
  count(encoding: Encoding, texts: readonly string[]): Promise<number | undefined>;
  /** Ends the thread; jobs resolve to undefined. */
  close(): Promise<void>;
}

export interface TokenCounterOptions {
  /**
   * Deadline of one job, including its time in the queue and the start of the thread, which takes
   * 0.4 s on an idle core.
   */
  deadlineMs?: number;
  /** Running and queued jobs. */
  maxJobs?: number;
  /** Without a job the thread ends after this time. */
  idleMs?: number;
}

interface Job extends CountTokens {
  deadline: NodeJS.Timeout;
  resolve(tokens: number | undefined): void;
}

export function createTokenCounter(options: TokenCounterOptions = {}): TokenCounter {
  const { deadlineMs = 10_000, maxJobs = 8, idleMs = 60_000 } = options;
  /** The jobs in the order of their start; the thread works on the first. */
  const jobs: Job[] = [];
  let worker: Worker | undefined;
  let idleTimer: NodeJS.Timeout | undefined;
  let lastId = 0;

  function finish(jobId: number, tokens: number | undefined): void {
    const index = jobs.findIndex((job) => job.jobId === jobId);
    const [job] = index < 0 ? [] : jobs.splice(index, 1);
    if (job === undefined) return;
    clearTimeout(job.deadline);
    job.resolve(tokens);
    if (jobs.length === 0) idleTimer = setTimeout(() => void stop(), idleMs).unref();
    else if (index === 0) sendFirst();
  }

  // A thread within a job can only be terminated.
  function expire(jobId: number): void {
    if (jobs[0]?.jobId === jobId) void stop();
    finish(jobId, undefined);
  }

  function sendFirst(): void {
    const [firstJob] = jobs;
    if (firstJob === undefined) return;
    const { jobId, encoding, texts } = firstJob;
    (worker ??= start()).postMessage({ jobId, encoding, texts } satisfies CountTokens);
  }

  function start(): Worker {
    const thread = startTokenizer();
    thread.on('message', ({ jobId, tokens }: TokensCounted) => finish(jobId, tokens));
    // A missing package fails the jobs too: none can be counted, and each call keeps its byte
    // bound.
    const fail = (): void => {
      if (worker !== thread) return;
      worker = undefined;
      for (const { jobId } of jobs.slice()) finish(jobId, undefined);
    };
    thread.on('error', fail);
    thread.on('exit', fail);
    return thread;
  }

  async function stop(): Promise<void> {
    const stoppedWorker = worker;
    worker = undefined;
    await stoppedWorker?.terminate();
  }

  return {
    count(encoding, texts) {
      if (jobs.length >= maxJobs) return Promise.resolve(undefined);
      clearTimeout(idleTimer);
      const jobId = ++lastId;
      return new Promise((resolve) => {
        const deadline = setTimeout(() => expire(jobId), deadlineMs);
        if (jobs.push({ jobId, encoding, texts, deadline, resolve }) === 1) sendFirst();
      });
    },
    async close() {
      await stop();
      for (const { jobId } of jobs.slice()) finish(jobId, undefined);
      clearTimeout(idleTimer);
    },
  };
}

/** Starts the thread, which does not keep the process alive. */
function startTokenizer(): Worker {
  const thread = startThread('src/gateway/ai/metering/tokenizer-thread', {
    env: {},
    execArgv: ['--disable-warning=ExperimentalWarning'],
    resourceLimits: { maxOldGenerationSizeMb: 256 },
    name: 'tokenizer',
  });
  thread.unref();
  return thread;
}
