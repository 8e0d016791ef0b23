// Work that would hold the event loop up (painting, encoding, speaking) in threads of its own: one a piece of work, so
// that giving it up is ending its thread, and no more at once than the machine bears.
import { startThread } from '../../../kernel/assets.ts';
import type { Made, Progress, Size } from './model.ts';

/** What the threads can do. */
export type Work =
  | { kind: 'shapes'; prompt: string; size: Size; seed: string }
  | { kind: 'storyboard'; prompt: string; size: Size; seed: string; durationSeconds: number; framesPerSecond: number }
  | { kind: 'flite'; text: string; voice: string; speed: number };

/** What a thread says. */
export type FromWorkshop = { kind: 'progress'; done: number } | { kind: 'made'; made: Made };

export interface Workshop {
  /** Rejects with the signal's reason as soon as it is aborted. */
  make(work: Work, progress: Progress): Promise<Made>;
}

/** Nothing is started before there is work. */
export function createWorkshop({ maxThreads = 2 }: { maxThreads?: number } = {}): Workshop {
  let running = 0;
  const waiting: (() => void)[] = [];

  async function turn(signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    if (running < maxThreads) {
      running += 1;
      return;
    }
    await new Promise<void>((resolve, reject) => {
      const admit = () => {
        signal.removeEventListener('abort', leave);
        resolve();
      };
      const leave = () => {
        waiting.splice(waiting.indexOf(admit), 1);
        reject(signal.reason as Error);
      };
      signal.addEventListener('abort', leave, { once: true });
      waiting.push(admit);
    });
  }

  return {
    async make(work, progress) {
      await turn(progress.signal);
      try {
        return await inThread(work, progress);
      } finally {
        // The place goes on to the next without being free in between.
        const next = waiting.shift();
        if (next) next();
        else running -= 1;
      }
    },
  };
}

async function inThread(work: Work, { signal, report }: Progress): Promise<Made> {
  signal.throwIfAborted();
  // The encoder and the voice are other people's programs: they get neither our environment nor our output.
  const worker = startThread('src/gateway/ai/media/workshop-thread', { workerData: work, env: {}, execArgv: ['--disable-warning=ExperimentalWarning'], stdout: true, stderr: true, name: work.kind });
  const stop = () => void worker.terminate();
  try {
    return await new Promise<Made>((resolve, reject) => {
      signal.addEventListener('abort', () => reject(signal.reason as Error), { once: true });
      worker.on('message', (message: FromWorkshop) => (message.kind === 'progress' ? report(message.done) : resolve(message.made)));
      worker.on('error', reject);
      worker.on('exit', (code) => reject(new Error(`The thread for ${work.kind} ended with ${code} before its work was done.`)));
    });
  } finally {
    stop();
  }
}
