// Cache from tokens to identities, so that a request neither hashes nor checks its
// token again. An entry is used only while the change counter of the database stays the
// same, which every replica learns within a second, and never after the token's expiry.
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

// `last_used_at` is written when a token is read, so a longer time would make it wrong by more than a minute.
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
  /** The current change counter; null while it is unknown, when nothing can be cached. */
  generation: () => number | null;
  clock: Pick<Clock, 'monotonicMs'>;
}): IdentityCache {
  const entries = createLruCache<string, CacheEntry>({ capacity: maxEntries });

  return {
    async get(token, read) {
      // Take the counter before the read, so that a change during the read invalidates the new entry.
      const current = generation();
      const nowMs = clock.monotonicMs();
      const entry = entries.get(token);
      if (entry !== undefined && entry.generation === current && nowMs < entry.expiresAtMs)
        return entry.identity;
      const record = await read();
      entries.delete(token);
      if (record === null) return null;
      if (current !== null) {
        const expiresAtMs = nowMs + Math.min(record.remainingMs, maxAgeMs);
        entries.set(token, { identity: record.identity, generation: current, expiresAtMs });
      }
      return record.identity;
    },
  };
}
