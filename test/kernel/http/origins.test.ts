// Which origins may call the server, and which Host names the loopback guard accepts.
import { describe, expect, test } from 'vitest';
import { loopbackGuard } from '../../../src/kernel/http/guard.ts';
import { sendBytes } from '../../support/raw-http.ts';
import { rawAnswer } from '../world.ts';
import { startTestWorld } from './test-server.ts';

describe('cross-origin calls', () => {
  const preflight = (url: string, origin: string) =>
    fetch(`${url}/v1/ai/text`, {
      method: 'OPTIONS',
      headers: {
        origin,
        'access-control-request-method': 'POST',
        'access-control-request-headers': 'authorization,content-type',
      },
    });

  test('are allowed only from the configured origins', async () => {
    const { url } = await startTestWorld({ server: { cors: { origins: ['https://app.test'] } } });
    const preflightAnswer = await preflight(url, 'https://app.test');
    expect(preflightAnswer.status).toBe(204);
    expect(preflightAnswer.headers.get('access-control-allow-origin')).toBe('https://app.test');
    expect(preflightAnswer.headers.get('access-control-allow-headers')).toBe('authorization,content-type');
    expect(
      (await fetch(`${url}/health`, { headers: { origin: 'https://app.test' } })).headers.get(
        'access-control-allow-origin',
      ),
    ).toBe('https://app.test');
    expect(
      (await fetch(`${url}/nowhere`, { headers: { origin: 'https://app.test' } })).headers.get(
        'access-control-allow-origin',
      ),
    ).toBe('https://app.test');
    for (const origin of ['https://evil.test', 'https://app.test.evil.test', 'null', 'HTTPS://APP.TEST']) {
      const response = await preflight(url, origin);
      expect([...response.headers.keys()].filter((name) => name.startsWith('access-control-'))).toEqual([]);
      expect(response.headers.get('vary')).toBe('Origin');
    }
  });

  test('get no CORS header without a configuration', async () => {
    const { url } = await startTestWorld();
    const { headers } = await preflight(url, 'https://app.test');
    expect(
      [...headers.keys()].filter((name) => name.startsWith('access-control-') || name === 'vary'),
    ).toEqual([]);
  });
});

describe('the loopback guard', () => {
  const get = async (port: number, lines: string[], target = '/health') =>
    rawAnswer(
      await sendBytes(port, `GET ${target} HTTP/1.1\r\n${lines.join('\r\n')}\r\nconnection: close\r\n\r\n`),
    );

  test('accepts only its loopback names with its port', async () => {
    const { port } = await startTestWorld({
      server: { surface: 'agent', guard: loopbackGuard({ allowHosts: ['agent.test:8443'] }) },
    });
    for (const host of [
      `localhost:${port}`,
      `127.0.0.1:${port}`,
      `[::1]:${port}`,
      `LOCALHOST:${port}`,
      'agent.test:8443',
    ]) {
      expect((await get(port, [`host: ${host}`])).status, host).toBe(200);
    }
    const otherHosts = [
      'evil.test',
      `evil.test:${port}`,
      `localhost.evil.test:${port}`,
      `127.0.0.1.nip.io:${port}`,
      'localhost',
      '127.0.0.1',
      `localhost:${port + 1}`,
      'agent.test',
      `127.1:${port}`,
      `0.0.0.0:${port}`,
      `localhost:${port}0`,
      `a@localhost:${port}`,
    ];
    for (const host of otherHosts) {
      for (const target of ['/health', '/nowhere', '/v1/ai/models', '/%ff']) {
        expect(await get(port, [`host: ${host}`], target), `${host} ${target}`).toMatchObject({
          status: 403,
          body: { success: false, error: { code: 'forbidden_host' } },
        });
      }
    }
    expect((await get(port, [`host: localhost:${port}`, `host: localhost:${port}`])).status).toBe(403);
    expect((await get(port, ['x: 1'])).status).toBe(403);
    expect((await get(port, [`host: localhost:${port}`], 'http://evil.test/health')).status).toBe(403);
    expect((await get(port, [`host: localhost:${port}`], `http://localhost:${port}/health`)).status).toBe(
      200,
    );
  });

  test('refuses other origins before it reads the credential', async () => {
    const { port } = await startTestWorld({
      server: { surface: 'agent', guard: loopbackGuard({ allowOrigins: ['https://console.test'] }) },
    });
    const host = `host: localhost:${port}`;
    for (const origin of [
      'null',
      'https://evil.test',
      'http://localhost:1',
      'https://console.test.evil.test',
      `https://localhost:${port}`,
      '',
    ]) {
      expect(
        await get(port, [host, `origin: ${origin}`, 'authorization: Bearer wrong'], '/v1/ai/models'),
        origin,
      ).toMatchObject({ status: 403, body: { error: { code: 'forbidden_origin' } } });
    }
    expect((await get(port, [host, 'sec-fetch-site: cross-site'])).status).toBe(403);
    // The value that a browser sends for a page on another port of this machine.
    expect((await get(port, [host, 'sec-fetch-site: same-site'])).status).toBe(403);
    expect(
      (await get(port, [host, 'origin: https://console.test', 'sec-fetch-site: same-site'])).status,
    ).toBe(200);
    expect((await get(port, [host, `origin: http://localhost:${port}`])).status).toBe(200);
    expect(
      (await get(port, [host, 'origin: https://console.test', 'sec-fetch-site: cross-site'])).status,
    ).toBe(200);
    expect((await get(port, [host, 'sec-fetch-site: same-origin'])).status).toBe(200);
  });

  test.each([
    ['another case', ['sec-fetch-site: Cross-Site']],
    ['a second value', ['sec-fetch-site: same-origin', 'sec-fetch-site: cross-site']],
    ['the same value twice', ['sec-fetch-site: same-origin', 'sec-fetch-site: same-origin']],
    ['an undefined value', ['sec-fetch-site: elsewhere']],
    ['no value', ['sec-fetch-site: ']],
    [
      'two values beside a listed origin',
      ['origin: https://console.test', 'sec-fetch-site: same-site', 'sec-fetch-site: none'],
    ],
  ])('a Sec-Fetch-Site with %s is refused', async (_name, requestHeaders) => {
    const { port } = await startTestWorld({
      server: { surface: 'agent', guard: loopbackGuard({ allowOrigins: ['https://console.test'] }) },
    });
    expect(await get(port, [`host: localhost:${port}`, ...requestHeaders])).toMatchObject({
      status: 403,
      body: { error: { code: 'forbidden_origin' } },
    });
  });

  test.each(['none', 'NONE', 'Same-Origin'])('a Sec-Fetch-Site of %s passes', async (site) => {
    const { port } = await startTestWorld({ server: { surface: 'agent', guard: loopbackGuard() } });
    expect((await get(port, [`host: localhost:${port}`, `sec-fetch-site: ${site}`])).status).toBe(200);
  });
});
