// How often a secret of a person may be guessed at. A guess is counted before it is looked at. Administrators
// have counters of another shape (a delay that doubles); these are windows: so many within so long. How many requests
// an address may send at all is the contract's business (`x-rate-limit`).
//
// Whoever guesses at an e-mail address from a network that never proved it shares one budget with all such
// strangers; a network that did has its own. So nobody can lock a person out of their own account.
import { createHash } from 'node:crypto';
import { networkOf } from '../../../kernel/http/address.ts';
import { Problem } from '../../../kernel/problem.ts';
import type { Budget, GuessStore } from './store.ts';

/** All settings, so that a test can pass small or large ones. */
export interface GuessBudgets {
  /** Wrong passwords of one e-mail address in one Bureau. */
  passwords: Budget;
  /** Wrong codes of one e-mail address in one Bureau. */
  wrongCodes: Budget;
  /** Codes sent to one e-mail address by one Bureau. */
  sentCodes: Budget;
}

const defaultGuessBudgets: GuessBudgets = {
  passwords: { limit: 5, windowSeconds: 3600 },
  wrongCodes: { limit: 5, windowSeconds: 3600 },
  sentCodes: { limit: 10, windowSeconds: 86_400 },
};

/** Whose secret is guessed at, and from where. */
export interface GuessAt {
  bureauId: string;
  email: string;
  remoteAddress: string;
}

export interface Guesses {
  /** Counts a guess at a secret, or a code about to be sent; throws 429 when it is too much. */
  count(kind: 'passwords' | 'wrongCodes' | 'sentCodes', at: GuessAt): Promise<void>;
  /** The guess was right: it is taken back, and the network is known from now on. */
  succeed(kind: 'passwords' | 'wrongCodes', at: GuessAt): Promise<void>;
  /** Forgets from where the person came. */
  forget(bureauId: string, email: string): Promise<void>;
  forgetOld(): Promise<void>;
}

const networkDays = 180;

export function createGuesses(store: GuessStore, given: Partial<GuessBudgets> = {}): Guesses {
  const budgets = { ...defaultGuessBudgets, ...given };

  async function keyOf(kind: keyof GuessBudgets, at: GuessAt): Promise<Buffer> {
    const isKnown = await store.isKnown(personOf(at), networkKey(at));
    return hash(kind, at.bureauId, at.email, ...(isKnown ? [networkOf(at.remoteAddress)] : []));
  }

  return {
    async count(kind, at) {
      const counted = await store.count(await keyOf(kind, at), budgets[kind]);
      if (counted !== 'counted') throw tooMany(counted.retryAfterSeconds);
    },
    async succeed(kind, at) {
      await store.giveBack(await keyOf(kind, at));
      await store.remember(personOf(at), networkKey(at));
    },
    forget: (bureauId, email) => store.forget(personOf({ bureauId, email })),
    forgetOld: () => store.forgetOld(networkDays),
  };
}

/** The same words whatever ran out, so that the answer says nothing about which addresses are known. */
export function tooMany(retryAfterSeconds: number): Problem {
  return new Problem('rate_limited', 'rate_limited', 'Too many attempts; try again later.', {
    headers: { 'retry-after': String(retryAfterSeconds) },
  });
}

function personOf({ bureauId, email }: { bureauId: string; email: string }): Buffer {
  return hash('person', bureauId, email);
}

function networkKey({ bureauId, email, remoteAddress }: GuessAt): Buffer {
  return hash('network', bureauId, email, networkOf(remoteAddress));
}

function hash(...parts: string[]): Buffer {
  return createHash('sha256').update(JSON.stringify(parts)).digest();
}
