// One piece of work within a transaction: whatever writes to the log is given it.
import type { Tx } from '../../../kernel/data/database.ts';
import type { StoredEvent } from '../events.ts';

/** What it appends is published once its transaction has committed. */
export interface Unit {
  tx: Tx;
  appended: StoredEvent[];
}
