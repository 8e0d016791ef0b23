// The answers of local/echo and local/guide, and the smallest values of a schema.
import { mkdtemp, mkdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Ajv2020 } from 'ajv/dist/2020.js';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { echoModel } from '../../../../src/gateway/ai/providers/local/echo.ts';
import { guideModel } from '../../../../src/gateway/ai/providers/local/guide.ts';
import { splitWords } from '../../../../src/gateway/ai/providers/local/tokens.ts';
import { minimalInstance } from '../../../../src/gateway/ai/providers/local/minimal-instance.ts';
import type { ModelCall, StreamPart } from '../../../../src/gateway/ai/hub/language-model.ts';
import { partsOf, startAi, type World } from '../world.ts';

describe('local/echo', () => {
  const sleepsMs: number[] = [];
  const model = echoModel({
    clock: {
      sleep: async (ms, signal) => {
        sleepsMs.push(ms);
        signal?.throwIfAborted();
      },
    },
  });
  const call = (text: string, overrides: Partial<ModelCall> = {}): ModelCall => ({
    prompt: [{ role: 'user', content: [{ type: 'text', text }] }],
    reasoningEffort: undefined,
    signal: new AbortController().signal,
    ...overrides,
  });

  test('gives the same answer for the same call', async () => {
    expect(await model.generate(call('a  b\n\nc'))).toEqual(await model.generate(call('a  b\n\nc')));
  });

  test('repeats the text without white space around it', async () => {
    expect((await model.generate(call(' a  b\n\nc '))).content).toEqual([
      { type: 'text', text: 'a  b\n\nc' },
    ]);
  });

  test('repeats lines that are not directives', async () => {
    expect((await model.generate(call('@alice hello\n @fail is a word'))).content).toEqual([
      { type: 'text', text: '@alice hello\n @fail is a word' },
    ]);
  });

  test('waits for the milliseconds of @delay before each word', async () => {
    sleepsMs.length = 0;
    await model.generate(call('@delay 25\na b c'));
    expect(sleepsMs).toEqual([25, 25, 25]);
  });

  test('stops when the caller aborts', async () => {
    const abort = new AbortController();
    const parts: StreamPart[] = [];
    const readPromise = (async () => {
      for await (const part of model.stream(call('a b c d', { signal: abort.signal }))) {
        parts.push(part);
        if (parts.length === 3) abort.abort(new Error('aborted'));
      }
    })();
    await expect(readPromise).rejects.toThrow('aborted');
    expect(parts).toHaveLength(3);
  });

  test('counts reasoning and text against one limit', async () => {
    const { content, finishReason, usage } = await model.generate(
      call('@reasoning one two\nthree four', { maxOutputTokens: 3 }),
    );
    expect(content).toEqual([
      { type: 'reasoning', text: 'one two' },
      { type: 'text', text: 'three' },
    ]);
    expect(finishReason.unified).toBe('length');
    expect(usage.outputTokens).toEqual({ total: 3, text: 1, reasoning: 2 });
  });

  test('ends with length after @length', async () => {
    expect((await model.generate(call('@length\na'))).finishReason.unified).toBe('length');
  });

  const tools = [
    {
      type: 'function' as const,
      name: 'find',
      inputSchema: {
        type: 'object' as const,
        required: ['q'],
        properties: { q: { type: 'string' as const, minLength: 1 } },
      },
    },
  ];

  test('calls a required tool with the smallest valid input', async () => {
    expect(
      (await model.generate(call('x', { tools, toolChoice: { type: 'required' } }))).content,
    ).toContainEqual({ type: 'tool-call', toolCallId: 'call_1', toolName: 'find', input: '{"q":"x"}' });
  });

  test('calls no tool when the choice is none', async () => {
    expect(
      (await model.generate(call('@tool find {}', { tools, toolChoice: { type: 'none' } }))).content,
    ).toEqual([]);
  });

  test('answers with the result of a tool', async () => {
    const prompt: ModelCall['prompt'] = [
      { role: 'user', content: [{ type: 'text', text: '@tool t' }] },
      { role: 'assistant', content: [{ type: 'tool-call', toolCallId: 'c', toolName: 't', input: {} }] },
      {
        role: 'tool',
        content: [
          {
            type: 'tool-result',
            toolCallId: 'c',
            toolName: 't',
            output: { type: 'json', value: { files: 3 } },
          },
        ],
      },
    ];
    expect((await model.generate(call('', { prompt }))).content).toEqual([
      { type: 'text', text: '{"files":3}' },
    ]);
  });

  test.each(['', ' ', 'a', ' a ', 'a\n\nb  ', '\t x y\n'])(
    'splits %j into pieces that join to the same text',
    (text) => {
      expect(splitWords(text).join('')).toBe(text);
    },
  );
});

