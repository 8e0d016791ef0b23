// CORS headers of the login operations: only the origins of active Bureaus get them, and only on these paths.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { testDatabase } from '../../support/databases.ts';
import { startGateway, type GatewayWorld } from '../../support/gateway.ts';
import { until } from '../../support/until.ts';

const origin = 'https://app.shop.example';
const operations = [
  'providers',
  'login/start',
  'login/continue',
  'login/result',
  'login/token',
  'me',
  'logout',
  'register',
  'verify',
  'password/forgot',
  'password/reset',
];
let world: GatewayWorld;
beforeAll(async () => {
  world = await startGateway({ withAdmin: true });
  await world.admin.bureaus.createBureau({
    bureau_id: 'shop',
    server_url: 'https://shop.example/path',
    redirect_origins: [origin],
    redirect_uris: ['https://spa.shop.example/welcome'],
  });
  // The gateway applies the new Bureau's origins within a second.
  await until(
    async () =>
      (await preflight('login/start', origin)).headers.get('access-control-allow-origin') === origin,
    'the origin is listed',
  );
});
afterAll(() => world?.close());

const preflight = (path: string, pageOrigin: string) =>
  fetch(`${world.url}/v1/accounts/${path}`, {
    method: 'OPTIONS',
    headers: {
      origin: pageOrigin,
      'access-control-request-method': 'POST',
      'access-control-request-headers': 'content-type',
    },
  });

describe('the login operations', () => {
  test.each(operations)('answer the preflight of a Bureau’s origin: %s', async (path) => {
    const { status, headers } = await preflight(path, origin);
    expect(status).toBe(204);
    expect(headers.get('access-control-allow-origin')).toBe(origin);
    expect(headers.get('access-control-allow-headers')).toBe('content-type');
    expect(headers.get('access-control-allow-credentials')).toBeNull();
    expect(headers.get('vary')).toBe('Origin');
  });

  test('allow the origin of the Server entrypoint', async () => {
    expect(
      (await preflight('login/start', 'https://shop.example')).headers.get('access-control-allow-origin'),
    ).toBe('https://shop.example');
  });

  test('allow the origins of the addresses to which the login page returns', async () => {
    const { headers } = await preflight('login/token', 'https://spa.shop.example');
    expect(headers.get('access-control-allow-origin')).toBe('https://spa.shop.example');
  });

  test.each([
    'https://evil.example',
    'https://app.shop.example.evil.example',
    'http://app.shop.example',
    'https://APP.shop.example',
    'https://app.shop.example:8443',
    'null',
    '*',
  ])('do not allow %s', async (pageOrigin) => {
    const { headers } = await preflight('login/start', pageOrigin);
    expect(headers.get('access-control-allow-origin')).toBeNull();
    expect(headers.get('vary')).toBe('Origin');
  });

  test('let a page read their errors', async () => {
    const response = await fetch(`${world.url}/v1/accounts/login/start`, {
      method: 'POST',
      headers: { origin, 'content-type': 'application/json' },
      body: '{}',
    });
    expect([response.status, response.headers.get('access-control-allow-origin')]).toEqual([400, origin]);
  });

  test.each(['keys/list', 'keys/create', 'login/code', 'oauth/callback', 'tokens/issue'])(
    'do not include %s',
    async (path) => {
      const { headers } = await preflight(path, origin);
      expect(headers.get('access-control-allow-origin')).toBeNull();
    },
  );
});

test('a new server allows the origins of Bureaus before its first poll for changes', async () => {
  const place = await testDatabase();
  let server: GatewayWorld | undefined;
  try {
    await place.database.sql`
      insert into gateway.bureaus_records (bureau_id, name, server_url, redirect_origins)
      values ('shop', 'Shop', 'https://shop.example', ${[origin]}::text[])`;
    const allowedOrigin = await place.database.tx(async (tx) => {
      // While the table is locked, no poll gets an answer.
      await tx`lock table gateway.changes in access exclusive mode`;
      server = await startGateway({ place });
      const { headers } = await fetch(`${server.url}/v1/accounts/login/start`, {
        method: 'OPTIONS',
        headers: { origin, 'access-control-request-method': 'POST' },
      });
      return headers.get('access-control-allow-origin');
    });
    expect(allowedOrigin).toBe(origin);
  } finally {
    await server?.close();
    await place.close();
  }
});
