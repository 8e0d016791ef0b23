// File addresses in translated formats: the gateway forwards addresses that a provider may fetch, and never
// an address on the provider's own disk.
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { startProvider, type ScriptedProvider } from '../../../support/provider.ts';
import { startAi, type World } from '../world.ts';

let provider: ScriptedProvider;
let world: World;
beforeAll(async () => {
  provider = await startProvider();
  world = await startAi({ models: provider.modelsFile({ ok: 'ok' }) });
});
afterAll(async () => {
  await world.close();
  await provider.close();
});
beforeEach(() => provider.reset());

const postGeminiFile = (fileUri: string) =>
  world.post('/v1beta/models/acme%2Fok:generateContent', {
    contents: [{ role: 'user', parts: [{ fileData: { fileUri, mimeType: 'image/png' } }] }],
  });
const postPromptFile = (url: string) =>
  world.post('/v1/ai/stream', {
    model: 'acme/ok',
    prompt: [
      { role: 'user', content: [{ type: 'file', mediaType: 'image/png', data: { type: 'url', url } }] },
    ],
  });
const postToolResult = (url: string) =>
  world.post('/v1/ai/stream', {
    model: 'acme/ok',
    prompt: [
      { role: 'user', content: [{ type: 'text', text: 'hi' }] },
      {
        role: 'assistant',
        content: [{ type: 'tool-call', toolCallId: 'a', toolName: 'f', input: {} }],
      },
      {
        role: 'tool',
        content: [
          {
            type: 'tool-result',
            toolCallId: 'a',
            toolName: 'f',
            output: { type: 'content', value: [{ type: 'image-url', url }] },
          },
        ],
      },
    ],
  });

describe.each([
  ['a Gemini request', postGeminiFile],
  ['a prompt of the AI SDK', postPromptFile],
  ['a tool result', postToolResult],
] as const)('the address in %s', (_name, post) => {
  test.each(['file:///etc/passwd', 'FILE:///etc/passwd', 'ftp://a.test/b', 'javascript:alert(1)', 'a b'])(
    'is refused: %s',
    async (address) => {
      const response = await post(address);
      expect(response.status).toBe(400);
      expect(provider.calls).toHaveLength(0);
    },
  );

  test('is sent with https', async () => {
    const response = await post('https://pictures.test/a.png');
    await response.text();
    expect(response.status).toBe(200);
    expect(provider.lastCall().body.toString()).toContain('https://pictures.test/a.png');
  });
});
