// Whose a token is, kept from one request to the next. The rule it keeps: what was read is given again only while no
// replica has changed anything since, which is known to within a second, and never beyond the token's end.
import type { Clock } from '../../kernel/clock.ts';
import type { Identity } from '../identity.ts';

export type UserIdentity = Extract<Identity, { kind: 'user' }>;

/** What the database says of a token, and for how many milliseconds from now the token is good at most. */
export interface Recognised {
  identity: UserIdentity;
  restMs: number;
}

export interface IdentityCacheNeeds {
  /** The number under which what is read now stays good; null while nothing may be kept. */
  generation(): number | null;
  clock: Pick<Clock, 'monotonicMs'>;
}

export interface IdentityCache {
  /** The identity under the key: a kept one, or what `read` finds. Nobody is not kept, nor is what `read` throws. */
  get(key: string, read: () => Promise<Recognised | null>): Promise<UserIdentity | null>;
}

// So that the note of a token's last use, which is made on reading it, stays true to the minute.
const longestMs = 60_000;
const mostKept = 10_000;

interface Kept {
  identity: UserIdentity;
  generation: number;
  untilMs: number;
}

export function createIdentityCache({ generation, clock }: IdentityCacheNeeds): IdentityCache {
  const kept = new Map<string, Kept>();

  return {
    async get(key, read) {
      // Asked for before the reading, so that a change which comes meanwhile makes what was read useless.
      const current = generation();
      const nowMs = clock.monotonicMs();
      const known = kept.get(key);
      if (known !== undefined && known.generation === current && nowMs < known.untilMs) return known.identity;
      const found = await read();
      kept.delete(key);
      if (found === null) return null;
      if (current !== null) {
        kept.set(key, {
          identity: found.identity,
          generation: current,
          untilMs: nowMs + Math.min(found.restMs, longestMs),
        });
        if (kept.size > mostKept) kept.delete(kept.keys().next().value as string);
      }
      return found.identity;
    },
  };
}
