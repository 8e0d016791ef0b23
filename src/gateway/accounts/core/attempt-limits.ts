// Limits on guessing passwords and e-mail codes, and on sending codes. An attempt is counted before
// the secret is checked. The limits on requests per address are the contract's (`x-rate-limit`).
//
// Two counters apply to an e-mail address of a Bureau: one for each network, and one shared by all
// unknown networks. A network becomes known when someone there enters the right password or code. The
// shared counter only delays attempts, by at most 30 seconds for passwords and codes and 15 minutes for
// sending a code, and known networks are exempt from it. Unknown networks therefore slow each other down,
// but cannot lock the owner out.
import { createHash } from 'node:crypto';
import { networkOf } from '../../../kernel/http/address.ts';
import { tooManyAttempts } from '../../../kernel/problem.ts';
import type { AttemptLimitsStore, DelaySchedule, WindowLimit } from './attempt-limits-store.ts';

/** The limits of one kind of attempt at one e-mail address of one Bureau. */
export interface AttemptLimit {
  /** The limit of each network. */
  network: WindowLimit | DelaySchedule;
  /** The shared limit of all unknown networks together. */
  unknownNetworks: DelaySchedule;
}

/** All limits. Tests replace them with smaller or larger ones. */
export interface AttemptLimitSettings {
  /** Wrong passwords. */
  passwords: AttemptLimit;
  /** Wrong codes. */
  wrongCodes: AttemptLimit;
  /** Codes sent. */
  sentCodes: AttemptLimit;
}

const day = 86_400;

// One attempt per 30 s is 2,880 a day: too few to guess a password of at least 12 characters,
// or an 8-digit code that expires within minutes.
const secretSchedule: DelaySchedule = {
  freeTries: 20,
  firstDelaySeconds: 30,
  maximumDelaySeconds: 30,
  forgetSeconds: day,
};
const defaultSettings: AttemptLimitSettings = {
  passwords: { network: { limit: 5, windowSeconds: 3600 }, unknownNetworks: secretSchedule },
  wrongCodes: { network: { limit: 5, windowSeconds: 3600 }, unknownNetworks: secretSchedule },
  // A network may send 10 codes without a delay. It then waits 1 minute before the next and twice as long
  // before each further one, up to an hour. All unknown networks together may send 20 without a delay, and
  // then also wait 1 minute at first, but never more than 15.
  sentCodes: {
    network: { freeTries: 10, firstDelaySeconds: 60, maximumDelaySeconds: 3600, forgetSeconds: day },
    unknownNetworks: { freeTries: 20, firstDelaySeconds: 60, maximumDelaySeconds: 900, forgetSeconds: day },
  },
};

/** The account that an attempt is for, and the network address that it comes from. */
export interface AttemptSource {
  bureauId: string;
  email: string;
  remoteAddress: string;
}

export interface AttemptLimits {
  /** Counts one attempt. Throws 429 when a limit is reached; a refused attempt is not counted. */
  count(kind: keyof AttemptLimitSettings, source: AttemptSource): Promise<void>;
  /** Takes back the attempt that succeeded and remembers its network as known. */
  recordSuccess(kind: 'passwords' | 'wrongCodes', source: AttemptSource): Promise<void>;
  /**
   * Deletes the counter of this network and the shared counter, for example those of wrong passwords
   * after a password reset.
   */
  clear(kind: keyof AttemptLimitSettings, source: AttemptSource): Promise<void>;
  /** Deletes the known networks of the address. */
  forgetNetworks(bureauId: string, email: string): Promise<void>;
  deleteOld(): Promise<void>;
}

// A network counts as known for this long after its last successful login.
const networkDays = 180;

export function createAttemptLimits(
  store: AttemptLimitsStore,
  settings: Partial<AttemptLimitSettings> = {},
): AttemptLimits {
  const limits = { ...defaultSettings, ...settings };
  return {
    async count(kind, source) {
      const { network, unknownNetworks } = limits[kind];
      const networkKey = networkLimitKey(kind, source);
      const networkCount = await ('freeTries' in network
        ? store.countDelayed(networkKey, network)
        : store.count(networkKey, network));
      if (networkCount !== 'counted') throw tooManyAttempts(networkCount.retryAfterSeconds);
      if (await store.isKnownNetwork(emailKey(source), knownNetworkKey(source))) return;
      const sharedCount = await store.countDelayed(sharedLimitKey(kind, source), unknownNetworks);
      if (sharedCount === 'counted') return;
      // An attempt that the shared limit refuses must not use up the network's own limit.
      await store.uncount(networkKey);
      throw tooManyAttempts(sharedCount.retryAfterSeconds);
    },
    async recordSuccess(kind, source) {
      const [email, network] = [emailKey(source), knownNetworkKey(source)];
      await store.uncount(networkLimitKey(kind, source));
      if (!(await store.isKnownNetwork(email, network))) await store.uncount(sharedLimitKey(kind, source));
      await store.rememberNetwork(email, network);
    },
    async clear(kind, source) {
      await store.clear([networkLimitKey(kind, source), sharedLimitKey(kind, source)]);
    },
    forgetNetworks: (bureauId, email) => store.forgetNetworks(emailKey({ bureauId, email })),
    deleteOld: () => store.deleteOld(networkDays),
  };
}

// The first part of each key keeps one kind of key apart from the others. Stored rows depend on it.

function emailKey({ bureauId, email }: Pick<AttemptSource, 'bureauId' | 'email'>): Buffer {
  return hashParts('person', bureauId, email);
}

function knownNetworkKey({ bureauId, email, remoteAddress }: AttemptSource): Buffer {
  return hashParts('network', bureauId, email, networkOf(remoteAddress));
}

function networkLimitKey(
  kind: keyof AttemptLimitSettings,
  { bureauId, email, remoteAddress }: AttemptSource,
): Buffer {
  return hashParts(kind, bureauId, email, networkOf(remoteAddress));
}

function sharedLimitKey(kind: keyof AttemptLimitSettings, { bureauId, email }: AttemptSource): Buffer {
  return hashParts('pace', kind, bureauId, email);
}

function hashParts(...parts: string[]): Buffer {
  return createHash('sha256').update(JSON.stringify(parts)).digest();
}
