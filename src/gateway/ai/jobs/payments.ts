// What a job is paid with. Its hold is made before the job is, lives as long as it does, whichever processes run it,
// and is charged in the transaction that ends the job well; every other end costs nothing.
import type { Tx } from '../../../kernel/data/database.ts';
import type { Hold, Ledger, PaidCall } from '../../credits/index.ts';
import type { UsageFacts, UsageOutcome } from '../../usage/index.ts';
import { noTokens } from '../metering/price.ts';
import type { JobCall, JobKind, Owner } from './job.ts';

/** What a job has come to cost. */
export interface JobCharge {
  credits: bigint;
  facts: UsageFacts;
}

/** The job as far as its payment goes. */
export interface PayableJob {
  jobId: string;
  kind: JobKind;
  owner: Owner;
  model: string;
  call: JobCall | null;
  holdId: string | null;
  /** Which taking of the job this is; 0 before the first. */
  attempt: number;
}

export interface JobPayments {
  /** Null where nobody pays. Throws a 402. */
  hold(job: Omit<PayableJob, 'holdId' | 'attempt'>, amount: bigint): Promise<Hold | null>;
  /** The hold of a job that begins to run, made anew when it was lost with the process that kept it. Throws a 402. */
  resume(job: PayableJob, amount: bigint): Promise<Hold | null>;
  /** Charges the job, with what ends it; rejects with what that throws, and then nothing is charged. */
  settle(
    job: PayableJob,
    hold: Hold | null,
    options: { bill: JobCharge; end: (tx: Tx) => Promise<void> },
  ): Promise<{ isEnded: boolean }>;
  /** Ends the payment of a job that came to nothing. */
  release(job: PayableJob, outcome: UsageOutcome): Promise<void>;
}

const actions: Record<JobKind, string> = { image: 'image/create', video: 'video' };

export function jobPayments({ ledger }: { ledger: Pick<Ledger, 'hold' | 'resume' | 'record'> }): JobPayments {
  function paid({
    kind,
    owner,
    model,
    call,
  }: Pick<PayableJob, 'kind' | 'owner' | 'model' | 'call'>): PaidCall | null {
    if (owner.kind !== 'user' || call === null || call.bureauId === null) return null;
    return {
      requestId: call.requestId,
      userId: owner.id,
      bureauId: call.bureauId,
      tokenId: call.tokenId,
      action: actions[kind],
      model,
      provider: null,
    };
  }

  async function hold(job: Omit<PayableJob, 'holdId' | 'attempt'>, amount: bigint): Promise<Hold | null> {
    const call = paid(job);
    // Nothing is sent before the job runs, and what it makes is charged as a whole or not at all.
    return call === null ? null : ledger.hold(call, amount, { isSent: false });
  }

  return {
    hold,
    async resume(job, amount) {
      const call = paid(job);
      if (call === null) return null;
      const held = job.holdId === null ? null : await ledger.resume(job.holdId);
      // A request has one hold; what replaces it needs a name of its own.
      return (
        held ??
        ledger.hold({ ...call, requestId: `${call.requestId}.${job.attempt}` }, amount, { isSent: false })
      );
    },
    async settle(job, held, { bill, end }) {
      if (held === null) {
        if (job.owner.kind === 'admin' && job.call !== null) {
          await ledger.record(
            {
              requestId: job.call.requestId,
              userId: null,
              bureauId: null,
              tokenId: job.call.tokenId,
              action: actions[job.kind],
              model: bill.facts.model,
              provider: bill.facts.provider,
            },
            bill.facts,
          );
        }
        return { isEnded: false };
      }
      let isEnded = false;
      await held.settle(bill.credits, bill.facts, {
        work: async (tx) => {
          await end(tx);
          isEnded = true;
        },
      });
      // Without the database the settlement is on the disk alone, and the job's end is still to be written.
      return { isEnded };
    },
    async release(job, outcome) {
      if (job.holdId === null) return;
      const held = await ledger.resume(job.holdId);
      await held?.settle(0n, {
        action: actions[job.kind],
        model: job.model,
        provider: null,
        tokens: noTokens,
        units: {},
        outcome,
        estimated: false,
        ttftMs: null,
        durationMs: 0,
      });
    },
  };
}

/** For jobs that nobody pays for. */
export const unpaidJobs: JobPayments = {
  hold: async () => null,
  resume: async () => null,
  settle: async () => ({ isEnded: false }),
  release: async () => {},
};
