// Writes of a run whose outcome is unknown after a lost connection.
import { describe, expect, test, vi } from 'vitest';
import { createRunWriter, type RunWriterOptions } from '../../../src/agent/sessions/model-loop/run-writer.ts';
import { systemClock } from '../../../src/kernel/clock.ts';
import { Problem } from '../../../src/kernel/problem.ts';

describe('recordFrom', () => {
  test('finds a write that was committed although its connection was lost', async () => {
    const committedSeq = 7;
    const nextMessage = { type: 'message.created', messageId: 'msg_2', role: 'assistant', index: 3 } as const;
    const findEvent = vi.fn<RunWriterOptions['log']['findEvent']>(async () => committedSeq);
    const tx = async () => [{ session_id: 's', head_seq: committedSeq, now: new Date() }];
    const writer = createRunWriter({
      sessionKey: 's',
      runId: 'run_1',
      log: {
        append: async () => 1,
        async transact(work) {
          await work({ tx: tx as never, appended: [], applied: [] });
          throw new Problem('unavailable', 'database_unavailable', 'The connection was lost.');
        },
        openPart() {},
        addText() {},
        closePart() {},
        findEvent,
      },
      clock: { ...systemClock, sleep: async () => {} },
      startSeq: 1,
      signal: new AbortController().signal,
      onFailure() {},
    });
    let plans = 0;
    const seq = await writer.recordFrom(async () => {
      plans += 1;
      // The first plan has taken the inputs, so a second one finds none.
      return plans === 1 ? { events: [nextMessage], change: {} } : null;
    });
    expect(seq).toBe(committedSeq);
    expect(findEvent).toHaveBeenCalledWith({ sessionKey: 's', runId: 'run_1', after: 1, event: nextMessage });
  });
});
