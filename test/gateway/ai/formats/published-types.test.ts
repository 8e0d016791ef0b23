// Stream parts and chat completions of every kind of model against the types that the SDKs publish.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  chatCompletion,
  chatCompletionChunk,
  oracleTimeoutMs,
  streamPartV3,
  streamPartV4,
} from '../../../support/oracles.ts';
import { startProvider, type ScriptedProvider } from '../../../support/provider.ts';
import { eventsOf, partsOf, startAi, type World } from '../world.ts';

const say = (text: string) => [{ role: 'user', content: [{ type: 'text', text }] }];
const messages = (content: string) => [{ role: 'user', content }];
const toolPrompt = '@reasoning hm\n@tool get_weather {"city":"Oslo"}\nI look it up';

const chatScripts = [
  'ok',
  'tools',
  'reasoning',
  'usage-cached',
  'usage-none',
  'usage-negative',
  'reset?chunks=2',
  'no-done',
  'error-event',
  'invalid-utf8',
  'split-utf8',
  'forged-done',
];

// A model of every kind with prompts that produce every part type and finish reason.
const calls: [string, string][] = [
  ['local/echo', 'Good morning'],
  ['local/echo', toolPrompt],
  ['local/echo', '@length\nGood'],
  ['local/echo', '@fail-after 1\nGood morning'],
  ['local/guide', 'How do I log in?'],
  ...chatScripts.map((script): [string, string] => [`acme/${script.split('?')[0]}`, 'hi']),
  ...['ok', 'tools', 'reasoning', 'cut', 'error'].flatMap((script): [string, string][] => [
    [`anthropic/${script}`, 'hi'],
    [`google/${script}`, 'hi'],
    [`bedrock/${script}`, 'hi'],
  ]),
];

let provider: ScriptedProvider;
let world: World;
beforeAll(async () => {
  // The first call compiles the types.
  streamPartV3({ type: 'stream-start', warnings: [] });
  streamPartV4({ type: 'stream-start', warnings: [] });
  chatCompletion({ id: 'a', object: 'chat.completion', created: 1, model: 'm', choices: [] });
  chatCompletionChunk({ id: 'a', object: 'chat.completion.chunk', created: 1, model: 'm', choices: [] });
  provider = await startProvider();
  const base = { base_url: provider.url, usage: 'ask' };
  const scripts = [...chatScripts, 'cut', 'error', 'search'];
  const providers = [
    { id: 'acme', kind: 'openai-compatible', ...base },
    { id: 'anthropic', kind: 'anthropic', ...base },
    { id: 'google', kind: 'google', ...base },
    { id: 'openai', kind: 'openai', ...base },
    { id: 'bedrock', kind: 'bedrock', region: 'eu-central-1', api_key_env: 'BEDROCK_KEY', ...base },
  ];
  const models = providers.flatMap(({ id }) =>
    scripts.map((script) => ({
      id: `${id}/${script.split('?')[0]}`,
      provider: id,
      upstream_model: script,
      rates: null,
      max_output_tokens: 100,
    })),
  );
  world = await startAi({
    models: JSON.stringify({ providers, models }),
    env: { BEDROCK_KEY: 'key' },
  });
}, oracleTimeoutMs);
afterAll(async () => {
  await world.close();
  await provider.close();
});

test('the type validators refuse wrong answers', () => {
  expect(() => streamPartV3({ type: 'text-delta', id: '0' })).toThrow('LanguageModelV3StreamPart');
  expect(() => streamPartV3({ type: 'custom', kind: 'a.b' })).toThrow('LanguageModelV3StreamPart');
  expect(() => streamPartV3({ type: 'finish', finishReason: 'stop', usage: {} })).toThrow(
    'LanguageModelV3StreamPart',
  );
  expect(() =>
    chatCompletion({
      id: 'a',
      object: 'chat.completion',
      created: 1,
      model: 'm',
      choices: [{ index: 0, message: { role: 'assistant', content: 'x' }, finish_reason: 'stop' }],
    }),
  ).toThrow('This is not a valid ChatCompletion');
  expect(() =>
    chatCompletionChunk({ id: 'a', object: 'chat.completion', created: 1, model: 'm', choices: [] }),
  ).toThrow('This is not a valid ChatCompletionChunk');
});

