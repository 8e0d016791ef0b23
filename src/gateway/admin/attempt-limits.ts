// Limits on guessing administrators' passwords. Three counters apply to each attempt: the administrator ID
// from one network ("pair"), the ID from all unknown networks ("id"), and the network over all IDs
// ("address"). A network is known to an ID once it has logged in with it. Known networks are exempt from the
// counter "id", so unknown networks cannot lock an administrator out.

/** All limits. Tests replace them with smaller ones. Times are in seconds. */
export interface AdminAttemptLimits {
  /** Attempts at one ID from one network without a delay. Each attempt after them waits twice as long. */
  freeTries: number;
  firstDelaySeconds: number;
  maximumDelaySeconds: number;
  /** Attempts at one ID from unknown networks before only one per interval is allowed. */
  unknownNetworkTries: number;
  unknownNetworkIntervalSeconds: number;
  /** Attempts at all IDs from one network in each window. */
  addressTries: number;
  addressWindowSeconds: number;
  /** A counter starts over after this long without an attempt. */
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

/** Whether an attempt is allowed: the delay if not, or the new value of each counter. */
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
