import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { CatalogModel } from '../../../src/gateway/ai/catalog/catalog.ts';
import { affordableOutput, boundOf, inputBound, longestOutput, requirePrice } from '../../../src/gateway/ai/metering/bound.ts';
import { sizeOf } from '../../../src/gateway/ai/metering/measure.ts';

const by = { id: 'acme', name: 'Acme', kind: 'openai-compatible', usage: 'ask', unpriced_members: [], formats: ['chat'], output_limit_member: 'max_tokens' } as const;
const entry = (more: Partial<CatalogModel> = {}): CatalogModel => ({
  id: 'acme/fast', name: 'Fast', description: '', provider: 'acme', upstream_model: 'fast', modalities: ['text'], tags: [], created: 0, meta: {}, context_window: null, max_output_tokens: 1_000,
  rates: { input: 1_000_000, output: 2_000_000 }, tiers: [], fallbacks: [], by: { ...by, unpriced_members: [], formats: ['chat'] }, ...more,
});
// The same in every run, so that a change fails for what it changed; another SEED looks for more.
const seed = Number(process.env['SEED'] ?? 20261121);
const picture = 'iVBORw0KGgo='.repeat(10_000);

describe(`the size of a request (seed ${seed})`, () => {
  test('is at least every byte of its text, tools and schemas, in any format', () => {
    fc.assert(fc.property(fc.array(fc.string({ unit: 'grapheme' }), { minLength: 1, maxLength: 5 }), fc.string({ unit: 'grapheme' }), fc.dictionary(fc.string(), fc.string()), (texts, system, schema) => {
      const bytes = [...texts, system, ...Object.entries(schema).flat()].reduce((sum, text) => sum + Buffer.byteLength(text), 0);
      const bodies = [
        { model: 'x', messages: [{ role: 'system', content: system }, ...texts.map((content) => ({ role: 'user', content }))], tools: [{ type: 'function', function: { name: 'f', parameters: { properties: schema } } }] },
        { model: 'x', system, messages: [{ role: 'user', content: texts.map((text) => ({ type: 'text', text })) }], tools: [{ name: 'f', input_schema: { properties: schema } }] },
        { model: 'x', instructions: system, input: [{ role: 'user', content: texts.map((text) => ({ type: 'input_text', text })) }], tools: [{ type: 'function', name: 'f', parameters: schema }] },
        { model: 'x', system, prompt: texts.join(''), tools: [{ name: 'f', input_schema: schema }] },
        { model: 'x', prompt: [{ role: 'system', content: system }, { role: 'user', content: texts.map((text) => ({ type: 'text', text })) }], tools: [{ type: 'function', name: 'f', inputSchema: schema }] },
      ];
      for (const body of bodies) expect(sizeOf(body).textBytes).toBeGreaterThanOrEqual(bytes);
    }), { seed, numRuns: 200 });
  });

  test.each<[string, object]>([
    ['an earlier answer', { input: 'hi', previous_response_id: 'resp_1' }],
    ['a conversation by its name', { input: 'hi', conversation: 'conv_1' }],
    ['a conversation as an object', { input: 'hi', conversation: { id: 'conv_1' } }],
    ['a prompt of the provider', { prompt: { id: 'pmpt_1', variables: { a: 'b' } } }],
    ['an item of before', { input: [{ type: 'item_reference', id: 'rs_1' }, { role: 'user', content: 'hi' }] }],
  ])('counts what the provider keeps and reads again as what can be of any length: %s', (_what, body) => {
    const size = sizeOf({ model: 'x', ...body });
    expect(size).toMatchObject({ media: 1, mediaTokens: 262_144 });
    expect(inputBound(entry({ context_window: 128_000 }), { size })).toBe(128_000);
  });

  test('a prompt in words, or of messages, is no more than what it says', () => {
    expect(sizeOf({ model: 'x', prompt: 'hi', previous_response_id: null }).media).toBe(0);
    expect(sizeOf({ model: 'x', prompt: [{ role: 'user', content: 'hi' }], conversation: null }).media).toBe(0);
  });

  test.each<[string, object]>([
    ['chat completions, inline', { type: 'image_url', image_url: { url: `data:image/png;base64,${picture}` } }],
    ['chat completions, by address', { type: 'image_url', image_url: { url: 'https://example.com/a.png' } }],
    ['messages, inline', { type: 'image', source: { type: 'base64', media_type: 'image/png', data: picture } }],
    ['messages, in the result of a tool', { type: 'tool_result', tool_use_id: 'x', content: [{ type: 'image', source: { type: 'base64', media_type: 'image/png', data: picture } }] }],
    ['responses', { type: 'input_image', image_url: `data:image/png;base64,${picture}` }],
    ['text', { type: 'image', media_type: 'image/png', data: picture }],
    ['stream', { type: 'file', mediaType: 'image/png', data: picture }],
    ['stream, version 4', { type: 'file', mediaType: 'image/png', data: { type: 'data', data: picture } }],
  ])('counts a picture as a picture, not by its bytes: %s', (_format, part) => {
    const { textBytes, mediaTokens, media } = sizeOf({ model: 'x', messages: [{ role: 'user', content: [part, { type: 'text', text: 'hi' }] }] });
    expect(media).toBe(1);
    expect(mediaTokens).toBe(16_384);
    expect(textBytes).toBeLessThan(100);
  });

  test('counts sound by its length, files by their bytes and pages, and what lies elsewhere by the most', () => {
    const size = (part: object) => sizeOf({ input: [{ role: 'user', content: [part] }] }).mediaTokens;
    // One second of silence, 16 bit mono at 8 kHz.
    const header = Buffer.from('524946460000000057415645666d74201000000001000100401f0000803e00000200100064617461803e0000', 'hex');
    const wav = Buffer.concat([header, Buffer.alloc(16_000)]).toString('base64');
    expect(size({ type: 'input_audio', input_audio: { data: wav, format: 'wav' } })).toBe(50);
    expect(size({ type: 'input_audio', input_audio: { data: Buffer.alloc(8_000).toString('base64'), format: 'mp3' } })).toBeGreaterThanOrEqual(Math.ceil((8_000 / 750) * 32));
    const pdf = Buffer.from('%PDF-1.4 /Type /Page /Type /Page /Type /Pages').toString('base64');
    expect(size({ type: 'file', file: { file_data: `data:application/pdf;base64,${pdf}` } })).toBe(2 * 16_384);
    expect(size({ type: 'input_file', file_url: 'https://example.com/a.pdf' })).toBe(262_144);
    expect(size({ type: 'file', file: { file_id: 'file-1' } })).toBe(262_144);
  });

  test('takes a schema that speaks of files for a schema', () => {
    expect(sizeOf({ tools: [{ parameters: { properties: { kind: { type: 'file', description: 'x'.repeat(500) } } } }] })).toMatchObject({ media: 0, textBytes: expect.any(Number) });
    expect(sizeOf({ tools: [{ parameters: { properties: { kind: { type: 'file', description: 'x'.repeat(500) } } } }] }).textBytes).toBeGreaterThan(500);
  });
});

