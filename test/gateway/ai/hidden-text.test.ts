// A hold covers text that looks like media to the gateway but is read as text by the model.
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { startProvider, type ScriptedProvider } from '../../support/provider.ts';
import { startAi, type World } from './world.ts';

const rates = { input: 1_000_000, output: 1_000_000 };
const note = 'x'.repeat(900_000);
const lookalike = { type: 'audio', data: 'AAAA', note };
const picture = 'iVBORw0KGgo=';

let provider: ScriptedProvider;
let world: World;
beforeAll(async () => {
  provider = await startProvider();
  world = await startAi({
    models: provider.modelsFile(
      { ok: 'ok' },
      {
        provider: {
          output_limit_member: 'max_tokens',
          formats: ['chat', 'responses', 'embeddings', 'rerank'],
        },
        model: { rates, max_output_tokens: 1_000, modalities: ['text', 'stream', 'openai', 'embedding'] },
        providers: [
          { id: 'claude', kind: 'anthropic', base_url: provider.url, output_limit_member: 'max_tokens' },
        ],
        models: [
          { id: 'claude/ok', provider: 'claude', upstream_model: 'ok', rates, max_output_tokens: 1_000 },
        ],
      },
    ),
    env: { ACME_API_KEY: 'x' },
  });
});
afterAll(async () => {
  await world.close();
  await provider.close();
});
beforeEach(() => world.ledger.reset());

const user = { role: 'user', content: 'hi' };
const turnOf = (part: object) => [{ role: 'user', content: [part] }];
const streamUser = { role: 'user', content: [{ type: 'text', text: 'hi' }] };

describe('the hold for 900 kB of text', () => {
  test.each<[string, string, object]>([
    [
      'the input of a tool call of messages',
      'messages',
      {
        model: 'claude/ok',
        messages: [
          user,
          { role: 'assistant', content: [{ type: 'tool_use', id: 't', name: 'f', input: lookalike }] },
          { role: 'user', content: [{ type: 'tool_result', tool_use_id: 't', content: 'done' }] },
        ],
      },
    ],
    [
      'the context of a document',
      'messages',
      {
        model: 'claude/ok',
        messages: turnOf({
          type: 'document',
          context: note,
          source: { type: 'base64', media_type: 'application/pdf', data: 'AAAA' },
        }),
      },
    ],
    [
      'a default of a schema',
      'chat/completions',
      {
        model: 'acme/ok',
        messages: [user],
        tools: [
          {
            type: 'function',
            function: {
              name: 'f',
              parameters: { type: 'object', properties: { a: { default: lookalike } } },
            },
          },
        ],
      },
    ],
    [
      'the file name of a file',
      'chat/completions',
      {
        model: 'acme/ok',
        messages: turnOf({
          type: 'file',
          file: { filename: note, file_data: `data:application/pdf;base64,${picture}` },
        }),
      },
    ],
    [
      'the detail of a picture',
      'chat/completions',
      {
        model: 'acme/ok',
        messages: turnOf({
          type: 'image_url',
          image_url: { url: `data:image/png;base64,${picture}`, detail: note },
        }),
      },
    ],
    [
      'an item of responses',
      'responses',
      {
        model: 'acme/ok',
        input: [user, { type: 'function_call', call_id: 'c', name: 'f', arguments: '{}', note: lookalike }],
      },
    ],
    ['metadata', 'responses', { model: 'acme/ok', input: 'hi', metadata: { a: lookalike } }],
    [
      'the input of a tool call of stream',
      'stream',
      {
        model: 'acme/ok',
        prompt: [
          streamUser,
          {
            role: 'assistant',
            content: [{ type: 'tool-call', toolCallId: 'c', toolName: 'f', input: lookalike }],
          },
          {
            role: 'tool',
            content: [
              {
                type: 'tool-result',
                toolCallId: 'c',
                toolName: 'f',
                output: { type: 'text', value: 'done' },
              },
            ],
          },
        ],
      },
    ],
    [
      'the result of a tool of text',
      'text',
      {
        model: 'acme/ok',
        messages: [
          user,
          {
            role: 'assistant',
            content: [{ type: 'tool-call', tool_call_id: 'c', tool_name: 'f', input: {} }],
          },
          { role: 'tool', content: [{ type: 'tool-result', tool_call_id: 'c', output: lookalike }] },
        ],
      },
    ],
    ['a document to rank', 'rerank', { model: 'acme/ok', query: 'hi', documents: [lookalike] }],
    ['an input to embed', 'embeddings', { model: 'acme/ok', input: [lookalike] }],
  ])('covers %s', async (_place, path, body) => {
    const limit = path === 'messages' ? { max_tokens: 16 } : {};
    await (await world.post(`/v1/ai/${path}`, { ...limit, ...body })).text();
    expect((await world.ledger.until(1)).held).toBeGreaterThan(900_000n);
  });
});
