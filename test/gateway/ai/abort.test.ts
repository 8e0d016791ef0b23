// How fast the gateway closes its connection to the provider after the client has disconnected.
import { request } from 'node:http';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startProvider, type ScriptedProvider } from '../../support/provider.ts';
import { quickest } from '../../support/quickest.ts';
import { startAi, userToken, type World } from './world.ts';

const messages = [{ role: 'user', content: 'hi' }];
const prompt = [{ role: 'user', content: [{ type: 'text', text: 'hi' }] }];

describe('a client that disconnects', () => {
  let provider: ScriptedProvider;
  let world: World;
  beforeAll(async () => {
    provider = await startProvider();
    world = await startAi({
      models: provider.modelsFile({
        slow: 'ok?chunks=500&gap=20',
        never: 'never-headers',
        silence: 'silence?chunks=2',
      }),
    });
  });
  afterAll(async () => {
    await world.close();
    await provider.close();
  });

  /**
   * Sends the call, disconnects at that moment, and returns for how many milliseconds the provider's
   * socket stayed open afterwards.
   */
  async function measureSocketLifetime(
    path: string,
    body: object,
    moment: 'called' | 'first byte',
  ): Promise<number> {
    provider.reset();
    const outgoing = request(`${world.url}${path}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', authorization: `Bearer ${userToken}` },
    });
    outgoing.on('error', () => {});
    const firstByte = new Promise<void>((resolve) =>
      outgoing.on('response', (response) => response.once('data', () => resolve())),
    );
    outgoing.end(JSON.stringify(body));
    await provider.until((calls) => calls.length === 1);
    if (moment === 'first byte') await firstByte;
    const abortedMs = performance.now();
    outgoing.destroy();
    await provider.until((calls) => calls[0]?.abortedAt !== undefined);
    return (provider.lastCall().abortedAt ?? Number.POSITIVE_INFINITY) - abortedMs;
  }

  test.each<[string, string, object, 'called' | 'first byte']>([
    [
      'chat, streamed, midway',
      '/v1/ai/chat/completions',
      { model: 'acme/slow', messages, stream: true },
      'first byte',
    ],
    [
      'chat, streamed, in a silence',
      '/v1/ai/chat/completions',
      { model: 'acme/silence', messages, stream: true },
      'first byte',
    ],
    [
      'chat, streamed, before the first byte',
      '/v1/ai/chat/completions',
      { model: 'acme/never', messages, stream: true },
      'called',
    ],
    ['chat, whole', '/v1/ai/chat/completions', { model: 'acme/never', messages }, 'called'],
    ['text', '/v1/ai/text', { model: 'acme/never', prompt: 'hi' }, 'called'],
    ['stream, midway', '/v1/ai/stream', { model: 'acme/slow', prompt }, 'first byte'],
    [
      'chat of the AI SDK, midway',
      '/v1/ai/ui',
      { model: 'acme/slow', messages: [{ role: 'user', parts: [{ type: 'text', text: 'hi' }] }] },
      'first byte',
    ],
    ['stream, before the first byte', '/v1/ai/stream', { model: 'acme/never', prompt }, 'called'],
  ])("closes the provider's socket within 50 ms: %s", async (_name, path, body, moment) => {
    // The first call also compiles code, so the quickest round counts.
    expect(await quickest(50, () => measureSocketLifetime(path, body, moment))).toBeLessThan(50);
  });

  test('logs no error', async () => {
    await measureSocketLifetime('/v1/ai/text', { model: 'acme/never', prompt: 'hi' }, 'called');
    expect(world.logged.filter((line) => /"level":"(error|warn)"/.test(line))).toEqual([]);
  });
});
