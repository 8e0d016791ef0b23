// The most that a call can cost: the size of its request, its media, and the bound that follows from both.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  affordableOutput,
  boundOf,
  inputBound,
  longestOutput,
  requirePrice,
} from '../../../src/gateway/ai/metering/bound.ts';
import { type RequestFormat, sizeOf } from '../../../src/gateway/ai/metering/measure.ts';
import { catalogModel } from './catalog-model.ts';
import { wavFile } from './wav.ts';

// The seed is fixed, so that a failure comes from a change and not from other values. SEED sets another seed.
const seed = Number(process.env['SEED'] ?? 20261121);
const picture = 'iVBORw0KGgoA'.repeat(10_000);

// JSON that resembles media: members and values of the formats in any order and depth.
const names = [
  'type',
  'data',
  'url',
  'image_url',
  'input_audio',
  'file',
  'file_data',
  'file_id',
  'source',
  'media_type',
  'mediaType',
  'content',
  'output',
  'note',
];
const types = [
  'image',
  'image_url',
  'input_image',
  'audio',
  'input_audio',
  'video',
  'file',
  'document',
  'input_file',
  'tool_result',
  'base64',
  'content',
  'text',
  'AAAA',
  'data:image/png;base64,AAAA',
  'https://example.com/a.png',
];
const { lookalike } = fc.letrec<{ lookalike: unknown }>((tie) => ({
  lookalike: fc.oneof(
    { maxDepth: 4 },
    fc.constantFrom(...types),
    fc.string({ unit: 'grapheme' }),
    fc.array(tie('lookalike'), { maxLength: 3 }),
    fc.dictionary(fc.constantFrom(...names), tie('lookalike'), { maxKeys: 5 }),
  ),
}));

interface Parts {
  input: unknown;
  schema: unknown;
  metadata: unknown;
  media: object[];
}

const nest = (value: unknown) => ({ a: value });
const userTurn = (media: object[]) => ({ role: 'user', content: [{ type: 'text', text: 'hi' }, ...media] });

// A request of each format with media look-alikes in a tool's input, its schema and metadata.
const requests: Record<RequestFormat, (parts: Parts) => object> = {
  chat: ({ input, schema, metadata, media }) => ({
    model: 'x',
    metadata: nest(metadata),
    response_format: { type: 'json_schema', json_schema: { schema: nest(schema) } },
    tools: [
      { type: 'function', function: { name: 'f', parameters: { properties: { a: { default: schema } } } } },
    ],
    messages: [
      userTurn(media),
      {
        role: 'assistant',
        content: null,
        tool_calls: [
          { id: 'c', type: 'function', function: { name: 'f', arguments: JSON.stringify(input) } },
        ],
        extra: input,
      },
      { role: 'tool', tool_call_id: 'c', content: JSON.stringify(input) },
    ],
  }),
  messages: ({ input, schema, metadata, media }) => ({
    model: 'x',
    metadata: nest(metadata),
    tools: [{ name: 'f', input_schema: { properties: { a: { default: schema } } } }],
    messages: [
      userTurn(media),
      { role: 'assistant', content: [{ type: 'tool_use', id: 't', name: 'f', input: nest(input) }] },
      {
        role: 'user',
        content: [
          {
            type: 'tool_result',
            tool_use_id: 't',
            content: [{ type: 'text', text: 'done', citations: input }],
          },
        ],
      },
    ],
  }),
  responses: ({ input, schema, metadata, media }) => ({
    model: 'x',
    metadata: nest(metadata),
    tools: [{ type: 'function', name: 'f', parameters: { default: schema } }],
    input: [
      userTurn(media),
      { type: 'function_call', call_id: 'c', name: 'f', arguments: JSON.stringify(input), extra: input },
      { type: 'shell_call_output', output: [input] },
      { type: 'reasoning', summary: [input] },
    ],
  }),
  // This format has only text.
  completions: ({ input, schema, metadata }) => ({
    model: 'x',
    prompt: [JSON.stringify(schema)],
    suffix: 'hi',
    extra: [input],
    metadata,
  }),
  embeddings: ({ input, metadata, media }) => ({
    model: 'x',
    input: ['hi', ...media],
    extra: [input],
    metadata,
  }),
  moderations: ({ input, metadata, media }) => ({
    model: 'x',
    input: ['hi', ...media],
    extra: [input],
    metadata,
  }),
  rerank: ({ input, metadata, media }) => ({
    model: 'x',
    query: 'hi',
    documents: ['hi', ...media],
    extra: [input],
    metadata,
  }),
  text: ({ input, schema, media }) => ({
    model: 'x',
    response_format: { type: 'json', schema: nest(schema) },
    tools: [{ name: 'f', input_schema: { default: schema } }],
    messages: [
      userTurn(media),
      { role: 'assistant', content: [{ type: 'tool-call', tool_call_id: 'c', tool_name: 'f', input }] },
      { role: 'tool', content: [{ type: 'tool-result', tool_call_id: 'c', output: input }] },
    ],
  }),
  stream: ({ input, schema, metadata, media }) => ({
    model: 'x',
    providerOptions: { acme: { a: metadata } },
    tools: [{ type: 'function', name: 'f', inputSchema: { default: schema } }],
    prompt: [
      userTurn(media),
      { role: 'assistant', content: [{ type: 'tool-call', toolCallId: 'c', toolName: 'f', input }] },
      {
        role: 'tool',
        content: [
          { type: 'tool-result', toolCallId: 'c', toolName: 'f', output: { type: 'json', value: input } },
        ],
      },
    ],
  }),
};

