// Holds and charges of media jobs, which outlive the request and the process that created them.
import { describe, expect, test } from 'vitest';
import { jobPayments, type PayableJob } from '../../../../src/gateway/ai/jobs/payments.ts';
import { memoryLedger } from '../memory-ledger.ts';

const job: PayableJob = {
  jobId: 'job_1',
  kind: 'image',
  owner: { kind: 'user', id: 'usr_1' },
  model: 'acme/painter',
  call: { requestId: 'req_1', tokenId: 'tok_1', bureauId: 'bur_1' },
  holdId: null,
  attempt: 1,
};
const facts = {
  action: 'image/create',
  model: 'acme/painter',
  provider: 'acme',
  tokens: { input: 0, cachedInput: 0, cacheWrite: 0, output: 0, reasoning: 0 },
  units: { image: 1 },
  outcome: 'completed' as const,
  estimated: false,
  ttftMs: null,
  durationMs: 1,
};

describe('jobPayments', () => {
  test('resumes the hold of the job', async () => {
    const ledger = memoryLedger(100n);
    const payments = jobPayments({ ledger });
    const hold = await payments.hold(job, 40n);
    const payment = await payments.resume({ ...job, holdId: hold?.holdId ?? null }, 40n);
    expect(payment?.holdId).toBe(hold?.holdId);
    expect(ledger.held()).toBe(40n);
  });

  test('charges a job once with a new hold when its hold was lost', async () => {
    const ledger = memoryLedger(100n);
    const payments = jobPayments({ ledger });
    const lostHold = await payments.hold(job, 40n);
    // The ledger's sweeper does this for a dead process.
    await lostHold?.settle(0n, { ...facts, outcome: 'rejected' });
    const newHold = await payments.resume({ ...job, holdId: lostHold?.holdId ?? null }, 40n);
    expect(newHold?.holdId).not.toBe(lostHold?.holdId);
    let isEnded = false;
    await payments.settle(job, newHold, {
      charge: { credits: 40n, facts },
      end: async () => void (isEnded = true),
    });
    expect(isEnded).toBe(true);
    expect(ledger.balance).toBe(60n);
    expect(ledger.held()).toBe(0n);
    expect(ledger.charges.map(({ call }) => call.requestId)).toEqual(['req_1', 'req_1.1']);
  });

  test('refuses to resume a job that the balance no longer covers', async () => {
    const ledger = memoryLedger(100n);
    const payments = jobPayments({ ledger });
    await expect(payments.resume(job, 101n)).rejects.toMatchObject({ kind: 'insufficient_credits' });
  });

  test('charges nothing for a canceled job', async () => {
    const ledger = memoryLedger(100n);
    const payments = jobPayments({ ledger });
    const hold = await payments.hold(job, 40n);
    await payments.release({ ...job, holdId: hold?.holdId ?? null }, 'client_closed');
    expect([ledger.balance, ledger.held()]).toEqual([100n, 0n]);
    expect(ledger.last().facts.outcome).toBe('client_closed');
  });

  test('records the free job of an administrator', async () => {
    const ledger = memoryLedger(0n);
    const payments = jobPayments({ ledger });
    const adminJob: PayableJob = {
      ...job,
      owner: { kind: 'admin', id: 'root' },
      call: { requestId: 'req_1', tokenId: 'tok_1', bureauId: null },
    };
    expect(await payments.hold(adminJob, 40n)).toBeNull();
    await payments.settle(adminJob, null, { charge: { credits: 40n, facts }, end: async () => {} });
    expect(ledger.charges).toMatchObject([{ held: null, charged: 0n, call: { userId: null } }]);
  });
});
