// All allotments of this process, by id, token and user. Synchronous; a token has one allotment
// that takes reservations and perhaps older ones that are closed and still have calls.
import type { MakeId } from '../../../kernel/ids.ts';
import { idleCredits, newAllotment, reportOf, type Allotment, type Payer } from './allotment.ts';
import type { AllotmentReport } from './store.ts';
import { maximumAllotments } from './times.ts';

export class AllotmentPool {
  readonly #byId = new Map<string, Allotment>();
  readonly #byPayer = new Map<string, Allotment>();
  readonly #byUser = new Map<string, Set<Allotment>>();
  readonly #makeId: MakeId;
  #reports = 0n;

  constructor(makeId: MakeId) {
    this.#makeId = makeId;
  }

  get size(): number {
    return this.#byId.size;
  }

  all(): Iterable<Allotment> {
    return this.#byId.values();
  }

  find(allotmentId: string): Allotment | undefined {
    return this.#byId.get(allotmentId);
  }

  /** The open allotment of a user and token, if any. */
  ofPayer(payer: PayerId): Allotment | undefined {
    const allotment = this.#byPayer.get(payerKey(payer));
    return allotment?.state === 'open' ? allotment : undefined;
  }

  ofUser(userId: string): Allotment[] {
    return [...(this.#byUser.get(userId) ?? [])];
  }

  idleOfUser(userId: string): bigint {
    return sum(this.ofUser(userId), idleCredits);
  }

  /**
   * The current use of the allotments, with a new number. Send it in the same
   * turn of the event loop.
   */
  report(allotments: Iterable<Allotment>): AllotmentReport[] {
    this.#reports += 1n;
    return [...allotments].map((allotment) => reportOf(allotment, this.#reports));
  }

  /** Adds an allotment that is not in the database yet. */
  open(payer: Payer, nowMs: number): Allotment {
    const allotment = newAllotment(this.#makeId('alt'), payer, nowMs);
    this.#byId.set(allotment.allotmentId, allotment);
    this.#byPayer.set(payerKey(payer), allotment);
    const siblings = this.#byUser.get(payer.userId);
    if (siblings === undefined) this.#byUser.set(payer.userId, new Set([allotment]));
    else siblings.add(allotment);
    return allotment;
  }

  /**
   * Removes an allotment that has ended in the database. Reservations on it may
   * still become late charges.
   */
  remove(allotment: Allotment): void {
    allotment.state = 'ended';
    allotment.amount = 0n;
    this.#byId.delete(allotment.allotmentId);
    const key = payerKey(allotment);
    if (this.#byPayer.get(key) === allotment) this.#byPayer.delete(key);
    const siblings = this.#byUser.get(allotment.userId);
    siblings?.delete(allotment);
    if (siblings?.size === 0) this.#byUser.delete(allotment.userId);
  }

  /** Whether a further allotment has room. */
  hasRoom(): boolean {
    return this.#byId.size < maximumAllotments;
  }

  /** The unused allotment with the oldest last use. */
  leastRecentlyUsed(): Allotment | undefined {
    let oldestAllotment: Allotment | undefined;
    for (const allotment of this.#byId.values()) {
      if (isInUse(allotment) || allotment.write !== null) continue;
      if (oldestAllotment === undefined || allotment.lastUsedMs < oldestAllotment.lastUsedMs)
        oldestAllotment = allotment;
    }
    return oldestAllotment;
  }
}

type PayerId = Pick<Payer, 'userId' | 'tokenId'>;

/**
 * Each token has one user; with the user in the key, a bug elsewhere cannot
 * spend another user's credits.
 */
export function payerKey({ userId, tokenId }: PayerId): string {
  return `${userId} ${tokenId}`;
}

/** Whether calls or charges still need the allotment's row. */
export function isInUse({ reserved, unapplied }: Allotment): boolean {
  return reserved > 0n || unapplied > 0n;
}

export function sum<T>(items: readonly T[], amountOf: (item: T) => bigint): bigint {
  return items.reduce((total, item) => total + amountOf(item), 0n);
}
