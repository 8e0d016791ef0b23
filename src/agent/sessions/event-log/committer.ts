// Group commit. On the embedded engine a commit is a sync of the disk and there is one session, so what many sessions
// want to write at one time goes into one transaction; a PostgreSQL server groups commits by itself. The rule it keeps:
// the events of a transaction are published when it has committed, in the order of the log, and never before.
import type { Database } from '../../../kernel/data/database.ts';
import { Problem } from '../../../kernel/problem.ts';
import type { StoredEvent } from './events.ts';
import { createBatcher, isRolledBack } from './batches.ts';
import { appendAll, type Append } from './store.ts';
import type { Moved, Unit } from './unit.ts';

export type { Unit };

export interface Committer {
  /**
   * Resolves once the work is durable. The work may be run twice, so it does nothing but write; what it refuses it
   * returns as a Problem, before it has written anything, and that is thrown here.
   */
  commit<T>(work: (unit: Unit) => Promise<T | Problem>): Promise<T>;
  /** The same for work that writes with one statement at its end, which needs no transaction around it. */
  write<T>(work: (unit: Unit) => Promise<T>): Promise<T>;
  /** An append and nothing else, in one statement with those of other sessions: its seq, or null when its fence was closed. */
  append(one: Append): Promise<number | null>;
}

interface Waiting {
  work(unit: Unit): Promise<unknown>;
  resolve(value: unknown): void;
  reject(error: unknown): void;
}

// More than this in one transaction would let the first of them wait too long.
const largestGroup = 64;

export function createCommitter(
  database: Pick<Database, 'sql' | 'tx' | 'engine'>,
  publish: (events: readonly StoredEvent[], moved: readonly Moved[]) => void,
): Committer {
  const waiting: Waiting[] = [];
  let isBusy = false;

  async function runGroup(group: Waiting[]): Promise<void> {
    let results: { unit: Unit; value: unknown }[];
    try {
      results = await database.tx(async (tx) => {
        const done: { unit: Unit; value: unknown }[] = [];
        for (const { work } of group) {
          const unit: Unit = { tx, appended: [], moved: [] };
          done.push({ unit, value: await work(unit) });
        }
        return done;
      });
    } catch (error) {
      if (group.length === 1 || !isRolledBack(error)) return group.forEach(({ reject }) => reject(error));
      // One of them spoilt it for all, so each has its own.
      for (const one of group) await runGroup([one]);
      return;
    }
    for (const [index, { unit, value }] of results.entries()) {
      publish(unit.appended, unit.moved);
      const one = group[index] as Waiting;
      if (value instanceof Problem) one.reject(value);
      else one.resolve(value);
    }
  }

  async function pump(): Promise<void> {
    isBusy = true;
    while (waiting.length > 0) {
      const group = waiting.splice(0, largestGroup);
      await runGroup(group);
    }
    isBusy = false;
  }

  async function write<T>(work: (unit: Unit) => Promise<T>): Promise<T> {
    const unit: Unit = { tx: database.sql, appended: [], moved: [] };
    const value = await work(unit);
    publish(unit.appended, unit.moved);
    return value;
  }

  const append = createBatcher(
    async (all: readonly Append[]) => {
      const heads = await write((unit) => appendAll(unit, all));
      return all.map(({ sessionKey }) => heads.get(sessionKey) ?? null);
    },
    { largest: largestGroup, keyOf: ({ sessionKey }) => sessionKey },
  );

  return {
    append,
    write,
    commit<T>(work: (unit: Unit) => Promise<T | Problem>): Promise<T> {
      return new Promise<T>((resolve, reject) => {
        const one: Waiting = { work, resolve: resolve as (value: unknown) => void, reject };
        if (database.engine === 'postgres') {
          void runGroup([one]);
          return;
        }
        waiting.push(one);
        if (!isBusy) void pump();
      });
    },
  };
}
