// Work that would hold the event loop up (painting, encoding, speaking) in threads of its own: one a piece of work, so
// that giving it up is ending its thread, and no more at once than the machine bears. Users take turns, and each piece
// has a deadline, so one user's work delays that of others by a moment at most.
import { startThread } from '../../../../../kernel/assets.ts';
import { Problem } from '../../../../../kernel/problem.ts';
import type { Made, Progress, Size } from '../../../hub/media-model.ts';
import { createTurns } from './fair-limit.ts';

/** What the threads can do. */
export type Work =
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
export type FromWorkshop = { kind: 'progress'; done: number } | { kind: 'made'; made: Made };

export interface Workshop {
  /** Rejects with the signal's reason as soon as it is aborted, and with a 422 when the work takes too long. */
  make(work: Work, progress: Progress): Promise<Made>;
  /** Pieces of the owner that wait for a thread. */
  waiting(owner: string): number;
}

// Three times what the largest piece takes on one core of 2026 that does nothing else.
const deadlinesMs: Record<Work['kind'], number> = { shapes: 60_000, storyboard: 120_000, flite: 60_000 };

export interface WorkshopOptions {
  maxThreads?: number;
  /** The longest run of one piece, in milliseconds. */
  deadlines?: Partial<Record<Work['kind'], number>>;
}

/** Nothing is started before there is work. One owner gets all threads but one. */
export function createWorkshop({ maxThreads = 2, deadlines = {} }: WorkshopOptions = {}): Workshop {
  const turns = createTurns({ slots: maxThreads, ofOwner: Math.max(maxThreads - 1, 1) });
  return {
    async make(work, progress) {
      const leave = await turns.enter(progress.owner, progress.signal);
      try {
        return await inThread(work, progress, deadlines[work.kind] ?? deadlinesMs[work.kind]);
      } finally {
        leave();
      }
    },
    waiting: (owner) => turns.waiting(owner),
  };
}

async function inThread(work: Work, { signal, report }: Progress, deadlineMs: number): Promise<Made> {
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
    return await new Promise<Made>((resolve, reject) => {
      timer = setTimeout(() => reject(tooLong(deadlineMs)), deadlineMs);
      signal.addEventListener('abort', () => reject(signal.reason as Error), { once: true });
      worker.on('message', (message: FromWorkshop) =>
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