describe('minimalInstance', () => {
  test.each<object>([
    { type: 'object', required: ['a'], properties: { a: { type: 'string' } }, additionalProperties: false },
    { type: 'array', minItems: 3, items: { enum: ['x', 'y'] } },
    { type: 'integer', minimum: 3, multipleOf: 5 },
    { type: 'number', exclusiveMinimum: 0, maximum: 0.5 },
    { type: 'number', exclusiveMaximum: -2 },
    { type: 'number', minimum: 0.2, maximum: 0.8 },
    { type: 'number', exclusiveMinimum: 0, exclusiveMaximum: 1 },
    { type: 'number', minimum: -0.8, maximum: -0.2 },
    { type: 'integer', exclusiveMinimum: -7, maximum: -3, multipleOf: 2 },
    { type: ['string', 'null'], minLength: 4 },
    { const: { deep: [1] } },
    {
      anyOf: [
        { type: 'object', required: ['k'], properties: { k: { type: 'boolean' } } },
        { type: 'string' },
      ],
    },
    { oneOf: [{ type: 'null' }, { type: 'number' }] },
    {
      type: 'object',
      required: ['a'],
      properties: { a: { type: 'string' } },
      anyOf: [{ required: ['b'], properties: { b: { type: 'integer' } } }, { required: ['c'] }],
      oneOf: [{ required: ['d'] }, { required: ['e'] }],
      allOf: [{ required: ['f'] }],
    },
    {
      allOf: [
        { type: 'object', required: ['a'], properties: { a: { type: 'integer' } } },
        { required: ['b'], properties: { b: { type: 'string', format: 'date-time' } } },
      ],
    },
    {
      $ref: '#/$defs/node',
      $defs: {
        node: {
          type: 'object',
          required: ['name'],
          properties: { name: { type: 'string' }, next: { $ref: '#/$defs/node' } },
        },
      },
    },
    {
      type: 'object',
      required: ['list'],
      properties: {
        list: { type: 'array', prefixItems: [{ type: 'string' }, { type: 'integer' }], minItems: 2 },
      },
    },
    { type: 'array', prefixItems: [{ type: 'string' }, { type: 'integer' }], minItems: 1, maxItems: 1 },
    {
      type: 'object',
      required: ['b'],
      properties: {
        a: { anyOf: [{ type: 'integer' }, { type: 'string' }] },
        b: { $ref: '#/properties/a/anyOf/1' },
      },
    },
    {
      allOf: [{ $ref: '#/$defs/base' }, { required: ['b'], properties: { b: { type: 'string' } } }],
      $defs: { base: { type: 'object', required: ['a'], properties: { a: { type: 'string' } } } },
    },
    {},
  ])('builds a valid value for %j', (schema) => {
    const ajv = new Ajv2020({ strict: false, validateFormats: false, logger: false });
    const value = minimalInstance(schema);
    expect(ajv.validate(schema, value), `${JSON.stringify(value)} ${ajv.errorsText()}`).toBe(true);
  });

  test('terminates for a recursive schema', () => {
    expect(() =>
      JSON.stringify(
        minimalInstance({ $ref: '#', type: 'object', required: ['a'], properties: { a: { $ref: '#' } } }),
      ),
    ).not.toThrow();
  });
});

