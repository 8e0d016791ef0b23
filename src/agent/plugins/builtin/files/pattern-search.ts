// Searches texts with a regular expression in a thread of its own, within one deadline for all texts.
import type { Worker } from 'node:worker_threads';
import { startThread } from '../../../../kernel/assets.ts';
import { refusal } from '../../../refusal.ts';

export interface PatternSource {
  source: string;
  ignoreCase: boolean;
}

/** A message to the thread, which answers with at most `limit` lines. */
export interface ToPatternThread {
  text: string;
  limit: number;
}

export type FromPatternThread = { line: number; text: string }[];

export interface PatternSearch {
  /** The lines of a text that match, counted from 1. Throws a Problem when the pattern takes too long. */
  find(text: string, limit: number): Promise<FromPatternThread>;
  close(): Promise<void>;
}

const maxMs = 2_000;
const maxHeapMb = 64;

/** Throws a Problem for a pattern that is not a regular expression. */
export function openPatternSearch(pattern: PatternSource): PatternSearch {
  try {
    RegExp(pattern.source);
  } catch (cause) {
    throw refusal(`\`pattern\` is not a regular expression: ${(cause as Error).message}.`, cause);
  }
  const worker = startThread('src/agent/plugins/builtin/files/pattern-thread', {
    execArgv: [],
    workerData: pattern,
    resourceLimits: { maxOldGenerationSizeMb: maxHeapMb },
  });
  worker.unref();
  // Without a listener, an error of the thread between two texts would crash the agent. The search of
  // the next text then gets no answer and times out.
  worker.on('error', () => {});
  let remainingMs = maxMs;
  return {
    async find(text, limit) {
      const startedMs = performance.now();
      const lines = await findInThread(worker, { text, limit }, remainingMs);
      remainingMs -= performance.now() - startedMs;
      return lines;
    },
    async close() {
      await worker.terminate();
    },
  };
}

async function findInThread(
  worker: Worker,
  message: ToPatternThread,
  timeoutMs: number,
): Promise<FromPatternThread> {
  const answer = Promise.withResolvers<FromPatternThread>();
  const fail = (reason: string, cause?: unknown) =>
    answer.reject(refusal(`The search ${reason}. Use a simpler pattern, or name a smaller folder.`, cause));
  const onError = (cause: unknown) => fail(`needs more than ${maxHeapMb} MiB or failed`, cause);
  const timer = setTimeout(() => fail(`took longer than ${maxMs / 1000} seconds`), Math.max(0, timeoutMs));
  worker.once('message', answer.resolve);
  worker.once('error', onError);
  try {
    worker.postMessage(message);
    return await answer.promise;
  } finally {
    clearTimeout(timer);
    worker.off('message', answer.resolve);
    worker.off('error', onError);
  }
}
