// The login without credentials: which callers are on this machine, which servers offer it, and what
// concurrent logins create.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { mayLogInLocally } from '../../../src/gateway/accounts/index.ts';
import { localLogin } from '../../../src/gateway/accounts/providers/local-login.ts';
import { newSecret, seal, unseal } from '../../../src/gateway/accounts/login/sealed-secrets.ts';
import { startWorld, type World } from './world.ts';

const localCaller = {
  bureauId: 'local',
  bureauName: 'Local',
  remoteAddress: '127.0.0.1',
  host: '127.0.0.1:43127',
  origin: undefined,
  isForwarded: false,
};

describe('the local login', () => {
  test.each([
    ['IPv4', {}],
    ['IPv6', { remoteAddress: '::1', host: '[::1]:43127' }],
    ['IPv4 mapped into IPv6', { remoteAddress: '::ffff:127.0.0.1', host: 'localhost:43127' }],
    ['IPv4 from a page of the server', { origin: 'http://127.0.0.1:43127' }],
  ])('exists for a caller on this machine over %s', (_name, part) => {
    expect(localLogin.available({ ...localCaller, ...part })).toBe(true);
  });

  test.each([
    ['from another machine', { remoteAddress: '192.168.1.7' }],
    [
      'from another machine under the name of this one',
      { remoteAddress: '::ffff:192.168.1.7', host: 'localhost' },
    ],
    ['from an address that only looks close', { remoteAddress: '128.0.0.1' }],
    ['under the Host of another machine', { host: 'townhall.example' }],
    ['without a Host', { host: '' }],
    ['from a web page of another port', { origin: 'http://127.0.0.1:5173' }],
    ['from a web page of another name of this machine', { origin: 'http://localhost:43127' }],
    ['from a web page with https', { origin: 'https://127.0.0.1:43127' }],
    ['from a page with an opaque origin', { origin: 'null' }],
    [
      'from a page whose name resolves to this machine',
      { host: 'evil.example', origin: 'http://evil.example' },
    ],
    ['through a proxy that adds its headers', { isForwarded: true }],
    ['into another Bureau', { bureauId: 'shop' }],
  ])('does not exist %s', (_name, part) => {
    expect(localLogin.available({ ...localCaller, ...part })).toBe(false);
  });
});

describe('a server', () => {
  const localEdition = {
    engine: 'embedded',
    localLogin: undefined,
    cityBaseUrl: undefined,
    trustedProxies: [],
  } as const;

  test('offers the local login as a local edition without a proxy', () => {
    expect(mayLogInLocally(localEdition)).toBe(true);
    expect(
      mayLogInLocally({ ...localEdition, localLogin: true, cityBaseUrl: 'http://localhost:43127' }),
    ).toBe(true);
  });

  test.each([
    ['with PostgreSQL', { engine: 'postgres' }],
    ['with LOCAL_LOGIN=false', { localLogin: false }],
    ['with a public address', { cityBaseUrl: 'https://gateway.example' }],
    ['behind a proxy', { trustedProxies: ['127.0.0.1'] }],
  ] as const)('does not offer it %s', (_name, part) => {
    expect(mayLogInLocally({ ...localEdition, ...part })).toBe(false);
  });

  test('answers 404 to the local login where it is off', async () => {
    const world = await startWorld({ localLogin: false });
    try {
      const { status, body } = await world.call('POST', '/v1/accounts/login/start', {
        body: { provider: 'local', bureau_id: 'local' },
      });
      expect([status, body.error.code]).toEqual([404, 'provider_not_found']);
      expect((await world.call('GET', '/v1/accounts/providers?bureau_id=local')).body.items).toEqual([]);
    } finally {
      await world.close();
    }
  });
});

