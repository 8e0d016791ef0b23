// Writes of allotments to the database: open, enlarge, lower, end. Each allotment has
// at most one pending write. A write names the version that it expects, so a repetition
// after an unknown outcome has no second effect: the returned row is authoritative.
import { maxBigInt } from '../../../kernel/bigint.ts';
import { adoptRow, idleCredits, renewLease, type Allotment } from './allotment.ts';
import { beginLease, type LeaseClock } from './lease.ts';
import { isInUse, type AllotmentPool } from './pool.ts';
import type { AllotmentRow, AllotmentStore, AllotResult, GiveBackRequest } from './store.ts';

export interface AllotmentWritesOptions {
  store: Pick<AllotmentStore, 'allot' | 'giveBack'>;
  pool: AllotmentPool;
  clock: LeaseClock;
  gatewayId: string;
  generation: string;
  leaseMs: number;
  /** Called when the database has no such allotment, as under another generation. */
  onGone(): Promise<void>;
}

// Above this number of users, the balance that was read longest ago is forgotten and counts as 0.
const maximumUsers = 10_000;

export class AllotmentWrites {
  readonly #options: AllotmentWritesOptions;
  /** Whether an opening lost its response: the database may have an allotment that memory lacks. */
  hasLostOpening = false;
  /** Latest known credits outside of allotments and holds, by user. */
  readonly #available = new Map<string, bigint>();
  #giveBacks = 0;

  constructor(options: AllotmentWritesOptions) {
    this.#options = options;
  }

  /**
   * Number of finished give-backs. If it grew while a request was under way, the response may have
   * an `available` without those credits.
   */
  get giveBacks(): number {
    return this.#giveBacks;
  }

  /**
   * Credits of the user outside of holds and allotments, as of the latest response of the database.
   */
  available(userId: string): bigint {
    return this.#available.get(userId) ?? 0n;
  }

  /**
   * Opens or enlarges the allotment. An error leaves it unchanged in memory; a later
   * response carries the row of the database.
   */
  async enlarge(
    allotment: Allotment,
    { need, want, ticket }: { need: bigint; want: bigint; ticket?: string | undefined },
  ): Promise<AllotResult> {
    const { store, clock, gatewayId, generation, leaseMs } = this.#options;
    const lease = beginLease(clock, leaseMs);
    const { allotmentId, version, userId, bureauId, tokenId } = allotment;
    const result = await runExclusively([allotment], () =>
      store.allot({
        allotmentId,
        version,
        gatewayId,
        generation,
        userId,
        bureauId,
        tokenId,
        need,
        want: maxBigInt(want, need),
        leaseMs,
        ticket,
      }),
    ).catch((error: unknown) => {
      if (version === 0) this.hasLostOpening = true;
      throw error;
    });
    this.#remember(userId, result.available);
    if (result.row !== null) adoptRow(allotment, result.row);
    if (result.outcome === 'granted') renewLease(allotment, lease);
    if (result.outcome === 'gone') {
      this.#options.pool.remove(allotment);
      await this.#options.onGone();
    }
    if (result.outcome === 'closed' && allotment.state === 'open') allotment.state = 'closed';
    return result;
  }

  /**
   * Gives idle credits back; with `end`, also ends the allotments without calls. The credits
   * leave memory before the request is sent. Answers recalls even when nothing is idle.
   * Returns the credits given back.
   */
  async giveBack(allotments: readonly Allotment[], { end = false }: { end?: boolean } = {}): Promise<bigint> {
    const targets = allotments.filter(({ write, state }) => write === null && state !== 'ended');
    if (targets.length === 0) return 0n;
    let totalCredits = 0n;
    const requests = targets.map((allotment): GiveBackRequest => {
      totalCredits += idleCredits(allotment);
      return lowerToUse(allotment, end);
    });
    const rows = await runExclusively(targets, () => this.#options.store.giveBack(requests)).finally(
      () => (this.#giveBacks += 1),
    );
    for (const [index, allotment] of targets.entries()) this.#adopt(allotment, rows[index] ?? null);
    return totalCredits;
  }

  #adopt(allotment: Allotment, row: AllotmentRow | null): void {
    allotment.isGiveBackUncertain = false;
    if (row === null) this.#options.pool.remove(allotment);
    else adoptRow(allotment, row);
  }

  #remember(userId: string, available: bigint): void {
    this.#available.delete(userId);
    this.#available.set(userId, available);
    if (this.#available.size > maximumUsers)
      this.#available.delete(this.#available.keys().next().value as string);
  }
}

/** Removes the idle credits from memory. An ended allotment takes no further reservation. */
function lowerToUse(allotment: Allotment, end: boolean): GiveBackRequest {
  const isLast = (end || allotment.state === 'closed') && !isInUse(allotment);
  allotment.amount = isLast ? 0n : allotment.amount - idleCredits(allotment);
  if (isLast) allotment.state = 'closed';
  allotment.isGiveBackUncertain = true;
  const { allotmentId, version, amount, charged, recall } = allotment;
  return { allotmentId, version, amount, charged, recall, end: isLast };
}

async function runExclusively<T>(allotments: readonly Allotment[], work: () => Promise<T>): Promise<T> {
  const write = work();
  for (const allotment of allotments) allotment.write = write;
  try {
    return await write;
  } finally {
    for (const allotment of allotments) allotment.write = null;
  }
}
