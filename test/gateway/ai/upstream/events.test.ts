// Server-sent events of providers: where an event ends, where a stream ends, and events that differ
// only in their text.
import { describe, expect, test } from 'vitest';
import { findTexts } from '../../../../src/gateway/ai/upstream/event-texts.ts';
import { EventSplitter } from '../../../../src/gateway/ai/upstream/event-splitter.ts';
import {
  completesAnswer,
  type EndRule,
  readProviderEvents,
} from '../../../../src/gateway/ai/upstream/events.ts';
import { topLevelMembers } from '../../../../src/gateway/ai/upstream/json-members.ts';
import { Problem } from '../../../../src/kernel/problem.ts';
import { createDocumentGenerator } from '../generator.ts';

const mebibyte = 1024 * 1024;
const chatRules = { maxEventBytes: mebibyte, endRule: 'done', textMembers: ['choices'] } as const;

async function* pieces(...input: (string | Buffer)[]): AsyncGenerator<Uint8Array> {
  for (const piece of input) yield typeof piece === 'string' ? Buffer.from(piece) : piece;
}

function read(...input: (string | Buffer)[]) {
  return readAs('done', ...input);
}

async function readAs(
  endRule: EndRule,
  ...input: (string | Buffer)[]
): Promise<{ texts: string[]; kinds: string[]; problem: Problem | undefined }> {
  const texts: string[] = [];
  const kinds: string[] = [];
  try {
    for await (const group of readProviderEvents(pieces(...input), { ...chatRules, endRule })) {
      for (const event of group) {
        texts.push(event.bytes.toString('utf8'));
        kinds.push(event.data.kind);
      }
    }
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    return { texts, kinds, problem: error };
  }
  return { texts, kinds, problem: undefined };
}

describe('EventSplitter', () => {
  test.each([
    ['LF', '\n'],
    ['CRLF', '\r\n'],
    ['CR', '\r'],
  ])('splits the same events wherever the network cuts them (%s)', (_name, newline) => {
    const source = ['data: {"a":1}', ': comment', 'event: x\ndata: {"b":"ü🌍"}', 'data: [DONE]']
      .map((event) => `${event.replaceAll('\n', newline)}${newline}${newline}`)
      .join('');
    const bytes = Buffer.from(source);
    const random = createDocumentGenerator(3);
    for (let round = 0; round < 300; round += 1) {
      const splitter = new EventSplitter();
      const events: Buffer[] = [];
      for (let offset = 0; offset < bytes.length;) {
        const end = Math.min(bytes.length, offset + 1 + random.below(9));
        splitter.feed(bytes.subarray(offset, end));
        for (let event = splitter.next(); event !== undefined; event = splitter.next()) events.push(event);
        offset = end;
      }
      // If the last CRLF is cut in two, its LF stays buffered, as nothing follows it.
      const sources = newline === '\r\n' ? [source, source.slice(0, -1)] : [source];
      expect(sources).toContain(Buffer.concat(events).toString('utf8'));
      expect(
        events.map(
          (event) =>
            event
              .toString('utf8')
              .trim()
              .split(/\r\n|\r|\n/)[0],
        ),
      ).toEqual(['data: {"a":1}', ': comment', 'event: x', 'data: [DONE]']);
    }
  });
});

