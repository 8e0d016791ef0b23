// The bytes of a stream that passes through, and how long it waits for the first content.
import { describe, expect, test } from 'vitest';
import {
  chat,
  messages,
  type PassthroughFormat,
} from '../../../../src/gateway/ai/formats/passthrough/formats.ts';
import {
  type PassthroughStreamOptions,
  readPassthroughStream,
} from '../../../../src/gateway/ai/formats/passthrough/stream.ts';
import type { Bill } from '../../../../src/gateway/ai/billing/bill.ts';
import type { UpstreamAnswer } from '../../../../src/gateway/ai/upstream/client.ts';

function read(
  body: AsyncIterable<Uint8Array>,
  format: PassthroughFormat,
  {
    heartbeatMs = 60_000,
    ...options
  }: Partial<Pick<PassthroughStreamOptions, 'heartbeatMs' | 'firstContentMs' | 'bill'>> = {},
) {
  const answer: UpstreamAnswer = {
    mediaType: 'text/event-stream',
    body,
    redact: (text) => text,
    abort: () => {},
  };
  return readPassthroughStream(answer, {
    model: { id: 'acme/a-longer-name', modalities: ['text'] } as never,
    format,
    wantsUsage: true,
    heartbeatMs,
    ...options,
    errorFrame: () => 'the error frame',
  });
}

/** The writes to the caller when the provider's stream arrives in pieces of this size. */
async function readWrites(source: string, format: PassthroughFormat, pieceBytes: number): Promise<string[]> {
  const bytes = Buffer.from(source);
  async function* body(): AsyncGenerator<Uint8Array> {
    for (let offset = 0; offset < bytes.length; offset += pieceBytes)
      yield bytes.subarray(offset, offset + pieceBytes);
  }
  const writes: string[] = [];
  for await (const part of await read(body(), format)) writes.push(Buffer.from(part).toString());
  return writes;
}

/** Everything that the caller receives. */
async function forward(source: string, format: PassthroughFormat, pieceBytes: number): Promise<string> {
  return (await readWrites(source, format, pieceBytes)).join('');
}

const texts = ['one', 'two words', 'ü🌍', 'a\\nline', 'last'];

describe('a stream of events that differ in their text', () => {
  const delta = (text: string) => `{"index":0,"delta":{"content":"${text}"},"finish_reason":null}`;
  test.each([
    ['before the text', (text: string, model: string) => `{"model":"${model}","choices":[${delta(text)}]}`],
    ['after the text', (text: string, model: string) => `{"choices":[${delta(text)}],"model":"${model}"}`],
  ])("has the catalog's model %s in each event", async (_name, render) => {
    const streamOf = (model: string) =>
      `${texts.map((text) => `data: ${render(text, model)}\n\n`).join('')}data: [DONE]\n\n`;
    for (const pieceBytes of [50, 10_000])
      expect(await forward(streamOf('theirs'), chat, pieceBytes)).toBe(streamOf('acme/a-longer-name'));
  });

  test('keeps every byte of the messages format', async () => {
    const deltas = texts.map(
      (text) =>
        'event: content_block_delta\n' +
        `data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"${text}"}}\n\n`,
    );
    const source = `${deltas.join('')}event: message_stop\ndata: {"type":"message_stop"}\n\n`;
    for (const pieceBytes of [50, 10_000]) expect(await forward(source, messages, pieceBytes)).toBe(source);
  });
});

describe('a stream before its first content', () => {
  const openingFrame = 'event: message_start\ndata: {"type":"message_start","message":{}}\n\n';
  const content =
    'event: content_block_start\ndata: {"type":"content_block_start","index":0}\n\n' +
    'event: message_stop\ndata: {"type":"message_stop"}\n\n';

  /** A body that continues with the rest only after `release` was called. */
  function stalledBody(readRest: () => Promise<string>) {
    const { promise: received, resolve: release } = Promise.withResolvers<void>();
    async function* body(): AsyncGenerator<Uint8Array> {
      yield Buffer.from(openingFrame);
      await received;
      yield Buffer.from(await readRest());
    }
    return { body: body(), release };
  }

  test.each([
    ['continues', async () => content, content],
    ['then ends with an error', async () => Promise.reject(new Error('cut')), 'the error frame'],
  ])('is forwarded after a heartbeat without content, and %s', async (_name, readRest, end) => {
    const { body, release } = stalledBody(readRest);
    const parts = (await read(body, messages, { heartbeatMs: 1 }))[Symbol.asyncIterator]();
    expect(Buffer.from((await parts.next()).value as Uint8Array).toString()).toBe(openingFrame);
    release();
    let text = '';
    for (let next = await parts.next(); next.done !== true; next = await parts.next())
      text += Buffer.from(next.value).toString();
    expect(text.replaceAll(': hb\n\n', '')).toBe(end);
  });

  test('fails if its first content takes too long', async () => {
    const { body } = stalledBody(async () => content);
    await expect(read(body, messages, { firstContentMs: 1 })).rejects.toMatchObject({
      code: 'upstream_timeout',
    });
  });

  test('is held back until its first content', async () => {
    const writes = await readWrites(openingFrame + content, messages, 40);
    expect(writes[0]).toMatch(/^event: message_start[^]+content_block_start/);
    expect(writes.join('')).toBe(openingFrame + content);
  });

  test('is held back for at most 1,000 events', async () => {
    const ping = 'event: ping\ndata: {"type":"ping"}\n\n';
    const { promise: neverPromise } = Promise.withResolvers<void>();
    async function* body(): AsyncGenerator<Uint8Array> {
      for (let count = 0; count < 1_000; count += 1) yield Buffer.from(ping);
      await neverPromise;
    }
    const parts = (await read(body(), messages, { heartbeatMs: 3_600_000 }))[Symbol.asyncIterator]();
    expect(Buffer.from((await parts.next()).value as Uint8Array).toString()).toBe(ping.repeat(1_000));
  });

  test('counts the usage of its opening events once', async () => {
    const claims: unknown[] = [];
    const bill = {
      recordUsage: (claim: unknown) => claims.push(claim),
      countText: () => {},
      markComplete: () => {},
      settle: async () => 0,
      noteFailure: () => {},
      awaitsUsage: false,
    } as unknown as Bill;
    const usage = '{"input_tokens":7,"output_tokens":1}';
    const { promise: received, resolve: release } = Promise.withResolvers<void>();
    async function* body(): AsyncGenerator<Uint8Array> {
      yield Buffer.from(`data: {"type":"message_start","message":{"usage":${usage}}}\n\n`);
      await received;
      yield Buffer.from(content);
    }
    const readPromise = read(body(), messages, { bill });
    await expect.poll(() => claims).toHaveLength(1);
    release();
    for await (const _part of await readPromise);
    expect(claims).toMatchObject([{ tokens: { input: 7 }, isFinal: false }]);
  });
});
