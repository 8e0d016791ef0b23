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

/** Reads one chunk of one part. `next` is the key of the next chunk; null after the last one. */
export type ReadChunk = (
  part: LedgerPart,
  range: { after: string | null; size: number; days: number },
) => Promise<{ faults: LedgerFault[]; rowCount: number; next: string | null }>;

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
        const chunk: Awaited<ReturnType<ReadChunk>> = await readChunk(part, { after, size: chunkSize, days });
        mismatches.push(...chunk.faults.slice(0, maximumMismatches - mismatches.length));
        counts[part] += chunk.rowCount;
        after = chunk.next;
      } while (after !== null);
    }
  });
  const { txs: transactions, ...otherCounts } = counts;
  return { ok: mismatches.length === 0, transactions, ...otherCounts, faults: mismatches };
}
