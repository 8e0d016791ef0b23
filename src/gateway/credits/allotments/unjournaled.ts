// The journal of `JOURNAL=off`: numbers lines and stores none. Charges are durable
// once they are in the database; running calls are not charged when the process dies.
import type { Journal } from '../journal/journal.ts';

export function refusingJournal(journalId: string): Journal {
  let lastSeq = 0;
  return {
    journalId,
    append: () => (lastSeq += 1),
    sync: () => Promise.reject(new Error('There is no journal; the charge waits for the database.')),
    markApplied() {},
    async *charges() {},
    health: 'ok',
    close: () => Promise.resolve(),
  };
}