describe('readProviderEvents', () => {
  test('ends at [DONE] and ignores everything after it', async () => {
    const { texts, problem } = await read('data: {"a":1}\n\n', 'data: [DONE]\n\ndata: {"late":1}\n\n');
    expect(texts).toEqual(['data: {"a":1}\n\n', 'data: [DONE]\n\n']);
    expect(problem).toBeUndefined();
  });

  test('reads data without a space', async () => {
    const { kinds } = await read('data:{"a":1}\n\ndata:[DONE]\n\n');
    expect(kinds).toEqual(['object', 'done']);
  });

  test('joins data of several lines', async () => {
    const { texts, kinds } = await read('data: {"a":\ndata: 2}\n\ndata: [DONE]\n\n');
    expect(kinds).toEqual(['object', 'done']);
    expect(texts[0]).toBe('data: {"a": 2}\n\n');
  });

  test('keeps the other lines of an event whose data has several lines', async () => {
    const { texts } = await read('event: x\r\nid: 7\r\ndata: {"a":\r\ndata: 2}\r\n\r\n', 'data: [DONE]\n\n');
    expect(texts[0]).toBe('event: x\nid: 7\ndata: {"a": 2}\n\n');
  });

  test.each(['data:\n\n', 'data: \r\n\r\n', 'event: ping\nid: 7\ndata:\n\n', 'data:\ndata: \n\n'])(
    'replaces an event without data by a comment: %j',
    async (event) => {
      const { texts, kinds, problem } = await read(event, 'data: {"a":1}\n\ndata: [DONE]\n\n');
      expect([texts[0], kinds, problem]).toEqual([':\n\n', ['none', 'object', 'done'], undefined]);
    },
  );

  test('throws at an event with the name error and without data', async () => {
    expect((await read('event: error\ndata:\n\n')).problem?.code).toBe('upstream_failed');
  });

  test('drops a byte order mark before the first event', async () => {
    expect(
      (await read(Buffer.of(0xef), Buffer.of(0xbb, 0xbf), 'data: {"a":1}\n\ndata: [DONE]\n\n')).texts[0],
    ).toBe('data: {"a":1}\n\n');
  });

  test('ignores [DONE] inside a text', async () => {
    const { kinds } = await read('data: {"content":"data: [DONE]\\n\\n"}\n\ndata: [DONE]\n\n');
    expect(kinds).toEqual(['object', 'done']);
  });

  test.each([
    ['an end without [DONE]', ['data: {"a":1}\n\n'], 'upstream_truncated'],
    ['an end in the middle of an event', ['data: {"a":1}\n\n', 'data: {"b"'], 'upstream_truncated'],
    ['an empty stream', [], 'upstream_truncated'],
    ['an error event', ['data: {"a":1}\n\n', 'data: {"error":{"message":"x"}}\n\n'], 'upstream_failed'],
    [
      'an event with the name error',
      ['data: {"a":1}\n\n', 'event: error\ndata: {"message":"x"}\n\ndata: [DONE]\n\n'],
      'upstream_failed',
    ],
    [
      'an event with the name error over several lines',
      ['data: {"a":1}\n\n', 'event:error\r\ndata: {"message":\r\ndata: "x"}\r\n\r\ndata: [DONE]\r\n\r\n'],
      'upstream_failed',
    ],
    [
      'an object of the kind error',
      ['data: {"a":1}\n\n', 'data: {"object":"error","message":"x","code":500}\n\ndata: [DONE]\n\n'],
      'upstream_failed',
    ],
    ['half a [DONE]', ['data: {"a":1}\n\n', 'data: [DO'], 'upstream_truncated'],
    [
      'a complete last event that is not the end of a stream',
      ['data: {"a":1}\n\n', 'data: {"b":2}'],
      'upstream_truncated',
    ],
    [
      'bytes that are not UTF-8',
      [
        'data: {"a":1}\n\n',
        Buffer.concat([Buffer.from('data: {"a":"'), Buffer.of(0xff), Buffer.from('"}\n\n')]),
      ],
      'upstream_failed',
    ],
    ['data that is not an object', ['data: {"a":1}\n\n', 'data: hello\n\n'], 'upstream_failed'],
    ['data that is cut', ['data: {"a":1}\n\n', 'data: {"a":"b\n\n'], 'upstream_failed'],
  ])('throws at %s after the whole events before it', async (_name, input, code) => {
    const { texts, problem } = await read(...input);
    expect(problem?.code).toBe(code);
    expect(texts).toEqual(input.length === 0 ? [] : ['data: {"a":1}\n\n']);
  });

  test.each(['responses', 'messages'] as const)(
    'throws at a [DONE] before the end of %s',
    async (endRule) => {
      const texts: string[] = [];
      const readPromise = (async () => {
        for await (const group of readProviderEvents(pieces('data: {"type":"delta"}\n\ndata: [DONE]\n\n'), {
          maxEventBytes: mebibyte,
          endRule,
        }))
          texts.push(...group.map(({ bytes }) => bytes.toString('utf8')));
      })();
      await expect(readPromise).rejects.toMatchObject({ code: 'upstream_truncated' });
      expect(texts).toEqual(['data: {"type":"delta"}\n\n']);
    },
  );

  test.each([
    [
      'a code that is a status',
      '{"object":"error","message":"x","type":"overloaded","code":503}',
      'done',
      503,
    ],
    ['a known code', '{"type":"error","code":"rate_limit_exceeded","message":"x"}', 'responses', 429],
    ['a known type', '{"type":"error","error":{"type":"rate_limit_error","message":"x"}}', 'messages', 429],
  ] as const)(
    'throws an error event with the status and message of %s',
    async (_name, data, rule, status) => {
      const { problem } = await readAs(rule, `data: ${data}\n\n`);
      expect(problem?.cause).toEqual({ status, words: 'x' });
    },
  );

  test.each([
    ['null', 'null', false],
    ['an empty text', '""', false],
    ['a text', '"stop"', true],
  ])(
    'completes an answer of chat completions at %s as the finish reason: %s',
    async (_name, reason, isEnd) => {
      const chunk = `data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason": ${reason}}]}\n\n`;
      const ends: boolean[] = [];
      for await (const group of readProviderEvents(pieces(chunk, 'data: [DONE]\n\n'), chatRules))
        ends.push(...group.map((event) => completesAnswer(event, 'done')));
      expect(ends).toEqual([isEnd, false]);
    },
  );

  test.each([
    ['a candidate', '{"candidates":[{"index":0},{"content":{},"finishReason":"STOP"}]}'],
    ['a blocked prompt', '{"promptFeedback":{"blockReason":"SAFETY"}}'],
  ])('accepts the end of a Gemini stream after the reason of %s', async (_name, data) => {
    const ends: boolean[] = [];
    const rules = { ...chatRules, endRule: 'gemini' } as const;
    for await (const group of readProviderEvents(pieces(`data: ${data}\n\n`), rules))
      ends.push(...group.map((event) => completesAnswer(event, 'gemini')));
    expect(ends).toEqual([true]);
  });

  test('accepts the end of a Gemini stream whose last CRLF arrives in two pieces', async () => {
    const data = '{"candidates":[{"finishReason":"STOP"}]}';
    const { kinds, problem } = await readAs('gemini', `data: ${data}\r\n\r`, '\n');
    expect([kinds, problem]).toEqual([['object'], undefined]);
  });

  test.each([
    ['a text', '{"candidates":[{"content":{"parts":[{"text":"finishReason"}]}}]}'],
    [
      'an argument of a tool call',
      '{"candidates":[{"content":{"parts":[{"functionCall":{"args":{"finishReason":"x"}}}]}}]}',
    ],
  ])('throws at the end of a Gemini stream in which only %s is named like a reason', async (_name, data) => {
    const { texts, problem } = await readAs('gemini', `data: ${data}\n\n`);
    expect(texts).toHaveLength(1);
    expect(problem?.code).toBe('upstream_truncated');
  });

  test.each(['data: [DONE]', 'data: [DONE]\n', 'data: [DONE]  \n\n', 'data: [DONE]\r\n'])(
    'ends at a last line of %j',
    async (lastLine) => {
      const { kinds, problem } = await read('data: {"a":1}\n\n', lastLine);
      expect(problem).toBeUndefined();
      expect(kinds).toEqual(['object', 'done']);
    },
  );

  test('accepts an error member that is null', async () => {
    expect((await read('data: {"error":null,"choices":[]}\n\ndata: [DONE]\n\n')).problem).toBeUndefined();
  });

  test('throws for an unfinished event above the limit', async () => {
    let suppliedBytes = 0;
    async function* endlessEvents(): AsyncGenerator<Uint8Array> {
      yield Buffer.from('data: {"a":"');
      for (;;) {
        suppliedBytes += 65_536;
        yield Buffer.alloc(65_536, 0x78);
      }
    }
    const readAll = async () => {
      for await (const _group of readProviderEvents(endlessEvents(), chatRules));
    };
    await expect(readAll()).rejects.toMatchObject({ code: 'upstream_failed' });
    expect(suppliedBytes).toBeLessThanOrEqual(mebibyte + 65_536);
  });
});

