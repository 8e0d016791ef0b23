// Arguments of earlier tool calls are measured with the bytes that the provider receives: numbers grow when
// arguments are parsed and serialized again, and line feeds become two characters in JSON.
import { countTokens } from 'gpt-tokenizer/encoding/o200k_base';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { computeCloserBound } from '../../../src/gateway/ai/metering/closer-bound.ts';
import { sizeOf, type RequestFormat } from '../../../src/gateway/ai/metering/measure.ts';
import { createTokenCounter } from '../../../src/gateway/ai/metering/token-counter.ts';
import { cloudEnvironment, cloudKinds, cloudProviders } from '../../support/cloud-providers.ts';
import { startProvider, type ScriptedProvider } from '../../support/provider.ts';
import { startTokenEndpoint, type TokenEndpoint } from '../../support/token-endpoint.ts';
import { catalogModel } from './catalog-model.ts';
import { startAi, type World } from './world.ts';

let provider: ScriptedProvider;
let tokenEndpoint: TokenEndpoint;
let world: World;
beforeAll(async () => {
  provider = await startProvider();
  tokenEndpoint = await startTokenEndpoint();
  const rates = { input: 1_000_000, output: 1_000_000 };
  const kinds = { claude: 'anthropic', gemini: 'google', openai: 'openai', acme: 'openai-compatible' };
  world = await startAi({
    models: JSON.stringify({
      providers: [
        ...Object.entries(kinds).map(([id, kind]) => ({
          id,
          kind,
          name: id,
          base_url: provider.url,
          formats: [],
          output_limit_member: 'max_tokens',
        })),
        ...cloudProviders(provider.url, tokenEndpoint),
      ],
      models: [...Object.keys(kinds), ...cloudKinds].map((id) => ({
        id: `${id}/ok`,
        provider: id,
        upstream_model: 'ok',
        rates,
        max_output_tokens: 1_000,
      })),
    }),
    env: cloudEnvironment(tokenEndpoint),
  });
});
afterAll(async () => {
  await world.close();
  await provider.close();
  await tokenEndpoint.close();
});
beforeEach(() => {
  provider.reset();
  world.ledger.reset();
});

const user = { role: 'user', content: 'hi' };
// Amazon Bedrock accepts earlier tool calls only in a request that has tools.
const schema = { type: 'object', properties: {} };
const chatBody = (text: string) => ({
  tools: [{ type: 'function', function: { name: 'f', parameters: schema } }],
  messages: [
    user,
    {
      role: 'assistant',
      content: null,
      tool_calls: [{ id: 'a', type: 'function', function: { name: 'f', arguments: text } }],
    },
    { role: 'tool', tool_call_id: 'a', content: 'x' },
  ],
  max_tokens: 16,
});
const responseBody = (text: string) => ({
  tools: [{ type: 'function', name: 'f', parameters: schema }],
  input: [
    user,
    { type: 'function_call', call_id: 'a', name: 'f', arguments: text },
    { type: 'function_call_output', call_id: 'a', output: 'x' },
  ],
  max_output_tokens: 16,
});

const arrayOf = (number: string) => `{"a":[${Array<string>(1_000).fill(number).join(',')}]}`;
const hostileArguments: readonly [string, string][] = [
  ['large numbers', arrayOf('1e20')],
  ['large negative numbers', arrayOf('-1E+20')],
  ['small numbers', arrayOf('1e-6')],
  ['numbers with a fraction', arrayOf('1.5e19')],
  ['numbers beyond the range', arrayOf('1e9').replace(']', ', 1e999]')],
];

describe.each(['claude', 'gemini', 'openai', 'acme', ...cloudKinds])('the hold of a call of %s', (owner) => {
  test.each(hostileArguments)('covers chat completions with %s', async (_what, text) => {
    await (await world.post('/v1/ai/chat/completions', { model: `${owner}/ok`, ...chatBody(text) })).text();
    const { held } = await world.ledger.until(1);
    expect(held).toBeGreaterThanOrEqual(sentArrayBytes());
  });

  test.each(hostileArguments)('covers responses with %s', async (_what, text) => {
    await (await world.post('/v1/ai/responses', { model: `${owner}/ok`, ...responseBody(text) })).text();
    const { held } = await world.ledger.until(1);
    expect(held).toBeGreaterThanOrEqual(sentArrayBytes());
  });
});

/** The length of the array in the request that the provider received. */
function sentArrayBytes(): bigint {
  const [array = ''] = /\[(?:null|[-\d.,e+]){1000,}\]/.exec(provider.lastCall().body.toString()) ?? [];
  expect(array.length).toBeGreaterThan(1_000);
  return BigInt(array.length);
}

// A linear scan takes about 0.1 seconds; a quadratic scan would take hours.
test('arguments of 10 MB are measured in linear time', () => {
  for (const text of ['1'.repeat(1e7), '1e'.repeat(5e6), 'e'.repeat(1e7), '1.'.repeat(5e6)]) {
    const startedMs = performance.now();
    sizeOf(chatBody(text), 'chat');
    expect(performance.now() - startedMs).toBeLessThan(5_000);
  }
});

describe('the bound by a tokenizer', () => {
  const counter = createTokenCounter({ deadlineMs: 60_000 });
  afterAll(() => counter.close());
  const model = catalogModel({
    upstream_model: 'gpt-5-mini',
    providerEntry: { ...catalogModel().providerEntry, kind: 'openai' },
  });
  const input = (a: string) => ({ a });
  const bodies: readonly [RequestFormat, (a: string) => object][] = [
    [
      'messages',
      (a) => ({
        messages: [
          { role: 'assistant', content: [{ type: 'tool_use', id: 't', name: 'f', input: input(a) }] },
        ],
      }),
    ],
    [
      'stream',
      (a) => ({
        prompt: [
          {
            role: 'assistant',
            content: [{ type: 'tool-call', toolCallId: 't', toolName: 'f', input: input(a) }],
          },
        ],
      }),
    ],
  ];

  test.each(bodies)('covers the escapes of a tool input in %s', async (format, body) => {
    for (const text of ['\n'.repeat(5_000), '"'.repeat(5_000), '\\'.repeat(5_000), '\u0001'.repeat(2_000)]) {
      const bound = await computeCloserBound(model, sizeOf(body(text), format).readText(), counter);
      const tokens = countTokens(JSON.stringify(input(text)), { disallowedSpecial: new Set() });
      expect(bound).toBeGreaterThanOrEqual(tokens);
    }
  });
});
