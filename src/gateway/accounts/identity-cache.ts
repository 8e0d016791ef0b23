// Caches the identity of each user token, so that repeated requests skip the digest and the database
// lookup. An entry is valid only while the database's change counter stays the same, which every replica
// polls twice a second, and never after the token's expiry.
import { createLruCache } from '../../kernel/cache.ts';
import type { Clock } from '../../kernel/clock.ts';
import type { Identity } from '../identity.ts';

export type UserIdentity = Extract<Identity, { kind: 'user' }>;

export interface IdentityRecord {
  identity: UserIdentity;
  /** Milliseconds until the token expires. */
  remainingMs: number;
}

export interface IdentityCache {
  /** The cached identity, or the result of `read`. Neither null nor an error of `read` is cached. */
  get(token: string, read: () => Promise<IdentityRecord | null>): Promise<UserIdentity | null>;
}

// `last_used_at` is written only when a token is read from the database. A longer maximum age would leave it
// more than a minute behind the last request.
const maxAgeMs = 60_000;
const maxEntries = 10_000;

interface CacheEntry {
  identity: UserIdentity;
  generation: number;
  expiresAtMs: number;
}

export function createIdentityCache({
  generation,
  clock,
}: {
  /** The current change counter; null while it is unknown. Nothing is cached then. */
  generation: () => number | null;
  clock: Pick<Clock, 'monotonicMs'>;
}): IdentityCache {
  const entries = createLruCache<string, CacheEntry>({ capacity: maxEntries });

  return {
    async get(token, read) {
      // Take the counter before the read, so that a change during the read invalidates the new entry.
      const currentGeneration = generation();
      const nowMs = clock.monotonicMs();
      const entry = entries.get(token);
      if (entry !== undefined && entry.generation === currentGeneration && nowMs < entry.expiresAtMs)
        return entry.identity;
      const record = await read();
      entries.delete(token);
      if (record === null) return null;
      if (currentGeneration !== null) {
        const expiresAtMs = nowMs + Math.min(record.remainingMs, maxAgeMs);
        entries.set(token, { identity: record.identity, generation: currentGeneration, expiresAtMs });
      }
      return record.identity;
    },
  };
}
