// Work that would hold the event loop up (painting, encoding, speaking) in threads of its own: one a piece of work, so
// that giving it up is ending its thread, and no more at once than the machine bears. Users take turns, and each piece
// has a deadline, so one user's work delays that of others by a moment at most.
import { startThread } from '../../../../../kernel/assets.ts';
import { Problem } from '../../../../../kernel/problem.ts';
import type { MediaFile, GenerationContext, Size } from '../../../hub/media-model.ts';
import { createFairLimit } from './fair-limit.ts';

/** What the threads can do. */
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

/** What a thread says. */
export type RenderMessage = { kind: 'progress'; done: number } | { kind: 'made'; made: MediaFile };

export interface RenderPool {
  /** Rejects with the signal's reason as soon as it is aborted, and with a 422 when the work takes too long. */
  render(work: RenderTask, progress: GenerationContext): Promise<MediaFile>;
  /** Pieces of the owner that wait for a thread. */
  countWaiting(owner: string): number;
}

// Three times what the largest piece takes on one core of 2026 that does nothing else.
const deadlinesMs: Record<RenderTask['kind'], number> = {
  shapes: 60_000,
  storyboard: 120_000,
  flite: 60_000,
};

export interface RenderPoolOptions {
  maxThreads?: number;
  /** The longest run of one piece, in milliseconds. */
  deadlines?: Partial<Record<RenderTask['kind'], number>>;
}

/** Nothing is started before there is work. One owner gets all threads but one. */
export function createRenderPool({ maxThreads = 2, deadlines = {} }: RenderPoolOptions = {}): RenderPool {
  const turns = createFairLimit({ slots: maxThreads, ofOwner: Math.max(maxThreads - 1, 1) });
  return {
    async render(work, progress) {
      const leave = await turns.acquire(progress.owner, progress.signal);
      try {
        return await inThread(work, progress, deadlines[work.kind] ?? deadlinesMs[work.kind]);
      } finally {
        leave();
      }
    },
    countWaiting: (owner) => turns.countWaiting(owner),
  };
}

async function inThread(
  work: RenderTask,
  { signal, reportProgress: report }: GenerationContext,
  deadlineMs: number,
): Promise<MediaFile> {
  signal.throwIfAborted();
  // The encoder and the voice are other people's programs: they get neither our environment nor our output.
  const worker = startThread('src/gateway/ai/providers/local/renderer/render-thread', {
    workerData: work,
    env: {},
    execArgv: ['--disable-warning=ExperimentalWarning'],
    stdout: true,
    stderr: true,
    name: work.kind,
  });
  let timer: NodeJS.Timeout | undefined;
  try {
    return await new Promise<MediaFile>((resolve, reject) => {
      timer = setTimeout(() => reject(tooLong(deadlineMs)), deadlineMs);
      signal.addEventListener('abort', () => reject(signal.reason as Error), { once: true });
      worker.on('message', (message: RenderMessage) =>
        message.kind === 'progress' ? report(message.done) : resolve(message.made),
      );
      worker.on('error', reject);
      worker.on('exit', (code) =>
        reject(new Error(`The thread for ${work.kind} ended with ${code} before its work was done.`)),
      );
    });
  } finally {
    clearTimeout(timer);
    // Its slot is free when it has ended, and not before.
    await worker.terminate();
  }
}

function tooLong(deadlineMs: number): Problem {
  return new Problem(
    'impossible',
    'unsupported_by_model',
    `The model works ${deadlineMs / 1000} seconds at most on one request; ask for less.`,
  );
}