describe('a forwarded request', () => {
  let world: World;
  beforeAll(async () => {
    world = await startWorld();
  });
  afterAll(() => world?.close());
  const start = (headers: Record<string, string>) =>
    world.call('POST', '/v1/accounts/login/start', {
      body: { provider: 'local', bureau_id: 'local' },
      headers,
    });

  test.each([
    'Forwarded',
    'Via',
    'X-Forwarded-For',
    'X-Forwarded-Host',
    'X-Forwarded-Proto',
    'X-Forwarded',
    'X-Forwarded-Client-Cert',
    'X-Real-IP',
    'X-Client-IP',
    'Client-IP',
    'X-Cluster-Client-IP',
    'CF-Connecting-IP',
    'CF-Ray',
    'True-Client-IP',
    'Fastly-Client-IP',
    'Fly-Client-IP',
    'X-Original-Forwarded-For',
    'X-Original-Host',
    'X-Envoy-External-Address',
    'X-Azure-ClientIP',
    'X-Azure-SocketIP',
    'X-Amzn-Trace-Id',
    'X-AppEngine-User-IP',
    'X-Vercel-Forwarded-For',
    'X-NF-Client-Connection-IP',
    'CDN-Loop',
    'CloudFront-Viewer-Address',
    'Tailscale-User-Login',
    'X-Remote-IP',
    'X-Remote-Addr',
    'DO-Connecting-IP',
  ])('with %s has no local login', async (name) => {
    const { status, body } = await start({ [name]: '203.0.113.7' });
    expect([status, body.error.code]).toEqual([404, 'provider_not_found']);
  });

  test('is not assumed from ordinary headers of local programs', async () => {
    const headers = {
      'user-agent': 'curl/8',
      accept: '*/*',
      'accept-language': 'en',
      'x-request-id': 'abc',
      traceparent: '00-00000000000000000000000000000001-0000000000000001-01',
      'x-stainless-os': 'Linux',
      dnt: '1',
      priority: 'u=1',
    };
    expect((await start(headers)).status).toBe(200);
  });
});

describe('concurrent local logins', () => {
  let world: World;
  beforeAll(async () => {
    world = await startWorld();
  });
  afterAll(() => world.close());
  const localRequest = { provider: 'local', bureau_id: 'local' };

  test('create one user for one person', async () => {
    const answers = await Promise.all(
      Array.from({ length: 8 }, () => world.call('POST', '/v1/accounts/login/start', { body: localRequest })),
    );
    expect(answers.map(({ status }) => status)).toEqual(Array(8).fill(200));
    expect(await world.database.sql`select 1 from gateway.accounts_users`).toHaveLength(1);
  });

  test('create one token for one attempt', async () => {
    const { body } = await world.call('POST', '/v1/accounts/login/start', { body: localRequest });
    const path = `/v1/accounts/login/result?login_id=${body.login_id}`;
    const countBefore = (await world.database.sql`select 1 from gateway.accounts_tokens`).length;
    const reads = await Promise.all(Array.from({ length: 8 }, () => world.call('GET', path)));
    expect([...new Set(reads.map((read) => read.body.user_token))]).toEqual([
      expect.stringMatching(/^th_usr_/),
    ]);
    expect(await world.database.sql`select 1 from gateway.accounts_tokens`).toHaveLength(countBefore + 1);
  });
});

describe('a sealed token', () => {
  test('opens only with its own login_id and purpose', () => {
    const loginId = newSecret('login');
    const sealedToken = seal(loginId, 'login result', 'th_usr_secret');
    expect(unseal(loginId, 'login result', sealedToken)).toBe('th_usr_secret');
    expect(() => unseal(newSecret('login'), 'login result', sealedToken)).toThrow('unable to authenticate');
    expect(() => unseal(loginId, 'login memory', sealedToken)).toThrow('unable to authenticate');
  });

  test('does not open after a change', () => {
    const loginId = newSecret('login');
    const sealedToken = seal(loginId, 'login result', 'th_usr_secret');
    sealedToken[20] = (sealedToken[20] ?? 0) ^ 1;
    expect(() => unseal(loginId, 'login result', sealedToken)).toThrow('unable to authenticate');
  });
});
