// Commits units of work and publishes their events, after the commit and in the order of the log.
import { createBatcher } from '../../../kernel/async.ts';
import type { Database } from '../../../kernel/data/database.ts';
import { Problem } from '../../../kernel/problem.ts';
import type { UnitOfWork } from './unit.ts';

export interface CommitPath {
  /** Runs work whose only write is its last statement, which needs no transaction around it. */
  runStatement<T>(work: (unit: UnitOfWork) => Promise<T>): Promise<T>;
  /** Throws the Problem that the work returns. The work may run twice. */
  transact<T>(work: (unit: UnitOfWork) => Promise<T | Problem>): Promise<T>;
}

// A larger batch would delay the first of its callers.
export const maxBatchItems = 64;

export function createCommitPath(
  database: Pick<Database, 'sql' | 'tx' | 'engine'>,
  onCommit: (unit: UnitOfWork) => void,
): CommitPath {
  async function runTransaction(
    works: readonly ((unit: UnitOfWork) => Promise<unknown>)[],
  ): Promise<unknown[]> {
    const outcomes = await database.tx(async (tx) => {
      const units: { unit: UnitOfWork; result: unknown }[] = [];
      for (const work of works) {
        const unit: UnitOfWork = { tx, appended: [], applied: [] };
        units.push({ unit, result: await work(unit) });
      }
      return units;
    });
    for (const { unit } of outcomes) onCommit(unit);
    return outcomes.map(({ result }) => result);
  }

  // Group commit. A commit of the embedded engine is one sync of the disk, so
  // concurrent work shares it. A PostgreSQL server groups commits itself.
  const runGrouped = createBatcher(runTransaction, { maxItems: maxBatchItems, hadNoEffect: isRolledBack });

  return {
    async runStatement(work) {
      const unit: UnitOfWork = { tx: database.sql, appended: [], applied: [] };
      const result = await work(unit);
      onCommit(unit);
      return result;
    },
    async transact<T>(work: (unit: UnitOfWork) => Promise<T | Problem>) {
      const result =
        database.engine === 'postgres' ? (await runTransaction([work]))[0] : await runGrouped(work);
      if (result instanceof Problem) throw result;
      return result as T;
    },
  };
}

/**
 * Whether a failed write certainly had no effect. After a lost connection it may be
 * committed, and must not be repeated: the log would have the events twice.
 */
export function isRolledBack(error: unknown): boolean {
  if (!(error instanceof Problem) || error.kind !== 'unavailable') return true;
  const code = error.cause instanceof Error && 'code' in error.cause ? String(error.cause.code) : '';
  // SQLSTATE classes in which PostgreSQL has rolled back: invalid transaction state,
  // serialization failure and deadlock, insufficient resources, object not in
  // prerequisite state (lock timeout), and query_canceled (statement timeout).
  return /^(?:25|40|53|55|57014)/.test(code);
}
