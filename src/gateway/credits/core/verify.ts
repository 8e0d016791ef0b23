// Consistency check of the ledger: balances against entries, holds and allotments, charges
// against holds and usage. It reads in chunks of 1,000 rows while calls continue, and
// names each inconsistent row.

export interface LedgerFault {
  fault: string;
  /**
   * The row: an account, a hold, an allotment, a usage record, or a transaction
   * by its kind and reference.
   */
  row: string;
  expected: string | null;
  found: string | null;
}

export interface LedgerVerdict {
  ok: boolean;
  transactions: number;
  accounts: number;
  keys: number;
  holds: number;
  /** The number of allotments, including those that ended within their retention. */
  allotments: number;
  journals: number;
  usage: number;
  /** The first 100. */
  faults: LedgerFault[];
}

const ledgerParts = ['txs', 'accounts', 'keys', 'holds', 'allotments', 'journals', 'usage'] as const;
export type LedgerPart = (typeof ledgerParts)[number];

const chunkSize = 1_000;
const maximumMismatches = 100;

/**
 * Reads one chunk of one part. Its last row carries the key of the next chunk, if
 * any, and the chunk's size in `expected`.
 */
export type ReadChunk = (
  part: LedgerPart,
  range: { after: string | null; size: number; days: number },
) => Promise<LedgerFault[]>;

export interface LedgerReader {
  /**
   * Runs the work on a connection of its own with a long statement timeout; on PostgreSQL all
   * chunks read from one REPEATABLE READ snapshot.
   */
  withVerification<T>(work: (readChunk: ReadChunk) => Promise<T>): Promise<T>;
}

/** `days` is the retention of holds and usage; older rows may be missing. */
export async function verifyLedger(
  store: LedgerReader,
  days: number,
  signal?: AbortSignal,
): Promise<LedgerVerdict> {
  const mismatches: LedgerFault[] = [];
  const counts: Record<LedgerPart, number> = {
    txs: 0,
    accounts: 0,
    keys: 0,
    holds: 0,
    allotments: 0,
    journals: 0,
    usage: 0,
  };
  await store.withVerification(async (readChunk) => {
    for (const part of ledgerParts) {
      let after: string | null = null;
      do {
        signal?.throwIfAborted();
        const rows: LedgerFault[] = await readChunk(part, { after, size: chunkSize, days });
        const countRow = rows.pop();
        mismatches.push(...rows.slice(0, maximumMismatches - mismatches.length));
        counts[part] += Number(countRow?.expected ?? 0);
        after = countRow?.row ?? null;
      } while (after !== null);
    }
  });
  const { txs: transactions, ...otherCounts } = counts;
  return { ok: mismatches.length === 0, transactions, ...otherCounts, faults: mismatches };
}
