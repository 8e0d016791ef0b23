// What many callers want at one time is done together. While one batch is under way the next gathers, so that the work of
// a statement is shared by as many as come, and one who comes alone waits for nobody.
import { Problem } from '../../../kernel/problem.ts';

export interface BatcherOptions<Item> {
  /** More than this in one batch would let the first of them wait too long. */
  largest: number;
  /** Whether it may not be with others. */
  isAlone?(item: Item): boolean;
  /** Two of one key come one after the other. */
  keyOf?(item: Item): string;
}

/**
 * Whether nothing of the work was kept for sure. When only the word of it was lost it must not be done again: the log
 * would have it twice.
 */
export function isRolledBack(error: unknown): boolean {
  if (!(error instanceof Problem) || error.kind !== 'unavailable') return true;
  const code = error.cause instanceof Error && 'code' in error.cause ? String(error.cause.code) : '';
  // A statement or a lock that took too long, a deadlock, too little of something: PostgreSQL has said no.
  return /^(?:25|40|53|55|57014)/.test(code);
}

interface Waiting<Item, Result> {
  item: Item;
  resolve(result: Result): void;
  reject(error: unknown): void;
}

/** Results in the order of the items. Work that fails for several is done again for each of them, so it may be run twice. */
export function createBatcher<Item, Result>(
  work: (items: readonly Item[]) => Promise<readonly Result[]>,
  { largest, isAlone = () => false, keyOf }: BatcherOptions<Item>,
): (item: Item) => Promise<Result> {
  const waiting: Waiting<Item, Result>[] = [];
  let isBusy = false;

  async function run(batch: readonly Waiting<Item, Result>[]): Promise<void> {
    try {
      const results = await work(batch.map(({ item }) => item));
      for (const [index, { resolve }] of batch.entries()) resolve(results[index] as Result);
    } catch (error) {
      if (batch.length === 1 || !isRolledBack(error)) return batch.forEach(({ reject }) => reject(error));
      // One of them may have spoilt it for all.
      await Promise.all(batch.map((one) => run([one])));
    }
  }

  function next(): Waiting<Item, Result>[] {
    const keys = new Set<string>();
    let many = 0;
    for (const { item } of waiting.slice(0, largest)) {
      const key = keyOf?.(item);
      if ((many > 0 && isAlone(item)) || (key !== undefined && keys.has(key))) break;
      if (key !== undefined) keys.add(key);
      many += 1;
      if (isAlone(item)) break;
    }
    return waiting.splice(0, many);
  }

  async function pump(): Promise<void> {
    while (waiting.length > 0) await run(next());
    isBusy = false;
  }

  return (item) =>
    new Promise((resolve, reject) => {
      waiting.push({ item, resolve, reject });
      if (isBusy) return;
      isBusy = true;
      // Not yet: what has come over other connections in this turn of the event loop goes along.
      setImmediate(() => void pump());
    });
}
