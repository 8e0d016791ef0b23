// Errors inside of successful answers follow the rule of error responses: callers see the text only
// if they can act on it.
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { startProvider, type ScriptedProvider } from '../../../support/provider.ts';
import { eventsOf, partsOf, startAi, type World } from '../world.ts';

const key = 'CANARY-71aa-key';
const frameOf = (value: object) => `data: ${JSON.stringify(value)}\n\n`;
const secret = `The picture at http://10.1.2.3:8080/a.png was refused for ${key} and sk-proj-abcdefghijkl.`;
const replacedText = 'The model provider failed to answer.';
/** The errors that the provider reports, and what the caller receives instead. */
const failures: Record<string, { error: unknown; passed: object }> = {
  invalidRequest: {
    error: { code: 'invalid_image', message: secret, type: 'x', internal: secret },
    passed: {
      code: 'invalid_image',
      message: 'The picture at [redacted] was refused for [redacted] and [redacted].',
    },
  },
  providerFault: {
    error: { code: 'server_error', message: secret },
    passed: { code: 'server_error', message: replacedText },
  },
  rateLimit: {
    error: { code: 'rate_limit_exceeded', message: `Organization org-1 has no more. ${secret}` },
    passed: { code: 'rate_limit_exceeded', message: replacedText },
  },
  withoutCode: { error: { message: secret }, passed: { code: 'server_error', message: replacedText } },
  plainText: { error: secret, passed: { code: 'server_error', message: replacedText } },
};
const failedResponse = (error: unknown) => ({
  id: 'r',
  object: 'response',
  created_at: 1,
  status: 'failed',
  model: 'x',
  output: [],
  error,
  usage: null,
});
const scriptOf = (error: unknown) =>
  `verbatim?${new URLSearchParams({
    json: JSON.stringify(failedResponse(error)),
    sse: [
      { type: 'response.created', response: { ...failedResponse(null), status: 'in_progress' } },
      {
        type: 'response.output_item.added',
        output_index: 0,
        item: { type: 'message', id: 'm', role: 'assistant', status: 'in_progress', content: [] },
      },
      {
        type: 'response.output_text.delta',
        item_id: 'm',
        output_index: 0,
        content_index: 0,
        delta: 'Hello',
        logprobs: [],
      },
      { type: 'response.failed', sequence_number: 1, response: failedResponse(error) },
    ]
      .map(frameOf)
      .join(''),
  }).toString()}`;

let provider: ScriptedProvider;
let world: World;
beforeAll(async () => {
  provider = await startProvider();
  world = await startAi({
    models: JSON.stringify({
      providers: [{ id: 'openai', kind: 'openai', base_url: provider.url, api_key_env: 'THE_KEY' }],
      models: Object.entries(failures).map(([name, { error }]) => ({
        id: `openai/${name}`,
        provider: 'openai',
        upstream_model: scriptOf(error),
        rates: null,
      })),
    }),
    env: { THE_KEY: key },
  });
});
afterAll(async () => {
  await world.close();
  await provider.close();
});
beforeEach(() => provider.reset());

const leakPattern = /CANARY|10\.1\.2\.3|sk-proj|org-1/;
describe.each(Object.entries(failures))('the error of a failed response (%s)', (name, { passed }) => {
  test('is redacted or replaced in a whole answer', async () => {
    const response = await world.post('/v1/ai/responses', { model: `openai/${name}`, input: 'x' });
    const text = await response.text();
    expect(text).not.toMatch(leakPattern);
    expect([response.status, JSON.parse(text)]).toEqual([
      200,
      { ...failedResponse(passed), model: `openai/${name}` },
    ]);
  });

  test('is redacted or replaced in a stream', async () => {
    const events = await eventsOf(
      await world.post('/v1/ai/responses', { model: `openai/${name}`, input: 'x', stream: true }),
    );
    expect(events.join()).not.toMatch(leakPattern);
    expect(JSON.parse(events.at(-1) ?? '')).toEqual({
      type: 'response.failed',
      sequence_number: 1,
      response: { ...failedResponse(passed), model: `openai/${name}` },
    });
  });

  test('is absent from the parts of the route stream, including raw parts', async () => {
    const { parts } = await partsOf(
      await world.post('/v1/ai/stream', {
        model: `openai/${name}`,
        prompt: [{ role: 'user', content: [{ type: 'text', text: 'hi' }] }],
        includeRawChunks: true,
        // Chat completions lack this option, so the call uses the responses format.
        providerOptions: { openai: { truncation: 'auto' } },
      }),
    );
    expect(provider.lastCall().path).toBe('/v1/responses');
    expect(JSON.stringify(parts)).not.toMatch(leakPattern);
    expect(JSON.stringify(parts)).toContain('"rawValue"');
    expect(parts.at(-1)).toMatchObject({ type: 'finish', finishReason: { unified: 'error' } });
  });
});
