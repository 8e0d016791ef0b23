// The connections to providers.
import { createServer, request } from 'node:http';
import { createServer as createNetServer, type Socket } from 'node:net';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { defaultTimeouts } from '../../../../src/gateway/ai/upstream/deadlines.ts';
import { startProvider, type ScriptedProvider } from '../../../support/provider.ts';
import { providerKey, startAi } from '../world.ts';
import { listen } from '../../../support/local-server.ts';

const messages = [{ role: 'user', content: 'hi' }];
const chat = '/v1/ai/chat/completions';

describe('createUpstream', () => {
  let provider: ScriptedProvider;
  beforeAll(async () => {
    provider = await startProvider();
  });
  afterAll(() => provider.close());

  test('reuses connections for consecutive calls', async () => {
    const world = await startAi({ models: provider.modelsFile({ ok: 'ok' }) });
    try {
      const connectionCount = provider.connections();
      for (let round = 0; round < 6; round += 1) {
        await (await world.post(chat, { model: 'acme/ok', messages, stream: round % 2 === 0 })).text();
        await (
          await world.post('/v1/ai/stream', {
            model: 'acme/ok',
            prompt: [{ role: 'user', content: [{ type: 'text', text: 'x' }] }],
          })
        ).text();
      }
      // The end of a stream is still being read when its caller has the answer, so the next call
      // may open a second connection.
      expect(provider.connections() - connectionCount).toBeLessThanOrEqual(2);
    } finally {
      await world.close();
    }
  });

  test.each([
    ['through the configured proxy', undefined, 1],
    ['directly to an excluded host', '127.0.0.1', 0],
  ])('sends calls %s', async (_way, excludedHost, proxiedCount) => {
    const proxiedUrls: string[] = [];
    // For http targets the client sends the absolute URL to the proxy, which requests it from the
    // provider.
    const proxy = createServer((incoming, outgoing) => {
      proxiedUrls.push(incoming.url ?? '');
      const { 'proxy-connection': _proxyConnection, ...headers } = incoming.headers;
      const onwardRequest = request(
        incoming.url ?? '',
        { method: incoming.method ?? 'GET', headers },
        (answer) => {
          outgoing.writeHead(answer.statusCode ?? 502, answer.headers);
          answer.pipe(outgoing);
        },
      );
      incoming.pipe(onwardRequest);
    });
    const { url: address } = await listen(proxy);
    const world = await startAi({
      models: provider.modelsFile({ ok: 'ok' }),
      proxies: { http: address, none: excludedHost },
    });
    try {
      expect((await world.post(chat, { model: 'acme/ok', messages })).status).toBe(200);
      expect(proxiedUrls).toHaveLength(proxiedCount);
    } finally {
      await world.close();
      proxy.closeAllConnections();
      await new Promise((resolve) => proxy.close(resolve));
    }
  });

  test('gives up a proxy that does not take the connection in time', async () => {
    // A proxy with TLS whose handshake never ends.
    const sockets: Socket[] = [];
    const silentProxy = createNetServer((socket) => sockets.push(socket));
    const { port } = await listen(silentProxy);
    const world = await startAi({
      models: provider.modelsFile({ ok: 'ok' }),
      proxies: { http: `https://127.0.0.1:${port}` },
      timeouts: { ...defaultTimeouts, connectMs: 500 },
      resilience: { retry: { retries: 0 } },
    });
    try {
      expect((await world.post(chat, { model: 'acme/ok', messages })).status).toBe(504);
      // The default of undici is ten seconds.
      expect(world.logged.join('')).toContain('timeout: 500ms');
    } finally {
      await world.close();
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => silentProxy.close(resolve));
    }
  });

  test('logs the host of a provider that failed, without its key', async () => {
    const world = await startAi({ models: provider.modelsFile({ refused: 'key-echo?code=401' }) });
    try {
      await world.post(chat, { model: 'acme/refused', messages });
      const line = world.logged.find((candidate) => candidate.includes('model provider failed'));
      expect(JSON.parse(line ?? '{}')).toMatchObject({
        level: 'warn',
        provider: new URL(provider.url).host,
        code: 'provider_credentials',
        err: { status: 401 },
      });
      expect(line).not.toContain(providerKey);
    } finally {
      await world.close();
    }
  });
});
