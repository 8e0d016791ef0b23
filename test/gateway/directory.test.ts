// The operations that describe the server: its OpenAPI document, health, readiness and services.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { localPerson } from '../../src/gateway/accounts/index.ts';
import { directory } from '../../src/gateway/directory.ts';
import { Problem } from '../../src/kernel/problem.ts';
import { startWorld, type World } from './accounts/world.ts';

let world: World;
let checkReady: () => Promise<void>;
beforeAll(async () => {
  // One connection, so that a test can keep a request from the database.
  world = await startWorld({ canShiftClock: true, ready: () => checkReady() });
  checkReady = () => world.database.ping();
});
afterAll(() => world.close());

/** Runs the test while the check of readiness fails with the error. */
async function withFailingCheck(error: Error, run: () => Promise<void>): Promise<void> {
  const passingCheck = checkReady;
  checkReady = () => Promise.reject(error);
  try {
    await run();
  } finally {
    checkReady = passingCheck;
  }
}

describe('directory.getDocument', () => {
  test('answers the OpenAPI document of this server with an ETag', async () => {
    const { status, headers, body } = await world.call('GET', '/openapi.json');
    expect(status).toBe(200);
    expect(headers).toMatchObject({
      'content-type': 'application/json',
      'cache-control': 'public, max-age=60',
      etag: expect.stringMatching(/^"[\w-]{22}"$/),
    });
    const document = body as unknown as { info: object; servers: object[]; paths: Record<string, object> };
    expect(document.info).toMatchObject({ title: 'Townhall gateway' });
    expect(document.servers).toMatchObject([{ url: '/' }]);
    expect(document.paths['/health']).toMatchObject({ get: { operationId: 'directory.getHealth' } });
  });

  test('answers 304 to a caller with the current ETag', async () => {
    const etag = String((await world.call('GET', '/openapi.json')).headers['etag']);
    for (const tag of [etag, `W/${etag}`, `"other", ${etag}`, '*']) {
      const { status, headers } = await world.call('GET', '/openapi.json', {
        headers: { 'if-none-match': tag },
      });
      expect([tag, status, headers['etag']]).toEqual([tag, 304, etag]);
    }
    const { status } = await world.call('GET', '/openapi.json', { headers: { 'if-none-match': '"other"' } });
    expect(status).toBe(200);
  });

  test.each(['/health', '/ready'])('is linked from %s', async (path) => {
    const { headers } = await world.call('GET', path);
    expect(headers['link']).toContain('</openapi.json>; rel="service-desc"');
  });
});

describe('directory.getHealth', () => {
  test('names the services, whatever the credential', async () => {
    for (const token of [undefined, 'nonsense']) {
      const { status, body } = await world.call('GET', '/health', token === undefined ? {} : { token });
      expect([status, body]).toEqual([200, { ok: true, services: ['bureaus', 'accounts', 'admin'] }]);
    }
  });

  test('needs no connection to the database', async () => {
    const started = Promise.withResolvers<void>();
    const end = Promise.withResolvers<void>();
    // The only connection of this world.
    const transaction = world.database.tx(async (tx) => {
      await tx`select 1`;
      started.resolve();
      await end.promise;
    });
    await started.promise;
    const answer = await world.call('GET', '/health');
    end.resolve();
    await transaction;
    expect(answer.status).toBe(200);
  });

  test('refuses a query', async () => {
    expect((await world.call('GET', '/health?verbose=1')).status).toBe(400);
  });

  test('refuses other methods', async () => {
    const { status, headers } = await world.call('POST', '/health', { body: {} });
    expect([status, headers['allow']]).toEqual([405, expect.stringContaining('GET')]);
  });
});

describe('directory.getReadiness', () => {
  test('is 200 while the database answers', async () => {
    const { status, body } = await world.call('GET', '/ready');
    expect([status, body]).toEqual([200, { ready: true }]);
  });

  test.each([
    [
      'the database is unreachable',
      new Problem('unavailable', 'database_unavailable', 'Unreachable.', { headers: { 'retry-after': '2' } }),
      'database_unavailable',
      '2',
    ],
    [
      'the server finishes its last requests',
      new Problem('unavailable', 'draining', 'The server stops.', { headers: { 'retry-after': '1' } }),
      'draining',
      '1',
    ],
    ['the check fails with another error', new Error('secret detail'), 'not_ready', '1'],
  ])('is 503 while %s', async (_name, error, code, retryAfter) => {
    await withFailingCheck(error, async () => {
      const { status, headers, body } = await world.call('GET', '/ready');
      expect([status, body.error.code, headers['retry-after']]).toEqual([503, code, retryAfter]);
      expect(JSON.stringify(body)).not.toContain('secret detail');
    });
  });

  test('refuses a query', async () => {
    expect((await world.call('GET', '/ready?x=1')).status).toBe(400);
  });
});

describe('directory.listServices', () => {
  test('lists every service for a user and for an administrator', async () => {
    const { userToken } = await world.accounts.issueUserToken({ bureauId: 'local', person: localPerson });
    const sessionToken = await world.logInAdmin();
    for (const token of [userToken, sessionToken]) {
      const { status, body } = await world.call('GET', '/v1/services', { token });
      expect(status).toBe(200);
      const { items } = body as unknown as { items: { id: string; name: string; env: object[] }[] };
      expect(items.map(({ id, name }) => ({ id, name }))).toEqual([
        { id: 'bureaus', name: 'Bureaus' },
        { id: 'accounts', name: 'Accounts' },
        { id: 'admin', name: 'Administration' },
      ]);
      expect(items[1]?.env).toContainEqual({
        key: 'OIDC_ISSUER',
        description: expect.any(String),
        required: false,
      });
    }
  });

  test('shows only the public members of a declaration', async () => {
    const env = [{ key: 'ACME_API_KEY', description: 'Key of Acme.', required: true, value: 'secret' }];
    const service = directory({
      services: () => [{ id: 'ai', title: 'Models', env }],
      ready: async () => {},
      contract: {},
    });
    const reply = await service.handlers['directory.listServices']({} as never);
    expect(reply).toHaveProperty('body', {
      items: [
        {
          id: 'ai',
          name: 'Models',
          env: [{ key: 'ACME_API_KEY', description: 'Key of Acme.', required: true }],
        },
      ],
    });
  });

  test('requires a credential', async () => {
    const guest = await world.call('GET', '/v1/services');
    expect([guest.status, guest.body.error.code]).toEqual([401, 'authentication_required']);
  });

  test('refuses a query', async () => {
    const { userToken } = await world.accounts.issueUserToken({ bureauId: 'local', person: localPerson });
    expect((await world.call('GET', '/v1/services?id=ai', { token: userToken })).status).toBe(400);
  });
});