describe('events that differ in their text', () => {
  function chunk(text: string, padding = 'x'): string {
    const choices = `[{"delta":{"content":"${text}"},"finish_reason":null}]`;
    return `data: {"model":"m","choices":${choices},"obfuscation":"${padding}"}\n\n`;
  }

  async function readTexts(source: Buffer | string, chunkBytes: number) {
    const bytes = Buffer.from(source);
    const parts: Buffer[] = [];
    for (let offset = 0; offset < bytes.length; offset += chunkBytes)
      parts.push(bytes.subarray(offset, offset + chunkBytes));
    const events: { text: string; kind: string; textBytes: number }[] = [];
    for await (const group of readProviderEvents(pieces(...parts), chatRules))
      for (const { bytes: event, data } of group) {
        let textBytes = 0;
        if (data.kind === 'like') ({ textBytes } = data);
        if (data.kind === 'object') textBytes = data.texts.reduce((sum, text) => sum + text.bytes, 0);
        events.push({ text: event.toString(), kind: data.kind, textBytes });
      }
    return events;
  }

  // As written in JSON. `textBytes` is expected to be the length of the parsed text in UTF-8.
  const texts = ['one', 'two words', 'ü🌍', 'a\\nline', '', 'last', '\\u00fc', '\\"}]}'];
  const source = [...texts.map((text) => chunk(text, 'p'.repeat(text.length))), 'data: [DONE]\n\n'];

  test.each([1, 7, 100, 5_000])('are read the same in pieces of %i bytes', async (chunkBytes) => {
    const events = await readTexts(source.join(''), chunkBytes);
    expect(events.map(({ text }) => text)).toEqual(source);
    expect(events.map(({ textBytes }) => textBytes)).toEqual([3, 9, 6, 6, 0, 4, 2, 4, 0]);
  });

  test('are recognized by the bytes around the text', async () => {
    const kinds = (await readTexts(source.join(''), 5_000)).map(({ kind }) => kind);
    // The fourth text has an escape, so its event is parsed.
    expect(kinds.slice(0, 4)).toEqual(['object', 'like', 'like', 'object']);
  });

  test('are parsed when another member differs', async () => {
    const finish = chunk('b').replace('null', '"stop"');
    const events = await readTexts(`${chunk('a')}${finish}data: [DONE]\n\n`, 5_000);
    expect(events.map(({ kind }) => kind)).toEqual(['object', 'object', 'done']);
  });

  test.each([
    ['bytes that are not UTF-8', Buffer.of(0xff)],
    ['a line break', Buffer.from('\n\n')],
  ])('are refused with %s in the text', async (_name, text) => {
    const [head = '', tail = ''] = chunk('|').split('|');
    const invalidStream = Buffer.concat([
      Buffer.from(chunk('a') + head),
      text,
      Buffer.from(`${tail}data: [DONE]\n\n`),
    ]);
    await expect(readTexts(invalidStream, 5_000)).rejects.toMatchObject({ code: 'upstream_failed' });
  });
});

describe('findTexts', () => {
  function reasoningBytes(answer: object, member: string): number[] {
    const bytes = Buffer.from(JSON.stringify(answer));
    return findTexts(bytes, topLevelMembers(bytes)?.members ?? [], [member])
      .filter(({ isReasoning }) => isReasoning)
      .map((text) => text.bytes);
  }

  test('counts every block of reasoning', () => {
    const content = [
      { type: 'thinking', thinking: 'one' },
      { type: 'text', text: 'Yes.' },
      { type: 'thinking', thinking: 'three' },
    ];
    expect(reasoningBytes({ content }, 'content')).toEqual([3, 5]);
  });

  test('counts reasoning once that a server repeats under two names', () => {
    const choices = [
      { message: { reasoning: 'one', reasoning_content: 'one', content: 'Yes.' } },
      { message: { reasoning: 'three', reasoning_content: 'three', content: 'No.' } },
    ];
    expect(reasoningBytes({ choices }, 'choices')).toEqual([3, 5]);
  });
});