describe('local/guide', () => {
  let world: World;
  let folder: string;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'townhall-guide-'));
    await mkdir(join(folder, 'guides'));
    await writeFile(
      join(folder, 'guides', 'login.md'),
      [
        '# Accounts',
        'Who you are.',
        '## Log in',
        'Post to `/v1/accounts/login/start` and keep the token; ' +
          'see [Leave](#leave), [Logs](../logs.md) and [RFC](https://a.test/rfc).',
        '```sh\n# not a heading\ncurl x\n```',
        '## Leave',
        'Throw the token away.\n',
      ].join('\n\n'),
    );
    await writeFile(
      join(folder, 'logs.md'),
      '# Logs\n\nEach line of the log is a JSON object. Logs go to standard output.\n',
    );
    await writeFile(join(folder, 'metrics.md'), `# Metrics\n\nPrometheus ${'counts '.repeat(1_000)}\n`);
    await writeFile(
      join(folder, 'pictures.md'),
      `# Pictures\n\n![A screenshot](shot.png) and code:\n\n\`\`\`sh\n${'snapshot\n'.repeat(400)}\`\`\`\n`,
    );
    world = await startAi({ guideDirectory: folder });
  });
  afterAll(async () => {
    await world.close();
    await rm(folder, { recursive: true });
  });
  const ask = async (prompt: string) => {
    const { parts } = (await (await world.post('/v1/ai/text', { model: 'local/guide', prompt })).json()) as {
      parts: { text: string }[];
    };
    return parts[0]?.text ?? '';
  };

  test('quotes the best section with its source', async () => {
    const answer = await ask('How do I log in?');
    expect(answer).toContain('found by search (no language model wrote this)');
    expect(answer).toContain('Post to `/v1/accounts/login/start`');
    expect(answer).toContain('# not a heading');
    expect(answer).toContain('Sources:\n- Accounts: Log in (guides/login.md)');
    expect(answer).not.toContain('Throw the token away');
  });

  test('quotes links within the documentation as their text', async () => {
    expect(await ask('How do I log in?')).toContain('see Leave, Logs and [RFC](https://a.test/rfc).');
  });

  test('ends its answer before a stop sequence', async () => {
    const response = await world.post('/v1/ai/text', {
      model: 'local/guide',
      prompt: 'How do I log in?',
      stop: [' (no', 'login/start'],
    });
    const { parts } = (await response.json()) as { parts: { text: string }[] };
    expect(parts[0]?.text).toMatch(/^From the documentation, found by search\n\nSources:/);
  });

  test('refuses more than sixteen stop sequences', async () => {
    const stopSequences = Array.from({ length: 17 }, (_, index) => String(index));
    const { signal } = new AbortController();
    const call: ModelCall = { prompt: [], stopSequences, reasoningEffort: undefined, signal };
    await expect(guideModel({ directory: folder }).generate(call)).rejects.toMatchObject({
      message: 'The model local/guide accepts at most 16 stop sequences.',
      param: 'stop',
    });
  });

  test('quotes a picture as its text', async () => {
    expect(await ask('snapshot')).toContain('\n\nA screenshot and code:\n');
  });

  test('closes a code block that it cuts', async () => {
    expect(await ask('snapshot')).toContain('snapshot\n```\n…');
  });

  test('finds other forms of a word', async () => {
    expect(await ask('where does logging go')).toContain('standard output');
  });

  test('cuts a long section without line breaks', async () => {
    const [quote = ''] = (await ask('prometheus')).split('\n\nSources:');
    // The limit of a quote, the note before it and the heading.
    expect(quote.length).toBeGreaterThan(2_400);
    expect(quote.length).toBeLessThan(2_600);
    expect(quote).toMatch(/\n…$/);
  });

  test('lists its topics when nothing matches', async () => {
    const answer = await ask('What is the boiling point of mercury on Neptune?');
    expect(answer).toContain('found nothing about this');
    expect(answer).toContain('- Accounts\n- Logs\n- Metrics\n- Pictures');
    expect(answer).not.toContain('Sources');
  });

  test('sends its sources as stream parts', async () => {
    const { parts } = await partsOf(
      await world.post('/v1/ai/stream', {
        model: 'local/guide',
        prompt: [{ role: 'user', content: [{ type: 'text', text: 'How do I log in?' }] }],
      }),
    );
    expect(parts.filter((part) => part.type === 'source')).toEqual([
      {
        type: 'source',
        sourceType: 'document',
        id: 'source_1',
        mediaType: 'text/markdown',
        title: 'Accounts: Log in',
        filename: 'guides/login.md',
      },
    ]);
  });

  test('lists its sources at the end of a chat stream', async () => {
    const stream = world.openai().chat.completions.stream({
      model: 'local/guide',
      messages: [{ role: 'user', content: 'How do I log in?' }],
    });
    expect((await stream.finalChatCompletion()).choices[0]?.message.content).toMatch(
      /Sources:\n- Accounts: Log in \(guides\/login\.md\)$/,
    );
  });

  test('reports that no documentation is installed', async () => {
    const worldWithoutGuide = await startAi({ guideDirectory: join(folder, 'nowhere') });
    try {
      expect(
        await (
          await worldWithoutGuide.post('/v1/ai/text', { model: 'local/guide', prompt: 'log in' })
        ).json(),
      ).toMatchObject({ parts: [{ text: expect.stringContaining('No documentation is installed') }] });
    } finally {
      await worldWithoutGuide.close();
    }
  });
});