describe.each([
  ['3', streamPartV3],
  ['4', streamPartV4],
] as const)('stream parts of version %s', (version, validatePart) => {
  test.each(calls)('match the published types for %s: %j', async (model, text) => {
    const body = {
      model,
      prompt: say(text),
      includeRawChunks: true,
      tools: [{ type: 'function', name: 'get_weather', inputSchema: { type: 'object' } }],
    };
    const { parts, done } = await partsOf(
      await world.post('/v1/ai/stream', body, {
        headers: { 'ai-language-model-specification-version': version },
      }),
    );
    expect(done).toBe(true);
    for (const part of parts) validatePart(part);
    expect(
      parts.map((part) => part.type).filter((type) => ['stream-start', 'finish'].includes(type as string)),
    ).toEqual(['stream-start', 'finish']);
    expect(parts.at(-1)).toMatchObject({ type: 'finish' });
  });

  /** The parts of a call with a tool of OpenAI's own, which uses the responses format. */
  async function searchParts(script: string) {
    const body = {
      model: `openai/${script}`,
      prompt: say('hi'),
      includeRawChunks: true,
      stopSequences: ['x'],
      tools: [{ type: 'provider', id: 'openai.web_search', name: 'web_search', args: {} }],
    };
    const { parts, done } = await partsOf(
      await world.post('/v1/ai/stream', body, {
        headers: { 'ai-language-model-specification-version': version },
      }),
    );
    expect(done).toBe(true);
    for (const part of parts) validatePart(part);
    return parts;
  }

  test.each([
    ['ok', 'stop'],
    ['search', 'stop'],
    ['cut', 'error'],
    ['error', 'error'],
  ])("match the published types with OpenAI's own tool: %s", async (script, reason) => {
    const parts = await searchParts(script);
    expect(parts[0]).toMatchObject({
      type: 'stream-start',
      warnings: [{ type: 'unsupported', feature: 'stopSequences' }],
    });
    expect(parts.at(-1)).toMatchObject({
      type: 'finish',
      finishReason: { unified: reason },
    });
  });

  test("include the call, result and sources of OpenAI's own search", async () => {
    const parts = await searchParts('search');
    expect(parts).toContainEqual(
      expect.objectContaining({ type: 'tool-call', toolName: 'web_search', providerExecuted: true }),
    );
    expect(parts).toContainEqual(expect.objectContaining({ type: 'tool-result', toolName: 'web_search' }));
    expect(parts).toContainEqual(
      expect.objectContaining({ type: 'source', url: 'https://weather.example/oslo' }),
    );
  });
});

// Only these members go beyond the published types. Servers of open models send them too.
const reasoningMembers = new Set(['reasoning_content', 'reasoning_details']);
function withoutReasoning(value: unknown): unknown {
  return JSON.parse(
    JSON.stringify(value, (name, member: unknown) => (reasoningMembers.has(name) ? undefined : member)),
  );
}

describe('chat completions', () => {
  test.each(
    calls.filter(
      ([model, text]) => !/reset|no-done|error|cut|invalid/.test(model) && !text.includes('@fail'),
    ),
  )('%s: %j', async (model, text) => {
    const response = await world.post('/v1/ai/chat/completions', { model, messages: messages(text) });
    expect(response.status).toBe(200);
    // Members of the provider pass through unchecked, so its usage may be invalid.
    chatCompletion(withoutReasoning(await response.json()));
    const events = await eventsOf(
      await world.post('/v1/ai/chat/completions', {
        model,
        messages: messages(text),
        stream: true,
        stream_options: { include_usage: true },
      }),
    );
    expect(events.at(-1)).toBe('[DONE]');
    for (const event of events.slice(0, -1)) chatCompletionChunk(withoutReasoning(JSON.parse(event)));
  });
});
