// A session for display, built from its messages and events.
import { describe, expect, test } from 'vitest';
import type { Session, SessionEvent, UiMessage } from '@townhall/agent';
import { createThread } from '../../src/console/pages/conversation/thread.ts';

const session = { status: 'idle', activeRunId: null, title: null, archivedAt: null } as Session;
const message = (role: UiMessage['role'], id: string, metadata: Record<string, unknown>): UiMessage => ({
  id,
  role,
  parts: [{ type: 'text', text: id }],
  metadata,
});
const threadOf = (messages: UiMessage[]) =>
  createThread({ session, messages, seq: 1, queue: [], approvals: [], runs: [] });

describe('thread.prompt', () => {
  test('returns the input of an answer that was regenerated twice', () => {
    const thread = threadOf([
      message('user', 'Other.', { runId: 'run_0' }),
      message('user', 'Go.', { runId: 'run_1' }),
      message('assistant', 'A', { runId: 'run_1', status: 'replaced', replacedBy: 'run_2' }),
      message('assistant', 'B', { runId: 'run_2', status: 'replaced', replacedBy: 'run_3' }),
      message('assistant', 'C', { runId: 'run_3', status: 'failed' }),
    ]);
    const answer = thread.messages().find(({ id }) => id === 'C');
    expect(answer && thread.prompt(answer)).toMatchObject({ id: 'Go.' });
  });
});

describe('a run that waits for its model', () => {
  const busySession: Session = { ...session, status: 'running', activeRunId: 'run_1' };
  const event = (seq: number, members: object) =>
    ({ sessionId: 's', time: '2026-11-23T12:00:00.000Z', seq, ...members }) as SessionEvent;
  const waitingEvent = (seq: number, runId = 'run_1') =>
    event(seq, {
      type: 'run.waiting',
      runId,
      step: 1,
      reason: 'rate_limited',
      until: '2026-11-23T12:05:00.000Z',
      code: 'rate_limited',
    });
  const open = () =>
    createThread({
      session: busySession,
      messages: [message('user', 'Go.', { runId: 'run_1' })],
      seq: 10,
      queue: [],
      approvals: [],
      runs: [],
    });
  const waitRemarks = (thread: ReturnType<typeof open>) =>
    thread.remarks().filter(({ tone }) => tone === 'wait');

  test('has one line for several waits', () => {
    const thread = open();
    for (const seq of [11, 12]) thread.apply(waitingEvent(seq));
    expect(waitRemarks(thread)).toHaveLength(1);
  });

  test('has its line on a page that opens during the wait', () => {
    const thread = open();
    thread.apply(waitingEvent(9));
    expect(waitRemarks(thread)).toMatchObject([{ afterMessageId: 'Go.' }]);
    expect(thread.seq()).toBe(10);
  });

  test('has no line from before its next step', () => {
    const thread = open();
    thread.apply(waitingEvent(8));
    thread.apply(event(9, { type: 'run.step.ended', runId: 'run_1', step: 1 }));
    expect(waitRemarks(thread)).toEqual([]);
  });

  test('has no line of an earlier run', () => {
    const thread = open();
    thread.apply(waitingEvent(9, 'run_0'));
    expect(waitRemarks(thread)).toEqual([]);
  });

  test('loses its line when it ends', () => {
    const thread = open();
    thread.apply(waitingEvent(11));
    thread.apply(event(12, { type: 'run.settled', runId: 'run_1', outcome: 'completed' }));
    expect(waitRemarks(thread)).toEqual([]);
  });
});

describe('thread.apply of a stream.reset', () => {
  const resetAt = (headSeq: number) =>
    ({
      type: 'stream.reset',
      sessionId: 's',
      time: '',
      after: 0,
      headSeq,
      reason: 'too_old',
    }) as SessionEvent;
  const open = () => createThread({ session, messages: [], seq: 10, queue: [], approvals: [], runs: [] });

  test('continues when no event is missing', () => {
    expect(open().apply(resetAt(10))).toBe(true);
  });

  test('requires a new thread when events are missing', () => {
    expect(open().apply(resetAt(11))).toBe(false);
  });
});
