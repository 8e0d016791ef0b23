// The events of a running response: their log, and a stream that repeated requests join.
import { describe, expect, test } from 'vitest';
import { createBackgroundResponses } from '../../../src/gateway/ai/responses/background.ts';
import { joinStream } from '../../../src/gateway/ai/responses/joined-streams.ts';
import type { ResponsePlan } from '../../../src/gateway/ai/responses/plan.ts';
import { createEventLog } from '../../../src/gateway/ai/responses/runs/event-log.ts';
import { createResponseRuns } from '../../../src/gateway/ai/responses/runs/runs.ts';
import type { StoredResponses } from '../../../src/gateway/ai/responses/stored/stored-responses.ts';
import { rememberNothing } from '../../../src/kernel/data/idempotency.ts';
import type { JsonRecord } from '../../../src/kernel/json-value.ts';
import { silentLog } from '../../support/databases.ts';

const options = { maxBytes: 4_000, onReaders() {}, onBytes() {} };

async function collect<T>(events: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = [];
  for await (const event of events) all.push(event);
  return all;
}

describe('createEventLog', () => {
  test('gives each reader all events after its position', async () => {
    const log = createEventLog<string>(options);
    log.append({ sequence: 0, item: 'a', bytes: 1 });
    const [allEvents, laterEvents] = [collect(log.read(-1)), collect(log.read(0))];
    log.append({ sequence: 1, item: 'b', bytes: 1 });
    log.end();
    expect([await allEvents, await laterEvents, await collect(log.read(-1))]).toEqual([
      ['a', 'b'],
      ['b'],
      ['a', 'b'],
    ]);
  });

  test('refuses a reader that needs a dropped event', async () => {
    const log = createEventLog<number>(options);
    for (let sequence = 0; sequence < 100; sequence += 1)
      log.append({ sequence, item: sequence, bytes: 100 });
    log.end();
    expect(log.bytes).toBeLessThan(options.maxBytes);
    expect(() => log.read(-1)).toThrow(expect.objectContaining({ code: 'stream_not_available' }));
    expect(await collect(log.read(97))).toEqual([98, 99]);
  });

  test('refuses a reader that falls behind', async () => {
    const log = createEventLog<number>(options);
    const reader = log.read(-1);
    for (let sequence = 0; sequence < 100; sequence += 1)
      log.append({ sequence, item: sequence, bytes: 100 });
    await expect(collect(reader)).rejects.toMatchObject({ code: 'stream_not_available' });
  });

  test('does not count a reader that leaves while it waits', async () => {
    let readers = 0;
    const log = createEventLog<string>({ ...options, onReaders: (count) => (readers = count) });
    const reader = log.read(-1);
    const next = reader.next();
    expect(readers).toBe(1);
    await reader.return?.();
    expect(readers).toBe(0);
    expect(await next).toMatchObject({ done: true });
  });
});

type StreamOptions = Parameters<typeof joinStream>[0];

/** Options of a stream that emits two events, whose row is kept nowhere. */
function streamOptions(runs: StreamOptions['runs'], changes: Partial<StreamOptions>): StreamOptions {
  async function* numbers() {
    yield* [{ data: 1 }, { data: 2 }];
  }
  return {
    runs,
    storedResponses: {
      begin: () => Promise.resolve(),
      find: () => Promise.reject(new Error('No stream is read again.')),
      remove: () => Promise.resolve(),
    },
    background: { keepLease: () => () => {} },
    log: silentLog,
    owner: { kind: 'user', id: 'usr_1' },
    response: {},
    remember: rememberNothing,
    signal: new AbortController().signal,
    graceMs: 60_000,
    afterSequence: -1,
    async answer(_detached, beforeSend) {
      await beforeSend();
      return { status: 200, headers: {}, events: numbers() };
    },
    ...changes,
  };
}

describe('a stream with an Idempotency-Key', () => {
  test('is complete when it is aborted while its row is deleted', async () => {
    const runs = createResponseRuns({ log: silentLog });
    let deletedRow: string | undefined;
    const storedResponses = {
      begin: () => Promise.resolve(),
      find: () => Promise.reject(new Error('No stream is read again.')),
      async remove({ responseId }: { responseId: string }) {
        deletedRow = responseId;
        // The regular check for cancellations aborts a run whose row it does not find.
        runs.find(responseId)?.abort();
      },
    };
    const reply = await joinStream(streamOptions(runs, { storedResponses }));
    const events = 'events' in reply ? await collect(reply.events) : [];
    expect(events).toMatchObject([{ data: 1 }, { data: 2 }]);
    expect(deletedRow).toMatch(/^run_/);
    await runs.close();
  });

  test('is aborted without a reader when its client left before the start', async () => {
    const runs = createResponseRuns({ log: silentLog });
    const reply = joinStream(
      streamOptions(runs, {
        signal: AbortSignal.abort(),
        graceMs: 1,
        answer: ({ signal }) =>
          new Promise((_resolve, reject) =>
            signal.addEventListener('abort', () => reject(new Error('aborted')), { once: true }),
          ),
      }),
    );
    await expect(reply).rejects.toThrow('aborted');
    await runs.close();
  });
});