const base64 = fc
  .uint8Array({ minLength: 1, maxLength: 200 })
  .map((bytes) => Buffer.from(bytes).toString('base64'));

/** A real media part of the format with text in all its other members, and the length of its data. */
function mediumOf(format: RequestFormat): fc.Arbitrary<{ part: object; bytes: number }> {
  return fc.tuple(base64, fc.string({ unit: 'grapheme' }), lookalike).map(([data, note, extra]) => {
    const url = `data:image/png;base64,${data}`;
    switch (format) {
      case 'messages':
        return {
          part: {
            type: 'document',
            title: note,
            context: note,
            note: extra,
            source: { type: 'base64', media_type: 'application/pdf', data, note },
          },
          bytes: data.length,
        };
      case 'responses':
        return {
          part: { type: 'input_file', filename: note, note: extra, file_data: data },
          bytes: data.length,
        };
      case 'text':
        return {
          part: { type: 'file', media_type: 'application/pdf', filename: note, data },
          bytes: data.length,
        };
      case 'stream':
        return {
          part: {
            type: 'file',
            mediaType: 'image/png',
            filename: note,
            originalUrl: note,
            providerOptions: { acme: { a: extra } },
            data,
          },
          bytes: data.length,
        };
      default:
        return {
          part: { type: 'image_url', note: extra, image_url: { url, detail: note, note: extra } },
          bytes: url.length,
        };
    }
  });
}

function bytesOfStrings(value: unknown): number {
  if (typeof value === 'string') return Buffer.byteLength(value);
  if (typeof value !== 'object' || value === null) return 0;
  return Object.entries(value).reduce(
    (sum, [name, member]) => sum + (name === 'model' ? 0 : bytesOfStrings(member)),
    0,
  );
}

/** A request of each format with the texts, the system prompt and the schema of a tool. */
function textRequests(
  texts: readonly string[],
  system: string,
  schema: Record<string, string>,
): [RequestFormat, object][] {
  return [
    [
      'chat',
      {
        model: 'x',
        messages: [
          { role: 'system', content: system },
          ...texts.map((content) => ({ role: 'user', content })),
        ],
        tools: [{ type: 'function', function: { name: 'f', parameters: { properties: schema } } }],
      },
    ],
    [
      'messages',
      {
        model: 'x',
        system,
        messages: [{ role: 'user', content: texts.map((text) => ({ type: 'text', text })) }],
        tools: [{ name: 'f', input_schema: { properties: schema } }],
      },
    ],
    [
      'responses',
      {
        model: 'x',
        instructions: system,
        input: [{ role: 'user', content: texts.map((text) => ({ type: 'input_text', text })) }],
        tools: [{ type: 'function', name: 'f', parameters: schema }],
      },
    ],
    ['text', { model: 'x', system, prompt: texts.join(''), tools: [{ name: 'f', input_schema: schema }] }],
    [
      'stream',
      {
        model: 'x',
        prompt: [
          { role: 'system', content: system },
          { role: 'user', content: texts.map((text) => ({ type: 'text', text })) },
        ],
        tools: [{ type: 'function', name: 'f', inputSchema: schema }],
      },
    ],
  ];
}

