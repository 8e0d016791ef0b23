// One follower of a session at the seam between what was sent as a snapshot and what comes as a delta.
import { describe, expect, test } from 'vitest';
import { createBus, type OpenPart } from '../../../src/agent/sessions/event-log/bus.ts';
import { follow } from '../../../src/agent/sessions/event-log/follow.ts';
import { systemClock } from '../../../src/kernel/clock.ts';

const key = 'ses_1';
const part = (text: string): OpenPart => ({
  runId: 'run_1',
  messageId: 'msg_1',
  partId: 'prt_1',
  partType: 'text',
  startedSeq: 1,
  text,
});

describe('a follower', () => {
  // Another process writes the part: whoever watches it opens the part anew and tells its text from the beginning.
  test('sends text once when a delta repeats what its snapshot had', async () => {
    const bus = createBus();
    bus.openPart(key, part('abc'));
    const end = new AbortController();
    const session = {
      key,
      id: 's',
      headSeq: 0,
      status: 'running' as const,
      activeRunId: 'run_1',
      queueLength: 0,
    };
    const limits = { heartbeatMs: 60_000, maxReplayEvents: 100, maxBufferBytes: 1_000_000 };
    const frames = follow(
      { key, after: 1, untilIdle: false, form: 'ndjson', signal: end.signal },
      { bus, session, read: async () => [], clock: systemClock, limits },
    );
    const next = async () =>
      Buffer.from((await frames.next()).value as Uint8Array)
        .toString('utf8')
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line) as Record<string, unknown>);
    const say = (text: string) => bus.addText(key, 'prt_1', text, '2026-01-01T00:00:00.000Z');
    expect(await next()).toMatchObject([{ type: 'stream.ready' }]);
    expect(await next()).toMatchObject([{ type: 'part.snapshot', text: 'abc' }]);
    bus.openPart(key, part(''));
    say('ab');
    say('cde');
    say('f');
    expect((await next()).map(({ type, offset, delta }) => [type, offset, delta])).toEqual([
      ['part.delta', 3, 'de'],
      ['part.delta', 5, 'f'],
    ]);
    end.abort();
    await expect(frames.next()).rejects.toMatchObject({ code: 'draining' });
  });
});
