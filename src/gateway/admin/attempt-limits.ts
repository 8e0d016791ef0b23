// Limits on guessing administrators' passwords. Three counters apply to each attempt:
// the administrator ID from one network, the ID from all networks that never logged
// in with it, and the network over all IDs. A network that has logged in with the ID
// is exempt from the second one, so unknown networks cannot lock an administrator out.

/** Every limit, so that a test can pass small ones. Times are in seconds. */
export interface AdminAttemptLimits {
  /** Attempts at one ID from one network before each further one is delayed, twice as long each time. */
  freeTries: number;
  firstDelaySeconds: number;
  maximumDelaySeconds: number;
  /** Attempts at one ID from unknown networks before only one per interval is allowed. */
  unknownNetworkTries: number;
  unknownNetworkIntervalSeconds: number;
  /** Attempts at all IDs from one network in each window. */
  addressTries: number;
  addressWindowSeconds: number;
  /** A counter starts again after this long without an attempt. */
  forgetSeconds: number;
}

export const defaultAttemptLimits: AdminAttemptLimits = {
  freeTries: 5,
  firstDelaySeconds: 1,
  maximumDelaySeconds: 15 * 60,
  unknownNetworkTries: 20,
  unknownNetworkIntervalSeconds: 30,
  addressTries: 30,
  addressWindowSeconds: 10 * 60,
  forgetSeconds: 24 * 60 * 60,
};

/** The network, the administrator ID, and both together. */
export const counterScopes = ['address', 'id', 'pair'] as const;
export type CounterScope = (typeof counterScopes)[number];

/** A stored counter. Times are in seconds before now. */
export interface Counter {
  tries: number;
  /** Since its window began. Only the counter of a network has windows. */
  ageSeconds: number;
  /** Since the last counted attempt. */
  idleSeconds: number;
  /** Whether the ID has ever logged in from the network; for pairs only. */
  hasSucceeded: boolean;
}

export type Counters = Record<CounterScope, Counter>;

/** Whether an attempt is allowed, and then the new value of each counter. */
export type Decision =
  | { isAllowed: false; retryAfterSeconds: number }
  | { isAllowed: true; tries: Record<CounterScope, number>; startsWindow: boolean };

export function decideAttempt({ address, id, pair }: Counters, limits: AdminAttemptLimits): Decision {
  const currentTries = ({ tries, idleSeconds }: Counter) => (idleSeconds >= limits.forgetSeconds ? 0 : tries);

  const startsWindow = address.tries === 0 || address.ageSeconds >= limits.addressWindowSeconds;
  const addressTries = startsWindow ? 0 : address.tries;
  const addressWait =
    addressTries < limits.addressTries ? 0 : limits.addressWindowSeconds - address.ageSeconds;

  const idTries = currentTries(id);
  const isUnknownNetwork = !pair.hasSucceeded;
  const idWait =
    isUnknownNetwork && idTries >= limits.unknownNetworkTries
      ? limits.unknownNetworkIntervalSeconds - id.idleSeconds
      : 0;

  const pairTries = currentTries(pair);
  const delayedTries = pairTries - limits.freeTries;
  const pairWait =
    delayedTries < 0
      ? 0
      : Math.min(limits.firstDelaySeconds * 2 ** delayedTries, limits.maximumDelaySeconds) - pair.idleSeconds;

  const waitSeconds = Math.max(addressWait, idWait, pairWait);
  if (waitSeconds > 0) return { isAllowed: false, retryAfterSeconds: Math.ceil(waitSeconds) };
  return {
    isAllowed: true,
    tries: { address: addressTries + 1, id: isUnknownNetwork ? idTries + 1 : idTries, pair: pairTries + 1 },
    startsWindow,
  };
}