describe(`the size of a request (seed ${seed})`, () => {
  test('is at least the bytes of its texts and schemas', () => {
    fc.assert(
      fc.property(
        fc.array(fc.string({ unit: 'grapheme' }), { minLength: 1, maxLength: 5 }),
        fc.string({ unit: 'grapheme' }),
        fc.dictionary(fc.string(), fc.string()),
        (texts, system, schema) => {
          const bytes = [...texts, system, ...Object.entries(schema).flat()].reduce(
            (sum, text) => sum + Buffer.byteLength(text),
            0,
          );
          for (const [format, body] of textRequests(texts, system, schema))
            expect(sizeOf(body, format).textBytes).toBeGreaterThanOrEqual(bytes);
        },
      ),
      { seed, numRuns: 200 },
    );
  });

  test.each(Object.entries(requests) as [RequestFormat, (parts: Parts) => object][])(
    'counts all text outside genuine media in the format %s',
    (format, request) => {
      fc.assert(
        fc.property(
          lookalike,
          lookalike,
          lookalike,
          fc.array(mediumOf(format), { maxLength: format === 'completions' ? 0 : 3 }),
          (input, schema, metadata, media) => {
            const body = request({ input, schema, metadata, media: media.map(({ part }) => part) });
            const size = sizeOf(body, format);
            expect(size.media).toBe(media.length);
            const mediaBytes = media.reduce((sum, { bytes }) => sum + bytes, 0);
            expect(size.textBytes).toBeGreaterThanOrEqual(bytesOfStrings(body) - mediaBytes);
          },
        ),
        { seed, numRuns: 300 },
      );
    },
  );

  test.each(Object.entries(requests) as [RequestFormat, (parts: Parts) => object][])(
    'is at least the length of the values as JSON in the format %s',
    (format, request) => {
      fc.assert(
        fc.property(
          fc.jsonValue({ maxDepth: 4 }),
          fc.jsonValue(),
          fc.jsonValue(),
          (input, schema, metadata) => {
            const { model: _model, ...body } = request({ input, schema, metadata, media: [] }) as {
              model: string;
            };
            const { textBytes, structureBytes } = sizeOf(body, format);
            // A number or boolean at the top level configures the model and is not part of the prompt.
            for (const value of Object.values(body) as unknown[]) {
              if (typeof value !== 'string' && (typeof value !== 'object' || value === null)) continue;
              expect(textBytes + structureBytes).toBeGreaterThanOrEqual(
                Buffer.byteLength(JSON.stringify(value).replace(/\\(["\\bfnrt])/g, '$1')),
              );
            }
          },
        ),
        { seed, numRuns: 300 },
      );
    },
  );

  test.each<[string, unknown, number]>([
    ['integers of 300 digits', Array.from({ length: 100 }, () => 1e299), 30_000],
    ['empty lists', Array.from({ length: 1_000 }, () => []), 3_000],
    ['empty texts', Array.from({ length: 1_000 }, () => ''), 3_000],
    ['numbers of one digit', Array.from({ length: 1_000 }, () => 1), 2_000],
    ['names of one letter', Object.fromEntries([...'abcdefghij'].map((name) => [name, 1])), 60],
    ['control characters', '\u0000\u001f'.repeat(1_000), 12_000],
  ])('counts %s by their length in a prompt', (_what, value, bytes) => {
    const { textBytes, structureBytes } = sizeOf({ model: 'x', tools: [{ default: value }] }, 'chat');
    expect(textBytes + structureBytes).toBeGreaterThanOrEqual(bytes);
  });
});

describe('the size of stored context', () => {
  test.each<[string, RequestFormat, object]>([
    ['an earlier answer', 'responses', { input: 'hi', previous_response_id: 'resp_1' }],
    ['a conversation by its id', 'responses', { input: 'hi', conversation: 'conv_1' }],
    ['a conversation as an object', 'responses', { input: 'hi', conversation: { id: 'conv_1' } }],
    ['a prompt of the provider', 'responses', { prompt: { id: 'pmpt_1', variables: { a: 'b' } } }],
    [
      'an item of an earlier response',
      'responses',
      {
        input: [
          { type: 'item_reference', id: 'rs_1' },
          { role: 'user', content: 'hi' },
        ],
      },
    ],
    [
      'an earlier answer in the options of the SDK package',
      'stream',
      {
        prompt: [{ role: 'user', content: [] }],
        providerOptions: { openai: { previousResponseId: 'resp_1' } },
      },
    ],
  ])('is the maximum for %s', (_what, format, body) => {
    const size = sizeOf({ model: 'x', ...body }, format);
    expect(size).toMatchObject({ media: 1, mediaTokens: 262_144 });
    expect(inputBound(catalogModel({ context_window: 128_000 }), { size })).toBe(128_000);
  });

  test.each<[string, object]>([
    ['an item of the type null', { input: [{ type: null, role: 'user', content: 'FILE' }] }],
    ['an item of the instructions', { input: 'hi', instructions: [{ role: 'user', content: 'FILE' }] }],
  ])('is the maximum for a file at a URL in %s', (_what, body) => {
    const file = [{ type: 'input_file', file_url: 'https://files.example/300-pages.pdf' }];
    const filledBody = JSON.parse(JSON.stringify(body).replace('"FILE"', JSON.stringify(file))) as object;
    expect(sizeOf(filledBody, 'responses')).toMatchObject({ media: 1, mediaTokens: 262_144 });
  });

  test('includes the variables of a stored prompt as text', () => {
    expect(
      sizeOf({ model: 'x', prompt: { id: 'pmpt_1', variables: { a: 'b'.repeat(900) } } }, 'responses')
        .textBytes,
    ).toBeGreaterThan(900);
  });

  test('is zero without stored context', () => {
    for (const body of [
      { prompt: 'hi', previous_response_id: null },
      { prompt: [{ role: 'user', content: 'hi' }], conversation: null },
    ])
      expect(sizeOf({ model: 'x', ...body }, 'responses')).toMatchObject({ media: 0, mediaTokens: 0 });
  });
});

describe('the size of media', () => {
  const turn = (part: object) => ({
    messages: [{ role: 'user', content: [part, { type: 'text', text: 'hi' }] }],
  });
  const inputTurn = (part: object) => ({ input: [{ role: 'user', content: [part] }] });
  const promptTurn = (part: object) => ({ prompt: [{ role: 'user', content: [part] }] });
  /** The result of a tool in a stream. */
  const toolResult = (part: object) => ({
    prompt: [
      {
        role: 'tool',
        content: [
          {
            type: 'tool-result',
            toolCallId: 'c',
            toolName: 'f',
            output: { type: 'content', value: [part] },
          },
        ],
      },
    ],
  });

  const dataUrl = `data:image/png;base64,${picture}`;
  const inputImage = { type: 'input_image', image_url: dataUrl };
  const sourceImage = {
    type: 'image',
    source: { type: 'base64', media_type: 'image/png', data: picture },
  };
  const promptImage = { type: 'file', mediaType: 'image/png' };

  test.each<[string, RequestFormat, object]>([
    ['chat completions, inline', 'chat', turn({ type: 'image_url', image_url: { url: dataUrl } })],
    [
      'chat completions, by URL',
      'chat',
      turn({ type: 'image_url', image_url: { url: 'https://example.com/a.png' } }),
    ],
    ['messages, inline', 'messages', turn(sourceImage)],
    [
      'messages, in the result of a tool',
      'messages',
      turn({ type: 'tool_result', tool_use_id: 'x', content: [sourceImage] }),
    ],
    [
      'messages, in a document',
      'messages',
      turn({ type: 'document', source: { type: 'content', content: [sourceImage] } }),
    ],
    ['responses', 'responses', inputTurn(inputImage)],
    [
      'responses, in the output of a tool',
      'responses',
      { input: [{ type: 'function_call_output', call_id: 'c', output: [inputImage] }] },
    ],
    [
      'responses, in a screenshot of a computer',
      'responses',
      {
        input: [
          {
            type: 'computer_call_output',
            call_id: 'c',
            output: { type: 'computer_screenshot', image_url: dataUrl },
          },
        ],
      },
    ],
    ['text', 'text', turn({ type: 'image', media_type: 'image/png', data: picture })],
    ['stream', 'stream', promptTurn({ ...promptImage, data: picture })],
    ['stream, version 4', 'stream', promptTurn({ ...promptImage, data: { type: 'data', data: picture } })],
    [
      'stream, in the result of a tool',
      'stream',
      toolResult({ type: 'image-data', mediaType: 'image/png', data: picture }),
    ],
  ])('counts an image without its bytes: %s', (_format, format, body) => {
    const { textBytes, mediaTokens, usualMediaTokens, media } = sizeOf({ model: 'x', ...body }, format);
    expect(media).toBe(1);
    expect(mediaTokens).toBe(16_384);
    expect(usualMediaTokens).toBe(2_048);
    expect(textBytes).toBeLessThan(150);
  });

  const sizeOfPart = (part: object) => sizeOf(inputTurn(part), 'responses');

  const tokensOfAudio = (content: Buffer) => {
    const data = content.toString('base64');
    return sizeOfPart({ type: 'input_audio', input_audio: { data, format: 'wav' } }).mediaTokens;
  };

  // One second of these files has 16,000 bytes and counts as 50 tokens.
  test('counts audio by its length', () => {
    expect(tokensOfAudio(wavFile(16_000))).toBe(50);
  });

  test('counts audio without a header by its bytes', () => {
    // Without a duration, 8 bytes count as a token (audioBytesPerToken in medium-tokens.ts).
    expect(tokensOfAudio(Buffer.alloc(8_000))).toBeGreaterThanOrEqual(1_000);
  });

  test.each([
    ['for a second', 16_000, 50],
    ['for 120 seconds', 1_920_000, 6_000],
  ])('ignores a declared rate of 2 GB a second %s', (_length, contentBytes, tokens) => {
    const declared = { bytesPerSecond: 2 ** 31, contentBytes };
    expect(tokensOfAudio(wavFile(1_920_000, { declared }))).toBe(tokens);
  });

  test.each(['application/pdf', 'image/png', 'text/plain'])(
    'counts the pages of a PDF of the declared type %s',
    (mediaType) => {
      const pdf = Buffer.from('%PDF-1.4 /Type /Page /Type /Page /Type /Pages').toString('base64');
      const part = { type: 'input_file', file_data: `data:${mediaType};base64,${pdf}` };
      expect(sizeOfPart(part).mediaTokens).toBe(2 * 16_384);
    },
  );

  test('counts a file at the provider or at a URL as the maximum', () => {
    expect(sizeOfPart({ type: 'input_file', file_url: 'https://example.com/a.pdf' }).mediaTokens).toBe(
      262_144,
    );
    expect(sizeOfPart({ type: 'input_file', file_id: 'file-1' }).mediaTokens).toBe(262_144);
    expect(sizeOf(turn({ type: 'file', file: { file_id: 'file-1' } }), 'chat').mediaTokens).toBe(262_144);
  });

  test('counts a document of text as text', () => {
    const textSource = { type: 'text', media_type: 'text/plain', data: 'x'.repeat(500) };
    const { media, textBytes } = sizeOf(turn({ type: 'document', source: textSource }), 'messages');
    expect(media).toBe(0);
    expect(textBytes).toBeGreaterThan(500);
  });

  const content = Buffer.alloc(90_000, 7).toString('base64');
  const pdfUrl = `data:application/pdf;base64,${content}`;
  const videoUrl = `data:video/mp4;base64,${content}`;
  test.each<[string, RequestFormat, object]>([
    ['a PDF in image_url', 'chat', turn({ type: 'image_url', image_url: { url: pdfUrl } })],
    ['a video in image_url', 'chat', turn({ type: 'image_url', image_url: { url: videoUrl } })],
    ['a video in audio_url', 'chat', turn({ type: 'audio_url', audio_url: { url: videoUrl } })],
    [
      'a PDF in an image of text',
      'text',
      turn({ type: 'image', media_type: 'application/pdf', data: content }),
    ],
    [
      'a PDF by URL in an image of text',
      'text',
      turn({ type: 'image', media_type: 'application/pdf', url: 'https://example.com/a' }),
    ],
    [
      'a video in the image-data of a tool',
      'stream',
      toolResult({ type: 'image-data', mediaType: 'video/mp4', data: content }),
    ],
    [
      'a video in the image-url of a tool',
      'stream',
      toolResult({ type: 'image-url', mediaType: 'video/mp4', url: 'https://example.com/a' }),
    ],
  ])('counts a part by its media type: %s', (_part, format, body) => {
    expect(sizeOf({ model: 'x', ...body }, format).mediaTokens).toBeGreaterThanOrEqual(90_000);
  });

  test('counts a data URL without base64 as text too', () => {
    const size = sizeOfPart({ type: 'input_image', image_url: `data:image/png,${'x'.repeat(900)}` });
    expect(size).toMatchObject({ media: 1, mediaTokens: 16_384 });
    expect(size.textBytes).toBeGreaterThan(900);
  });
});

describe('the bound of a call', () => {
  const size = sizeOf({ prompt: 'x'.repeat(100) }, 'text');

  test('is input and limit at the highest rates, including cache and reasoning', () => {
    const model = catalogModel({
      rates: { input: 1_000_000, cache_write: 1_250_000, output: 2_000_000, reasoning: 3_000_000 },
    });
    const { input, credits } = boundOf(model, { size, limit: { tokens: 10, member: 'max_tokens' } });
    // 100 letters, two quotes, 8 tokens for a turn and 16 for the call.
    expect(input).toBe(126);
    // The input at the rate of cache writes, and 10 output tokens at the rate of reasoning.
    expect(credits).toBe(BigInt(Math.ceil(input * 1.25 + 30)));
  });

  test('counts each of several answers', () => {
    const credits = boundOf(catalogModel(), { size, limit: { tokens: 10, member: 'max_tokens' } }).credits;
    expect(
      boundOf(catalogModel(), { size, limit: { tokens: 10, member: 'max_tokens' }, choices: 3 }).credits -
        credits,
    ).toBe(40n);
  });

  test("is the model's longest answer without a limit", () => {
    expect(boundOf(catalogModel(), { size }).output).toBe(1_000);
    expect(longestOutput(catalogModel({ max_output_tokens: null }))).toBe(8_192);
    expect(longestOutput(catalogModel({ max_output_tokens: null, context_window: 1_000_000 }))).toBe(32_768);
    expect(longestOutput(catalogModel({ max_output_tokens: null, context_window: 4_000 }))).toBe(2_000);
  });

  test('counts media only up to the context window', () => {
    const imagesSize = sizeOf(
      {
        messages: [
          {
            role: 'user',
            content: Array.from({ length: 40 }, () => ({
              type: 'image_url',
              image_url: { url: 'https://example.com/a.png' },
            })),
          },
        ],
      },
      'chat',
    );
    expect(inputBound(catalogModel({ context_window: 128_000 }), { size: imagesSize })).toBe(128_000);
  });

  test('finds the longest answer that the credits cover', () => {
    // The input costs 126 credits, and an output token 2.
    expect(affordableOutput([catalogModel()], { size }, 200n)).toBe(37);
    expect(affordableOutput([catalogModel()], { size, choices: 2 }, 200n)).toBe(18);
    expect(affordableOutput([catalogModel()], { size }, 100n)).toBe(-1);
  });

  test('refuses a kind of call without a price', () => {
    expect(() => requirePrice(catalogModel({ rates: { input: 1 } }), ['image'])).toThrow(
      'has no price for this kind of call',
    );
    expect(() => requirePrice(catalogModel({ rates: null }), ['image'])).not.toThrow();
  });
});
