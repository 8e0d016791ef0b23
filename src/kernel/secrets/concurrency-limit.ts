// How many passwords are checked at once. A check occupies a thread of the pool that files and name look-ups
// need too, so few run and few wait; whoever comes beyond that is sent away at once.

/** A place taken: wait for the turn, and leave in any case. */
export interface Place {
  turn(): Promise<void>;
  leave(): void;
}

export interface Turnstile {
  /** Null when all places are taken. */
  enter(): Place | null;
}

/** Two of four threads stay free for files and names; sixteen wait for about a second. */
export const defaultPlaces = { running: 2, waiting: 16 };

export function createTurnstile({ running, waiting }: { running: number; waiting: number }): Turnstile {
  let places = 0;
  let active = 0;
  const queue: (() => void)[] = [];

  function admit(): void {
    while (active < running) {
      const next = queue.shift();
      if (!next) return;
      active += 1;
      next();
    }
  }

  return {
    enter() {
      if (places >= running + waiting) return null;
      places += 1;
      let isActive = false;
      let hasLeft = false;
      return {
        turn: () =>
          new Promise<void>((resolve) => {
            queue.push(() => {
              isActive = true;
              resolve();
            });
            admit();
          }),
        leave() {
          if (hasLeft) return;
          hasLeft = true;
          places -= 1;
          if (isActive) active -= 1;
          admit();
        },
      };
    },
  };
}
