// An outage of the database while a run waits for the decision about a call.
import { expect, test } from 'vitest';
import { createApprovals, type ApprovalsOptions } from '../../../src/agent/sessions/approvals/approvals.ts';
import { createLiveFeed } from '../../../src/agent/sessions/event-log/live-feed.ts';
import { systemClock } from '../../../src/kernel/clock.ts';
import { Problem } from '../../../src/kernel/problem.ts';

test('a call waits for its approval while the database is unavailable', async () => {
  let reads = 0;
  const store = {
    async find() {
      reads += 1;
      if (reads === 1) throw new Problem('unavailable', 'database_unavailable', 'The connection was lost.');
      return { status: 'approved' };
    },
  };
  const approvals = createApprovals({
    agentId: 'agt_1',
    store: store as unknown as ApprovalsOptions['store'],
    eventLog: createLiveFeed() as unknown as ApprovalsOptions['eventLog'],
    clock: systemClock,
    ttlMs: 60_000,
    unattended: 'deny',
  });
  const verdict = await approvals.request({
    sessionKey: 's',
    runId: 'run_1',
    isAttended: true,
    queueLength: 0,
    toolCallId: 'call',
    toolName: 'files_write',
    input: {},
    signal: new AbortController().signal,
    writer: { record: async () => 1 },
  });
  expect(verdict).toEqual({ isApproved: true });
});
