// Limits of the local models. They run in the gateway's own process, so the work of each call is bounded, and
// an error names the member that exceeds a limit.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { ModelCall, PromptMessage } from '../../../../src/gateway/ai/hub/language-model.ts';
import { echoModel } from '../../../../src/gateway/ai/providers/local/echo.ts';
import { cutAtStops } from '../../../../src/gateway/ai/providers/local/stop-sequences.ts';
import { splitWords } from '../../../../src/gateway/ai/providers/local/tokens.ts';
import {
  createBudget,
  maxBytes,
  minimalInstance,
} from '../../../../src/gateway/ai/providers/local/minimal-instance.ts';
import { errorOf, partsOf, startAi, type World } from '../world.ts';

const list = (items: object, minItems = 1000) => ({ type: 'array', minItems, items });
const hugeSchema = list(list({ type: 'string', minLength: 10_000 }));
const node = {
  type: 'object',
  required: ['a', 'b', 'c', 'd'],
  properties: { a: { $ref: '#' }, b: { $ref: '#' }, c: { $ref: '#' }, d: { $ref: '#' } },
};

describe('minimalInstance', () => {
  test.each<[string, object]>([
    ['nested lists of long strings', hugeSchema],
    ['a list of a billion items', { type: 'array', minItems: 1e9 }],
    ['a string of a billion characters', { type: 'string', minLength: 1e9 }],
    ['a schema that refers to itself four times', node],
    ['a long constant in each item', list({ const: 'x'.repeat(1_000) })],
    ['a long default in each item', list({ default: ['x'.repeat(1_000)] })],
    ['a long enumerated value in each item', list({ enum: [{ a: 'x'.repeat(1_000) }] })],
    ['long names in each item', list({ required: ['x'.repeat(1_000)] })],
    ['many choices in each item', list({ anyOf: Array.from({ length: 1_000 }, () => ({ type: 'object' })) })],
    [
      'many parts in each item',
      list({ allOf: Array.from({ length: 1_000 }, (_, index) => ({ properties: { [index]: {} } })) }),
    ],
    ['a long pointer in each item', list({ $ref: `#${'/a'.repeat(30_000)}` })],
    [
      'required names that are not strings, in each item',
      list({ required: Array.from({ length: 20_000 }, () => 1) }),
    ],
    ['parts that are not schemas, in each item', list({ allOf: Array.from({ length: 20_000 }, () => 1) })],
  ])('refuses %s', (_name, schema) => {
    expect(() => minimalInstance(schema, createBudget('schema'))).toThrow(
      expect.objectContaining({ status: 422, code: 'unsupported_by_model', param: 'schema' }),
    );
  });

  test('builds a value close to the budget', () => {
    expect(minimalInstance({ type: 'string', minLength: maxBytes - 100 })).toHaveLength(maxBytes - 100);
    expect(minimalInstance(list({ type: 'null' }, 4_000))).toHaveLength(4_000);
  });

  test.each(['#/%', '#/%E0%A4%A', '#/$defs/none', 'https://example.com/', '#/constructor'])(
    'ignores the pointer %s that leads nowhere',
    (pointer) => {
      expect(minimalInstance({ $ref: pointer })).toBe(null);
    },
  );

  test('treats names of Object.prototype as plain names', () => {
    expect(
      JSON.stringify(
        minimalInstance({ type: 'object', required: ['constructor', '__proto__'], properties: {} }),
      ),
    ).toBe('{"constructor":null,"__proto__":null}');
    expect(minimalInstance({ type: 'string', format: 'constructor' })).toBe('');
  });
});

