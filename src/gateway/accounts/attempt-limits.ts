// How often a secret of a person may be guessed at, and how many codes are sent. A guess is counted before it is
// looked at. How many requests an address may send at all is the contract's business (`x-rate-limit`).
//
// Each network has limits of its own for an e-mail address. All networks that never proved the address share a pace:
// after so many tries they have to wait between two, never longer than a few minutes. A network that proved the
// address is not subject to that pace. So a stranger can use up only the limits of the stranger's own network, slow
// other strangers down, and not lock the owner out.
import { createHash } from 'node:crypto';
import { networkOf } from '../../kernel/http/address.ts';
import { Problem } from '../../kernel/problem.ts';
import type { Budget, GuessStore, Pace } from './attempt-limits-store.ts';

/** Limits of one kind of try at one e-mail address of one Bureau. */
export interface GuessLimits {
  /** From one network. */
  network: Budget | Pace;
  /** From all networks together that never proved the address. */
  strangers: Pace;
}

/** All settings, so that a test can pass small or large ones. */
export interface GuessBudgets {
  /** Wrong passwords. */
  passwords: GuessLimits;
  /** Wrong codes. */
  wrongCodes: GuessLimits;
  /** Codes sent. */
  sentCodes: GuessLimits;
}

const day = 86_400;
// One try per 30 s: 2,900 a day against a password of 12 characters or more, or a code of 8 digits that holds minutes.
const secretPace: Pace = {
  freeTries: 20,
  firstDelaySeconds: 30,
  maximumDelaySeconds: 30,
  forgetSeconds: day,
};

const defaultGuessBudgets: GuessBudgets = {
  passwords: { network: { limit: 5, windowSeconds: 3600 }, strangers: secretPace },
  wrongCodes: { network: { limit: 5, windowSeconds: 3600 }, strangers: secretPace },
  // One network sends 10 mails and then at most one an hour; however many take part, 20 and then one per 15 minutes.
  sentCodes: {
    network: { freeTries: 10, firstDelaySeconds: 60, maximumDelaySeconds: 3600, forgetSeconds: day },
    strangers: { freeTries: 20, firstDelaySeconds: 60, maximumDelaySeconds: 900, forgetSeconds: day },
  },
};

/** Whose secret is guessed at, and from where. */
export interface GuessAt {
  bureauId: string;
  email: string;
  remoteAddress: string;
}

export interface Guesses {
  /** Counts a guess at a secret, or a code about to be sent; throws 429 when it is too much. */
  count(kind: keyof GuessBudgets, at: GuessAt): Promise<void>;
  /** The guess was right: it is taken back, and the network counts as the owner's from now on. */
  succeed(kind: 'passwords' | 'wrongCodes', at: GuessAt): Promise<void>;
  /** Forgets from where the person came. */
  forget(bureauId: string, email: string): Promise<void>;
  forgetOld(): Promise<void>;
}

const networkDays = 180;

export function createGuesses(store: GuessStore, settings: Partial<GuessBudgets> = {}): Guesses {
  const budgets = { ...defaultGuessBudgets, ...settings };

  return {
    async count(kind, at) {
      const { network, strangers } = budgets[kind];
      const ownKey = limitKey(kind, at);
      const own = await ('freeTries' in network
        ? store.countPaced(ownKey, network)
        : store.count(ownKey, network));
      if (own !== 'counted') throw tooMany(own.retryAfterSeconds);
      if (await store.isKnown(personOf(at), networkKey(at))) return;
      const shared = await store.countPaced(paceKey(kind, at), strangers);
      if (shared === 'counted') return;
      // A try that has to wait uses up nothing of its own network's limit.
      await store.giveBack(ownKey);
      throw tooMany(shared.retryAfterSeconds);
    },
    async succeed(kind, at) {
      await store.giveBack(limitKey(kind, at));
      if (!(await store.isKnown(personOf(at), networkKey(at)))) await store.giveBack(paceKey(kind, at));
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

function limitKey(kind: keyof GuessBudgets, { bureauId, email, remoteAddress }: GuessAt): Buffer {
  return hash(kind, bureauId, email, networkOf(remoteAddress));
}

function paceKey(kind: keyof GuessBudgets, { bureauId, email }: GuessAt): Buffer {
  return hash('pace', kind, bureauId, email);
}

function hash(...parts: string[]): Buffer {
  return createHash('sha256').update(JSON.stringify(parts)).digest();
}
