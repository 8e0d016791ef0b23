// Calls of one token that wait for credits, oldest first.
import type { Allotment } from './allotment.ts';
import { sum } from './pool.ts';

export interface WaitingCall {
  amount: bigint;
  /** Number of give-backs by other allotments of the account for this call. */
  giveBacks: number;
  /**
   * The ticket of a call that waits for credits of other gateways, and the monotonic time when it
   * was queued; null for other calls.
   */
  recall: { ticket: string; sinceMs: number } | null;
  resolve(allotment: Allotment): void;
  reject(error: unknown): void;
}

export class TokenQueue {
  readonly waiting: WaitingCall[] = [];
  isFilling = false;

  get head(): WaitingCall | undefined {
    return this.waiting[0];
  }

  get total(): bigint {
    return sum(this.waiting, ({ amount }) => amount);
  }

  /** Removes and returns the calls that `fits` accepts, in their order. */
  take(fits: (call: WaitingCall) => boolean): WaitingCall[] {
    const takenCalls: WaitingCall[] = [];
    const remainingCalls: WaitingCall[] = [];
    for (const call of this.waiting) (fits(call) ? takenCalls : remainingCalls).push(call);
    this.waiting.splice(0, this.waiting.length, ...remainingCalls);
    return takenCalls;
  }

  rejectAll(error: unknown): void {
    for (const call of this.waiting.splice(0)) call.reject(error);
  }
}
