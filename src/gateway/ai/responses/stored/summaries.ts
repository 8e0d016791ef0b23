// Seals the summary of a compacted conversation for its owner. The sealed text is the encrypted content of
// a compaction item, so the client keeps it and the gateway stores nothing.
import { SealError, type Vault } from '../../../../kernel/secrets/vault.ts';
import type { Owner } from '../../calls/owner.ts';

const prefix = 'townhall.c1.';

export interface Summaries {
  seal(owner: Owner, summary: string): string;
  /** Undefined when the text was modified, belongs to another owner, or its master key is not configured. */
  open(owner: Owner, sealed: string): string | undefined;
}

/** Whether the text looks like a sealed summary; only `open` finds out whether the gateway has sealed it. */
export function isSealedSummary(text: unknown): text is string {
  return typeof text === 'string' && text.startsWith(prefix);
}

export function createSummaries(vault: Pick<Vault, 'primaryKid' | 'seal' | 'open'>): Summaries {
  return {
    seal: (owner, summary) => prefix + vault.seal(vault.primaryKid, contextOf(owner), summary),
    open(owner, sealed) {
      if (!isSealedSummary(sealed)) return undefined;
      try {
        return vault.open(contextOf(owner), sealed.slice(prefix.length));
      } catch (error) {
        if (error instanceof SealError) return undefined;
        throw error;
      }
    },
  };
}

function contextOf({ kind, id }: Owner) {
  return { table: 'compaction', key: `${kind}/${id}`, version: 1 };
}