describe('a call of a local model', () => {
  let world: World;
  beforeAll(async () => {
    world = await startAi({ balance: 0n });
  });
  afterAll(() => world.close());

  const tool = (schema: object) => ({
    text: { name: 't', input_schema: schema },
    stream: { type: 'function', name: 't', inputSchema: schema },
    chat: { type: 'function', function: { name: 't', parameters: schema } },
  });
  const messages = [{ role: 'user', content: 'x' }];
  const prompt = [{ role: 'user', content: [{ type: 'text', text: 'x' }] }];

  test.each<[string, string, object, string]>([
    [
      'text',
      'a response',
      { prompt: 'x', response_format: { type: 'json', schema: hugeSchema } },
      'response_format.schema',
    ],
    [
      'text',
      'a tool',
      { prompt: 'x', tools: [tool(hugeSchema).text], tool_choice: 'required' },
      'tools[0].input_schema',
    ],
    [
      'text',
      'a recursive tool',
      { prompt: 'x', tools: [tool(node).text], tool_choice: { tool_name: 't' } },
      'tools[0].input_schema',
    ],
    [
      'stream',
      'a response',
      { prompt, responseFormat: { type: 'json', schema: hugeSchema } },
      'responseFormat.schema',
    ],
    [
      'stream',
      'a tool',
      { prompt, tools: [tool(hugeSchema).stream], toolChoice: { type: 'required' } },
      'tools[0].inputSchema',
    ],
    [
      'chat/completions',
      'a response',
      { messages, response_format: { type: 'json_schema', json_schema: { name: 'n', schema: hugeSchema } } },
      'response_format.json_schema.schema',
    ],
    [
      'chat/completions',
      'a tool',
      { messages, stream: true, tools: [tool(hugeSchema).chat], tool_choice: 'required' },
      'tools[0].function.parameters',
    ],
  ])('is refused in %s for %s whose smallest value is too large', async (format, _name, body, param) => {
    const response = await world.post(`/v1/ai/${format}`, { model: 'local/echo', ...body });
    expect(response.status).toBe(422);
    expect(await errorOf(response)).toMatchObject({ code: 'unsupported_by_model', param });
  });

  const longText = 'x '.repeat(40_000);
  test.each<[string, string, object, string]>([
    ['text', 'a prompt', { prompt: longText }, 'prompt'],
    ['text', 'a system prompt', { system: longText, prompt: 'x' }, 'system'],
    [
      'text',
      'a conversation',
      { messages: Array.from({ length: 100 }, () => ({ role: 'user', content: 'x'.repeat(1_000) })) },
      'messages',
    ],
    ['text', 'tools', { prompt: 'x', tools: [tool({ description: longText }).text] }, 'tools'],
    [
      'text',
      'a schema',
      { prompt: 'x', response_format: { type: 'json', schema: { description: longText } } },
      'response_format',
    ],
    [
      'stream',
      'a prompt',
      { prompt: [{ role: 'user', content: [{ type: 'text', text: longText }] }] },
      'prompt',
    ],
    [
      'stream',
      'many empty lists',
      {
        prompt: [
          ...prompt,
          {
            role: 'assistant',
            content: [
              {
                type: 'tool-call',
                toolCallId: 'c',
                toolName: 't',
                input: Array.from({ length: 50_000 }, () => []),
              },
            ],
          },
        ],
      },
      'prompt',
    ],
    ['chat/completions', 'a conversation', { messages: [{ role: 'user', content: longText }] }, 'messages'],
  ])('is refused in %s for %s beyond 64 KiB', async (format, _name, body, param) => {
    for (const model of ['local/echo', 'local/guide']) {
      const response = await world.post(`/v1/ai/${format}`, { model, ...body });
      expect(response.status).toBe(422);
      expect(await errorOf(response)).toMatchObject({
        code: 'unsupported_by_model',
        param,
        message: expect.stringContaining('64 KiB'),
      });
    }
  });

  test('accepts input of almost 64 KiB', async () => {
    const text = 'word '.repeat(13_000).trim();
    const response = await world.post('/v1/ai/text', { model: 'local/echo', prompt: text });
    expect(await response.json()).toMatchObject({
      parts: [{ text }],
      metadata: { usage: { input_tokens: 13_000, output_tokens: 13_000 } },
    });
  });
});

// With backtracking expressions each of these would take minutes.
test.each<[string, string]>([
  ['spaces', ' '.repeat(1_000_000)],
  ['a word after spaces', `${' '.repeat(1_000_000)}x`],
  ['words between runs of spaces', `${' '.repeat(250_000)}x`.repeat(4)],
])('splitWords splits a million characters of %s', (_name, text) => {
  expect(splitWords(text).join('')).toBe(text);
});

describe('cutAtStops', () => {
  test.each<[string, string[], string]>([
    ['one two three', ['two'], 'one '],
    ['one two three', ['three', 'two', ''], 'one '],
    ['one two three', ['o t', 'wo', 'ne t'], 'o'],
    ['one two', ['none', ''], 'one two'],
    ['one', ['one two'], 'one'],
    ['aaab', ['aab'], 'a'],
    ['abacabab', ['abab', 'caba'], 'aba'],
    ['abab', ['bab', 'abab'], ''],
  ])('cuts %j before the first of %j', (text, stopSequences, expected) => {
    expect(cutAtStops(text, stopSequences)).toBe(expected);
  });

  test.each<[string, string]>([
    ['is missing at the end', `${'a'.repeat(500_000)}b`],
    ['is missing at the beginning', `b${'a'.repeat(500_000)}`],
  ])('searches in linear time for a sequence that %s', (_name, stop) => {
    const text = 'a'.repeat(1_000_000);
    expect(cutAtStops(text, [stop])).toHaveLength(1_000_000);
  });
});

