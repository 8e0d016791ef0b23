// Payment of media jobs. The hold is created before the job and lasts as long as the job, whichever process
// runs it. The transaction that writes the success also charges. A job that fails is free; a canceled job is
// charged only if a provider had accepted it.
import { minBigInt } from '../../../kernel/bigint.ts';
import type { Tx } from '../../../kernel/data/database.ts';
import type { Hold, Ledger, PaidCall } from '../../credits/index.ts';
import type { UsageFacts, UsageOutcome } from '../../usage/index.ts';
import { noTokens } from '../metering/price.ts';
import type { Owner } from '../calls/owner.ts';
import type { JobCall, JobKind } from './job.ts';

/** The price and usage of a finished job. */
export interface JobCharge {
  credits: bigint;
  facts: UsageFacts;
}

export interface PayableJob {
  jobId: string;
  kind: JobKind;
  owner: Owner;
  model: string;
  call: JobCall | null;
  holdId: string | null;
  /** The number of the run; 0 before the first. */
  attempt: number;
}

export interface JobPayments {
  /** Null for a free job. Throws a 402. */
  hold(job: Omit<PayableJob, 'holdId' | 'attempt'>, amount: bigint): Promise<Hold | null>;
  /**
   * The hold of a job that starts to run; a new one when the previous one was lost
   * with its process. Throws a 402.
   */
  resume(job: PayableJob, amount: bigint): Promise<Hold | null>;
  /**
   * Charges the job in one transaction with `end`. Charges nothing when `end` throws, and rejects
   * with its error. The caller must run `end` once more afterwards: it does not run for a free job, and when
   * the database fails, even at the commit, only the charge is durable, in the journal on disk.
   */
  settle(
    job: PayableJob,
    hold: Hold | null,
    options: { charge: JobCharge; end: (tx: Tx) => Promise<void> },
  ): Promise<void>;
  /** Releases the hold of a job that did not succeed. */
  release(job: PayableJob, outcome: UsageOutcome): Promise<void>;
  /**
   * Charges a job that was canceled after its upstream job was accepted, at most its hold. Returns
   * the credits; 0 for a free job.
   */
  chargeCanceled(job: PayableJob, charge: JobCharge): Promise<bigint>;
}

const actions: Record<JobKind, string> = { image: 'image/create', video: 'video' };

export function jobPayments({ ledger }: { ledger: Pick<Ledger, 'hold' | 'resume' | 'record'> }): JobPayments {
  return {
    async hold(job, amount) {
      const call = paidCall(job);
      // `isSent: false`: no provider is called before the job runs, so a crash before then costs nothing.
      return call === null ? null : ledger.hold(call, amount, { isSent: false });
    },
    async resume(job, amount) {
      const call = paidCall(job);
      if (call === null) return null;
      const hold = job.holdId === null ? null : await ledger.resume(job.holdId);
      if (hold !== null) return hold;
      // A request id has one hold, so the replacement gets an id of its own.
      // Not marked as sent, like the first hold: it costs nothing if this process dies.
      return ledger.hold({ ...call, requestId: `${call.requestId}.${job.attempt}` }, amount, {
        isSent: false,
      });
    },
    async settle(job, hold, { charge, end }) {
      if (hold === null) await recordFreeJob(ledger, job, charge);
      else await hold.settle(charge.credits, charge.facts, { work: end });
    },
    async release(job, outcome) {
      if (job.holdId === null) return;
      const hold = await ledger.resume(job.holdId);
      await hold?.settle(0n, unusedFacts(job, outcome));
    },
    async chargeCanceled(job, { credits, facts }) {
      const hold = job.holdId === null ? null : await ledger.resume(job.holdId);
      if (hold === null) return 0n;
      const { charged } = await hold.settle(minBigInt(credits, hold.amount), facts);
      return charged;
    },
  };
}

/** The call that the ledger charges; null for administrators, whose jobs are free. */
function paidCall({
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

async function recordFreeJob(
  ledger: Pick<Ledger, 'record'>,
  { kind, owner, call }: PayableJob,
  { facts }: JobCharge,
): Promise<void> {
  if (owner.kind !== 'admin' || call === null) return;
  await ledger.record(
    {
      requestId: call.requestId,
      userId: null,
      bureauId: null,
      tokenId: call.tokenId,
      action: actions[kind],
      model: facts.model,
      provider: facts.provider,
    },
    facts,
  );
}

function unusedFacts({ kind, model }: PayableJob, outcome: UsageOutcome): UsageFacts {
  return {
    action: actions[kind],
    model,
    provider: null,
    tokens: noTokens,
    units: {},
    outcome,
    estimated: false,
    ttftMs: null,
    durationMs: 0,
  };
}

/** Payments of a server without charges for jobs. */
export const unpaidJobs: JobPayments = {
  hold: async () => null,
  resume: async () => null,
  settle: async () => {},
  release: async () => {},
  chargeCanceled: async () => 0n,
};
