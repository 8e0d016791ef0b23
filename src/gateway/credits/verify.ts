// Holds the ledger against itself: balances against entries, holds against charges, charges against usage. It goes
// through everything in chunks and beside all traffic; what does not fit is named by its row.

export interface LedgerFault {
  fault: string;
  /** The row: an account, a hold, a usage record, or a transaction by its kind and reference. */
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
  usage: number;
  faults: LedgerFault[];
}

const ledgerParts = ['txs', 'accounts', 'keys', 'holds', 'usage'] as const;
export type LedgerPart = (typeof ledgerParts)[number];

const chunkSize = 1_000;
const maximumMismatches = 100;

/** One chunk of one part. The last row has the key to go on from, if any, and the chunk's size in `expected`. */
export type ReadChunk = (
  part: LedgerPart,
  place: { after: string | null; size: number; days: number },
) => Promise<LedgerFault[]>;

export interface LedgerReader {
  /** Gives the work a connection whose statements may take long. */
  withVerification<T>(work: (readChunk: ReadChunk) => Promise<T>): Promise<T>;
}

/** `days` is how long holds and usage are kept: what is older need not be there any more. */
export async function verifyLedger(
  store: LedgerReader,
  days: number,
  signal?: AbortSignal,
): Promise<LedgerVerdict> {
  const mismatches: LedgerFault[] = [];
  const counts: Record<LedgerPart, number> = { txs: 0, accounts: 0, keys: 0, holds: 0, usage: 0 };
  await store.withVerification(async (readChunk) => {
    for (const part of ledgerParts) {
      for (let after: string | null = null, isFirst = true; isFirst || after !== null; isFirst = false) {
        signal?.throwIfAborted();
        const rows: LedgerFault[] = await readChunk(part, { after, size: chunkSize, days });
        const last = rows.pop();
        mismatches.push(...rows.slice(0, maximumMismatches - mismatches.length));
        counts[part] += Number(last?.expected ?? 0);
        after = last?.row ?? null;
      }
    }
  });
  const { txs: transactions, ...others } = counts;
  return { ok: mismatches.length === 0, transactions, ...others, faults: mismatches };
}
