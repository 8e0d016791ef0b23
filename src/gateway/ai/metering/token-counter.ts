// Counts tokens in a worker thread, since a tokenizer takes 100 ms for 256 KiB of ordinary text, and longer
// for text that is made to be slow. The thread starts with the first job and exits after an idle minute.
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
  /** Terminates the thread; running and queued jobs resolve to undefined. */
  close(): Promise<void>;
}

export interface TokenCounterOptions {
  /**
   * Deadline of one job, including its time in the queue and the start of the thread, which takes
   * 0.4 s on an idle core.
   */
  deadlineMs?: number;
  /** Maximum number of running and queued jobs. */
  maxJobs?: number;
  /** The thread exits after this time without a job. */
  idleMs?: number;
}

interface Job extends CountTokens {
  deadline: NodeJS.Timeout;
  resolve(tokens: number | undefined): void;
}

/** The queue and its thread. */
interface CounterState {
  readonly settings: Required<TokenCounterOptions>;
  /** The jobs in the order of their start; the thread works on the first. */
  readonly jobs: Job[];
  worker: Worker | undefined;
  idleTimer: NodeJS.Timeout | undefined;
  lastId: number;
}

const defaultSettings = { deadlineMs: 10_000, maxJobs: 8, idleMs: 60_000 };

export function createTokenCounter(options: TokenCounterOptions = {}): TokenCounter {
  const settings = { ...defaultSettings, ...options };
  const counter: CounterState = { settings, jobs: [], worker: undefined, idleTimer: undefined, lastId: 0 };
  return {
    count(encoding, texts) {
      if (counter.jobs.length >= settings.maxJobs) return Promise.resolve(undefined);
      return new Promise((resolve) => addJob(counter, { encoding, texts, resolve }));
    },
    async close() {
      failAll(counter);
      clearTimeout(counter.idleTimer);
      await stopWorker(counter);
    },
  };
}

function addJob(counter: CounterState, job: Pick<Job, 'encoding' | 'texts' | 'resolve'>): void {
  const { settings, jobs } = counter;
  clearTimeout(counter.idleTimer);
  const jobId = ++counter.lastId;
  const deadline = setTimeout(() => expire(counter, jobId), settings.deadlineMs);
  jobs.push({ ...job, jobId, deadline });
  if (jobs.length === 1) sendFirst(counter);
}

function sendFirst(counter: CounterState): void {
  const [firstJob] = counter.jobs;
  if (firstJob === undefined) return;
  const { jobId, encoding, texts } = firstJob;
  counter.worker ??= startWorker(counter);
  counter.worker.postMessage({ jobId, encoding, texts } satisfies CountTokens);
}

function finish(counter: CounterState, jobId: number, tokens: number | undefined): void {
  const { settings, jobs } = counter;
  const index = jobs.findIndex((job) => job.jobId === jobId);
  const [job] = index < 0 ? [] : jobs.splice(index, 1);
  if (job === undefined) return;
  clearTimeout(job.deadline);
  job.resolve(tokens);
  if (jobs.length === 0)
    counter.idleTimer = setTimeout(() => void stopWorker(counter), settings.idleMs).unref();
  else if (index === 0) sendFirst(counter);
}

// A thread that is busy with a job can only be terminated; the next job starts a new one.
function expire(counter: CounterState, jobId: number): void {
  if (counter.jobs[0]?.jobId === jobId) void stopWorker(counter);
  finish(counter, jobId, undefined);
}

// Empties the queue first: `finish` would send the next job to a new thread.
function failAll(counter: CounterState): void {
  for (const { deadline, resolve } of counter.jobs.splice(0)) {
    clearTimeout(deadline);
    resolve(undefined);
  }
}

function startWorker(counter: CounterState): Worker {
  const worker = startTokenizer();
  worker.on('message', ({ jobId, tokens }: TokensCounted) => finish(counter, jobId, tokens));
  // A thread that cannot load the tokenizer package fails here too; each call then keeps its byte bound.
  const fail = (): void => {
    if (counter.worker !== worker) return;
    counter.worker = undefined;
    failAll(counter);
  };
  worker.on('error', fail);
  worker.on('exit', fail);
  return worker;
}

async function stopWorker(counter: CounterState): Promise<void> {
  const { worker } = counter;
  counter.worker = undefined;
  await worker?.terminate();
}

/** The thread does not keep the process alive. */
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