describe('the log of a stream with an Idempotency-Key', () => {
  test('counts the bytes of its events in UTF-8', async () => {
    const runs = createResponseRuns({ log: silentLog });
    async function* longEvents() {
      yield { data: 'a'.repeat(1_000) };
      yield { data: '\u20ac'.repeat(1_000) };
    }
    const sizes: number[] = [];
    let runId = '';
    const reply = await joinStream(
      streamOptions(runs, {
        storedResponses: {
          begin: async ({ responseId }) => void (runId = responseId),
          find: () => Promise.reject(new Error('No stream is read again.')),
          remove: () => Promise.resolve(),
        },
        async answer(_detached, beforeSend) {
          await beforeSend();
          return { status: 200, headers: {}, events: longEvents() };
        },
      }),
    );
    for await (const _event of 'events' in reply ? reply.events : [])
      sizes.push(runs.find(runId)?.log.bytes ?? 0);
    // The euro sign has three bytes. The rest is the quotes and the estimate for two entries.
    expect(sizes.at(-1)).toBeGreaterThanOrEqual(4_000);
    await runs.close();
  });

  test('numbers bytes by the sequence of the provider, not by a nested member of that name', async () => {
    const runs = createResponseRuns({ log: silentLog });
    const nested = {
      type: 'response.created',
      response: { tools: [{ examples: [{ sequence_number: 90 }] }] },
    };
    const frames = [
      { ...nested, sequence_number: 0 },
      { type: 'response.completed', sequence_number: 1 },
    ].map((event) => `data: ${JSON.stringify(event)}\n\n`);
    const reply = await joinStream(
      streamOptions(runs, {
        afterSequence: 0,
        async answer(_detached, beforeSend) {
          await beforeSend();
          return { status: 200, headers: {}, content: Buffer.from(frames.join('')) };
        },
      }),
    );
    const content = 'content' in reply ? await collect(reply.content as AsyncIterable<Buffer>) : [];
    expect(Buffer.concat(content).toString()).toBe(frames[1]);
    await runs.close();
  });
});

describe('createBackgroundResponses', () => {
  test('starts no response whose client left before the start', async () => {
    const runs = createResponseRuns({ log: silentLog });
    const background = createBackgroundResponses({
      runs,
      storedResponses: {} as StoredResponses,
      log: silentLog,
    });
    const response = background.start({
      plan: { responseId: 'resp_1', owner: { kind: 'user', id: 'usr_1' } } as ResponsePlan,
      response: {},
      remember: rememberNothing,
      signal: AbortSignal.abort(),
      answer: ({ signal }) =>
        new Promise((_resolve, reject) => {
          if (signal.aborted) reject(new Error('aborted'));
          else signal.addEventListener('abort', () => reject(new Error('aborted')), { once: true });
        }),
    });
    await expect(response).rejects.toThrow('aborted');
    await background.close();
  });

  test.each([2 ** 32 - 2, -1, '__proto__', undefined])(
    'keeps the complete items of a failed response: index %j',
    async (outputIndex) => {
      const runs = createResponseRuns({ log: silentLog });
      const finished = Promise.withResolvers<JsonRecord>();
      const background = createBackgroundResponses({
        runs,
        storedResponses: {
          begin: async () => {},
          finish: async (_responseId, response) => finished.resolve(response),
          endRun() {},
        } as Partial<StoredResponses> as StoredResponses,
        log: silentLog,
      });
      async function* events() {
        const type = 'response.output_item.done';
        yield { data: { type, output_index: 1, item: { id: 'b' } } };
        yield { data: { type, output_index: 0, item: { id: 'a' } } };
        yield { data: { type, output_index: outputIndex, item: { id: 'c' } } };
        yield { data: { type: 'error', message: 'failed' } };
      }
      await background.start({
        plan: { responseId: 'resp_1', owner: { kind: 'user', id: 'usr_1' }, request: {} } as ResponsePlan,
        response: {},
        remember: rememberNothing,
        signal: new AbortController().signal,
        async answer(_detached, beforeSend) {
          await beforeSend();
          return { events: events() };
        },
      });
      const { output, status } = await finished.promise;
      expect(status).toBe('failed');
      const ids = (output as JsonRecord[]).map((item) => item['id']);
      expect(ids).toHaveLength(3);
      expect(ids.filter((itemId) => itemId !== 'c')).toEqual(['a', 'b']);
      await background.close();
    },
  );
});
