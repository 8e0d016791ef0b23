// Runs rendering, encoding and speech synthesis in worker threads, since they would block the event loop.
// Each task gets its own thread, which is terminated when the task is aborted. Tasks are scheduled
// round-robin between owners and have a deadline, so one owner delays another by at most one task.
import { startThread } from '../../../../../kernel/assets.ts';
import { Problem } from '../../../../../kernel/problem.ts';
import type { MediaFile, GenerationContext, Size } from '../../../hub/media-model.ts';
import { createFairLimit } from './fair-limit.ts';

export type RenderTask =
  | { kind: 'shapes'; prompt: string; size: Size; seed: string }
  | {
      kind: 'storyboard';
      prompt: string;
      size: Size;
      seed: string;
      durationSeconds: number;
      framesPerSecond: number;
    }
  | { kind: 'flite'; text: string; voice: string; speed: number; folder: string };

/** A message of a thread to the pool. */
export type RenderMessage = { kind: 'progress'; share: number } | { kind: 'finished'; file: MediaFile };

export interface RenderPool {
  /**
   * Rejects with the signal's reason as soon as it is aborted, and with a 422 when
   * the task exceeds its deadline.
   */
  render(task: RenderTask, context: GenerationContext): Promise<MediaFile>;
  /** Tasks of the owner that wait for a thread. */
  countWaiting(owner: string): number;
}

// Three times the duration of the largest task on one otherwise idle core of 2026.
const defaultDeadlinesMs: Record<RenderTask['kind'], number> = {
  shapes: 60_000,
  storyboard: 120_000,
  flite: 60_000,
};

export interface RenderPoolOptions {
  maxThreads?: number;
  deadlinesMs?: Partial<Record<RenderTask['kind'], number>>;
}

/** Starts no thread before the first task. One owner gets at most all threads but one. */
export function createRenderPool({ maxThreads = 2, deadlinesMs = {} }: RenderPoolOptions = {}): RenderPool {
  const limit = createFairLimit({ slots: maxThreads, slotsPerOwner: Math.max(maxThreads - 1, 1) });
  return {
    async render(task, context) {
      const releaseSlot = await limit.acquire(context.owner, context.signal);
      try {
        return await renderInThread(task, context, deadlinesMs[task.kind] ?? defaultDeadlinesMs[task.kind]);
      } finally {
        releaseSlot();
      }
    },
    countWaiting: (owner) => limit.countWaiting(owner),
  };
}

async function renderInThread(
  task: RenderTask,
  { signal, reportProgress }: GenerationContext,
  deadlineMs: number,
): Promise<MediaFile> {
  signal.throwIfAborted();
  // The encoder and the synthesizer are third-party programs: they get no
  // environment variables, and their output is discarded.
  const worker = startThread('src/gateway/ai/providers/local/renderer/render-thread', {
    workerData: task,
    env: {},
    execArgv: ['--disable-warning=ExperimentalWarning'],
    stdout: true,
    stderr: true,
    name: task.kind,
  });
  let timer: NodeJS.Timeout | undefined;
  try {
    return await new Promise<MediaFile>((resolve, reject) => {
      timer = setTimeout(() => reject(deadlineExceeded(deadlineMs)), deadlineMs);
      signal.addEventListener('abort', () => reject(signal.reason as Error), { once: true });
      worker.on('message', (message: RenderMessage) =>
        message.kind === 'progress' ? reportProgress(message.share) : resolve(message.file),
      );
      worker.on('error', reject);
      worker.on('exit', (code) =>
        reject(new Error(`The thread for ${task.kind} exited with ${code} before it sent a file.`)),
      );
    });
  } finally {
    clearTimeout(timer);
    // Wait until the thread has exited before the slot is released, or there could be more threads than
    // slots.
    await worker.terminate();
  }
}

function deadlineExceeded(deadlineMs: number): Problem {
  return new Problem(
    'impossible',
    'unsupported_by_model',
    `The model did not finish within ${deadlineMs / 1000} seconds, the limit for one request; request a ` +
      'smaller or shorter result.',
  );
}
