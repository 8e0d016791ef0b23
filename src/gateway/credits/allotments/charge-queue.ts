// Charges that are in the journal and not yet in the database, in the order of the journal.
import type { ChargeLine } from '../journal/journal.ts';
import type { Allotment } from './allotment.ts';
import type { ChargeResult } from './store.ts';
import { maximumBatch } from './times.ts';

export interface UnappliedCharge {
  line: ChargeLine;
  allotment: Allotment | null;
  /** The part that the allotment pays. */
  covered: bigint;
  /** Monotonic time. */
  addedAtMs: number;
  /**
   * Called once the charge is in the database; null when the result is unknown,
   * because the response was lost.
   */
  onApplied?: (result: ChargeResult | null) => void;
}

export class ChargeQueue {
  #charges: UnappliedCharge[] = [];
  #credits = 0n;

  get length(): number {
    return this.#charges.length;
  }

  get credits(): bigint {
    return this.#credits;
  }

  /** Monotonic time when the oldest charge was added; null when the queue is empty. */
  get oldestAtMs(): number | null {
    return this.head?.addedAtMs ?? null;
  }

  /** The oldest charge. */
  get head(): UnappliedCharge | undefined {
    return this.#charges[0];
  }

  get lastSeq(): number {
    return this.#charges.at(-1)?.line.seq ?? 0;
  }

  /** The caller has already added `covered` to the allotment's unapplied credits (`chargeReservation`). */
  add(charge: UnappliedCharge): void {
    this.#charges.push(charge);
    this.#credits += charge.line.credits;
  }

  nextBatch(): UnappliedCharge[] {
    return this.#charges.slice(0, maximumBatch);
  }

  /**
   * Removes the charges up to this number, and subtracts them from their
   * allotments' unapplied credits.
   */
  remove(toSeq: number): UnappliedCharge[] {
    const count = this.#charges.findIndex(({ line }) => line.seq > toSeq);
    const removedCharges = this.#charges.splice(0, count === -1 ? this.#charges.length : count);
    for (const { allotment, covered, line } of removedCharges) {
      if (allotment !== null) allotment.unapplied -= covered;
      this.#credits -= line.credits;
    }
    return removedCharges;
  }
}

/**
 * The allotments whose rows the charges change. An ended allotment has no row any more: the database charges
 * its calls as late, from the account's free credits.
 */
export function allotmentsOf(batch: readonly UnappliedCharge[]): Set<Allotment> {
  const allotments = new Set<Allotment>();
  for (const { allotment } of batch)
    if (allotment !== null && allotment.state !== 'ended') allotments.add(allotment);
  return allotments;
}
