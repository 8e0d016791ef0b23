// Work that no caller waits for, such as noting when a token was last used. What fails is logged and not
// repeated here; the owner can wait for what is under way before it closes what the work needs.
import type { Log } from './log.ts';

export interface Background {
  /** Starts the work unless work of that name is under way already. Never throws. */
  run(name: string, work: () => Promise<unknown>): void;
  /** Resolves once nothing is under way. */
  settled(): Promise<void>;
}

export function createBackground(log: Log): Background {
  const underWay = new Map<string, Promise<void>>();

  async function attempt(name: string, work: () => Promise<unknown>): Promise<void> {
    try {
      await work();
    } catch (error) {
      log.warn({ err: error }, 'work in the background failed');
    } finally {
      underWay.delete(name);
    }
  }

  return {
    run(name, work) {
      // Begun in a later turn, so that the entry is there before the work can end.
      if (!underWay.has(name))
        underWay.set(
          name,
          Promise.resolve().then(() => attempt(name, work)),
        );
    },
    async settled() {
      while (underWay.size > 0) await Promise.all(underWay.values());
    },
  };
}
