// The event stream of one reader where a snapshot is followed by deltas of the same text.
import { describe, expect, test } from 'vitest';
import { follow } from '../../../src/agent/sessions/event-log/follow.ts';
import { createLiveFeed, type OpenPart } from '../../../src/agent/sessions/event-log/live-feed.ts';
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

describe('follow', () => {
  // The poll of another process's parts opens the part again and publishes its text from the start.
  test('does not repeat the text of a snapshot', async () => {
    const feed = createLiveFeed();
    feed.openPart(key, part('abc'));
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
      { after: 1, untilIdle: false, format: 'ndjson', signal: end.signal },
      {
        feed,
        session,
        readHeadSeq: async () => 0,
        readEvents: async () => [],
        clock: systemClock,
        limits,
      },
    );
    const next = async () =>
      Buffer.from((await frames.next()).value as Uint8Array)
        .toString('utf8')
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line) as Record<string, unknown>);
    const addText = (text: string) => feed.addText(key, 'prt_1', text, '2026-01-01T00:00:00.000Z');
    expect(await next()).toMatchObject([{ type: 'stream.ready' }]);
    expect(await next()).toMatchObject([{ type: 'part.snapshot', text: 'abc' }]);
    feed.openPart(key, part(''));
    addText('ab');
    addText('cde');
    addText('f');
    expect((await next()).map(({ type, offset, delta }) => [type, offset, delta])).toEqual([
      ['part.delta', 3, 'de'],
      ['part.delta', 5, 'f'],
    ]);
    end.abort();
    await expect(frames.next()).rejects.toMatchObject({ code: 'draining' });
  });
});