describe('local/echo', () => {
  const model = echoModel({ clock: { sleep: async () => {} } });
  const call = (prompt: PromptMessage[], overrides: Partial<ModelCall> = {}): ModelCall => ({
    prompt,
    reasoningEffort: undefined,
    signal: new AbortController().signal,
    ...overrides,
  });
  const user = (text: string): PromptMessage => ({ role: 'user', content: [{ type: 'text', text }] });

  test('refuses more than a thousand directives', async () => {
    await expect(model.generate(call([user('@reasoning\n'.repeat(1_001))]))).rejects.toMatchObject({
      status: 422,
      param: 'prompt',
    });
    expect((await model.generate(call([user('@tool t\n'.repeat(1_000))]))).content).toHaveLength(1_000);
  });

  test('refuses more than sixteen stop sequences', async () => {
    const stopSequences = Array.from({ length: 17 }, (_, index) => String(index));
    await expect(model.generate(call([user('x')], { stopSequences }))).rejects.toMatchObject({
      status: 422,
      param: 'stop',
    });
  });

  test.each([
    ['@tool ', 'tool-call'],
    ['@tool x', 'tool-call'],
    ['@reasoning ', 'reasoning'],
  ])('reads the directive %j with endless white space', async (start, type) => {
    const text = `${start}${' '.repeat(500_000)}\u2028${'y'.repeat(500_000)}\u2028z`;
    expect(await model.generate(call([user(text)]))).toMatchObject({ content: [{ type }] });
  });

  test('refuses deeply nested tool arguments', async () => {
    let input: unknown = [];
    for (let depth = 0; depth < 30_000; depth += 1) input = [input];
    const prompt: PromptMessage[] = [
      user('x'),
      { role: 'assistant', content: [{ type: 'tool-call', toolCallId: 'c', toolName: 't', input }] },
    ];
    await expect(model.generate(call(prompt))).rejects.toMatchObject({ status: 422 });
  });

  test('yields to the event loop within a long answer', async () => {
    let isOver = false;
    let turns = 0;
    const count = () => {
      turns += 1;
      if (!isOver) setImmediate(count);
    };
    setImmediate(count);
    // 30,000 words, with a turn after each 128 of them.
    await model.generate(call([user('x '.repeat(30_000))]));
    isOver = true;
    expect(turns).toBeGreaterThan(100);
  });
});

describe('an answer of local/echo past its deadline', () => {
  let world: World;
  beforeAll(async () => {
    world = await startAi({ timeouts: { answerMs: 50, streamMs: 50 } });
  });
  afterAll(() => world.close());
  const text = '@delay 60000\nx y';

  test('is a 504 without a stream', async () => {
    const response = await world.post('/v1/ai/text', { model: 'local/echo', prompt: text });
    expect(response.status).toBe(504);
    expect(await errorOf(response)).toMatchObject({ code: 'upstream_timeout' });
  });

  test('ends with an error as a stream', async () => {
    const prompt = [{ role: 'user', content: [{ type: 'text', text }] }];
    const { parts } = await partsOf(await world.post('/v1/ai/stream', { model: 'local/echo', prompt }));
    expect(parts.at(-1)).toMatchObject({ type: 'finish', finishReason: { unified: 'error' } });
  });
});

describe('failing calls of local/echo', () => {
  test('do not open the circuit breaker', async () => {
    const world = await startAi();
    try {
      for (let count = 0; count < 12; count += 1) {
        expect((await world.post('/v1/ai/text', { model: 'local/echo', prompt: '@fail' })).status).toBe(502);
        await (
          await world.post('/v1/ai/stream', {
            model: 'local/echo',
            prompt: [{ role: 'user', content: [{ type: 'text', text: '@fail-after 1\nx y' }] }],
          })
        ).text();
      }
      expect((await world.post('/v1/ai/text', { model: 'local/echo', prompt: 'x' })).status).toBe(200);
    } finally {
      await world.close();
    }
  });
});

describe('LOCAL_MODELS=off', () => {
  test('removes the local models from the catalog', async () => {
    const world = await startAi({ localModels: false });
    try {
      expect(await (await world.get('/v1/ai/models')).json()).toMatchObject({ items: [] });
      expect((await world.post('/v1/ai/text', { model: 'local/echo', prompt: 'x' })).status).toBe(404);
      expect((await world.post('/v1/ai/tts', { model: 'local/flite', text: 'x' })).status).toBe(404);
    } finally {
      await world.close();
    }
  });

  test('refuses a models file that refers to them', async () => {
    const models = JSON.stringify({
      providers: [{ id: 'mine', kind: 'local' }],
      models: [
        { id: 'mine/echo', provider: 'mine', upstream_model: 'echo', modalities: ['text'], rates: null },
      ],
    });
    await expect(startAi({ localModels: false, models })).rejects.toThrow('LOCAL_MODELS is off');
  });
});
