// How many guesses of a password are looked at. Three counters judge each try: one for the administrator ID
// from one network, one for the ID from all networks that never logged in with it, one for the network over
// all IDs. Whoever logged in before is not counted among the strangers, so nobody can lock an administrator out.

/** All settings, so that a test can pass small ones. Times in seconds. */
export interface GuessBudgets {
  /** Tries of one ID from one network before each further one has to wait, twice as long each time. */
  freeTries: number;
  firstDelaySeconds: number;
  maximumDelaySeconds: number;
  /** Tries of one ID from networks that never logged in, before there is one an interval. */
  strangerTries: number;
  strangerIntervalSeconds: number;
  /** Tries of all IDs from one network within a window. */
  addressTries: number;
  addressWindowSeconds: number;
  /** A counter that nobody touched for so long starts anew. */
  forgetSeconds: number;
}

export const defaultGuessBudgets: GuessBudgets = {
  freeTries: 5,
  firstDelaySeconds: 1,
  maximumDelaySeconds: 15 * 60,
  strangerTries: 20,
  strangerIntervalSeconds: 30,
  addressTries: 30,
  addressWindowSeconds: 10 * 60,
  forgetSeconds: 24 * 60 * 60,
};

export const guessScopes = ['address', 'id', 'pair'] as const;
export type GuessScope = (typeof guessScopes)[number];

/** A counter as it stands; times in seconds before now. */
export interface Counter {
  tries: number;
  /** Since its window was opened; the counter of an address alone has windows. */
  ageSeconds: number;
  /** Since the try that was counted last. */
  idleSeconds: number;
  /** Of a pair: whether the ID ever logged in from the network. */
  hasSucceeded: boolean;
}

export type Counters = Record<GuessScope, Counter>;

/** What a try leads to: it waits, or it is counted, and then each counter has so many tries. */
export type Verdict =
  | { admitted: false; retryAfterSeconds: number }
  | { admitted: true; tries: Record<GuessScope, number>; opensWindow: boolean };

export function judgeGuess(counters: Counters, budgets: GuessBudgets): Verdict {
  const { address, id, pair } = counters;
  const fresh = ({ tries, idleSeconds }: Counter) => (idleSeconds >= budgets.forgetSeconds ? 0 : tries);

  const opensWindow = address.tries === 0 || address.ageSeconds >= budgets.addressWindowSeconds;
  const addressTries = opensWindow ? 0 : address.tries;
  const addressWait =
    addressTries < budgets.addressTries ? 0 : budgets.addressWindowSeconds - address.ageSeconds;

  const idTries = fresh(id);
  const isStranger = !pair.hasSucceeded;
  const idWait =
    isStranger && idTries >= budgets.strangerTries ? budgets.strangerIntervalSeconds - id.idleSeconds : 0;

  const pairTries = fresh(pair);
  const over = pairTries - budgets.freeTries;
  const pairWait =
    over < 0
      ? 0
      : Math.min(budgets.firstDelaySeconds * 2 ** over, budgets.maximumDelaySeconds) - pair.idleSeconds;

  const wait = Math.max(addressWait, idWait, pairWait);
  if (wait > 0) return { admitted: false, retryAfterSeconds: Math.ceil(wait) };
  return {
    admitted: true,
    tries: { address: addressTries + 1, id: isStranger ? idTries + 1 : idTries, pair: pairTries + 1 },
    opensWindow,
  };
}