describe('the bound of a call', () => {
  const size = sizeOf({ prompt: 'x'.repeat(100) });

  test('is its input and its limit at the dearest kinds, the cache and thinking among them', () => {
    const model = entry({ rates: { input: 1_000_000, cache_write: 1_250_000, output: 2_000_000, reasoning: 3_000_000 } });
    const { input, credits } = boundOf(model, { size, limit: { tokens: 10, member: 'max_tokens' } });
    expect(input).toBe(124);
    expect(credits).toBe(BigInt(Math.ceil(input * 1.25 + 30)));
  });

  test('counts each of several answers', () => {
    const one = boundOf(entry(), { size, limit: { tokens: 10, member: 'max_tokens' } }).credits;
    expect(boundOf(entry(), { size, limit: { tokens: 10, member: 'max_tokens' }, choices: 3 }).credits - one).toBe(40n);
  });

  test('is the longest answer of the model where nobody says a limit', () => {
    expect(boundOf(entry(), { size }).output).toBe(1_000);
    expect(longestOutput(entry({ max_output_tokens: null }))).toBe(8_192);
    expect(longestOutput(entry({ max_output_tokens: null, context_window: 1_000_000 }))).toBe(32_768);
    expect(longestOutput(entry({ max_output_tokens: null, context_window: 4_000 }))).toBe(2_000);
  });

  test('never takes media for more than the model can read', () => {
    const many = sizeOf({ messages: [{ role: 'user', content: Array.from({ length: 40 }, () => ({ type: 'image_url', image_url: { url: 'https://example.com/a.png' } })) }] });
    expect(inputBound(entry({ context_window: 128_000 }), { size: many })).toBe(128_000);
  });

  test('tells the longest answer that credits are good for', () => {
    expect(affordableOutput([entry()], { size }, 200n)).toBe(38);
    expect(affordableOutput([entry()], { size, choices: 2 }, 200n)).toBe(19);
    expect(affordableOutput([entry()], { size }, 100n)).toBe(-1);
  });

  test('lets nothing be free by omission', () => {
    expect(() => requirePrice(entry({ rates: { input: 1 } }), ['image'])).toThrow('has no price for this kind of call');
    expect(() => requirePrice(entry({ rates: null }), ['image'])).not.toThrow();
  });
});
