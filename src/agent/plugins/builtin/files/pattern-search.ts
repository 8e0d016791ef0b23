// Searches texts by a regular expression in a thread of its own, with a deadline for all texts together.
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

/** Throws a Problem for a pattern that is no regular expression. */
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
  // An error between two texts is reported by the next one, whose answer does not come.
  worker.on('error', () => {});
  let leftMs = maxMs;
  return {
    async find(text, limit) {
      const startedMs = performance.now();
      const lines = await ask(worker, { text, limit }, leftMs);
      leftMs -= performance.now() - startedMs;
      return lines;
    },
    async close() {
      await worker.terminate();
    },
  };
}

async function ask(worker: Worker, message: ToPatternThread, ms: number): Promise<FromPatternThread> {
  const answer = Promise.withResolvers<FromPatternThread>();
  const fail = (reason: string, cause?: unknown) =>
    answer.reject(refusal(`The search ${reason}. Use a simpler pattern, or name a smaller folder.`, cause));
  const onError = (cause: unknown) => fail(`needs more than ${maxHeapMb} MiB or failed`, cause);
  const timer = setTimeout(() => fail(`took longer than ${maxMs / 1000} seconds`), Math.max(0, ms));
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
