// The login through an OpenID provider from the first call to the token: with a complete provider in this
// process, and with forged callbacks and ID tokens.
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { startOidc, type Oidc } from '../../support/oidc.ts';
import { findSecrets } from '../stored-text.ts';
import { createProof, startWorld, type World } from './world.ts';

let world: World;
let oidc: Oidc;
const redirectTo = 'https://shop.example/login?from=menu';

beforeAll(async () => {
  world = await startWorld({ canShiftClock: true, accounts: { providerDeadlineMs: 4_000 } });
  oidc = await startOidc(`${world.url}/v1/accounts/oauth/callback`);
  Object.assign(world.env, {
    OIDC_ISSUER: oidc.issuer,
    OIDC_CLIENT_ID: oidc.clientId,
    OIDC_CLIENT_SECRET: oidc.clientSecret,
  });
  const { sql } = world.database;
  await sql`
    update gateway.bureaus_records set redirect_origins = ${['https://shop.example']}::text[]
    where bureau_id = 'local'`;
});
beforeEach(() => world.shiftClock('0'));
afterEach(() => {
  oidc.rewriteIdToken = undefined;
  oidc.deniesLogin = false;
  oidc.hangingPaths.clear();
});
afterAll(async () => {
  await oidc?.close();
  await world?.close();
});

/** Requests a login, which the gateway may refuse. */
const requestLogin = (members: Record<string, string> = {}, headers: Record<string, string> = {}) =>
  world.call('POST', '/v1/accounts/login/start', {
    body: { provider: 'oidc', bureau_id: 'local', ...members },
    headers,
  });

async function start(members: Record<string, string> = {}) {
  const { status, body } = await requestLogin(members);
  expect([status, body.outcome]).toEqual([200, 'redirect']);
  return {
    loginId: String(body.login_id),
    url: String(body.url),
    userCode: body.user_code as string | undefined,
  };
}

const pathOf = (url: URL) => url.pathname + url.search;
const comeBack = (url: URL) => world.call('GET', pathOf(url));
const result = (loginId: string, members: Record<string, string> = {}) =>
  world.call('GET', `/v1/accounts/login/result?${new URLSearchParams({ login_id: loginId, ...members })}`);
const decide = (fields: Record<string, string>) =>
  world.call('POST', '/v1/accounts/oauth/confirm', {
    body: new URLSearchParams(fields).toString(),
    headers: { 'content-type': 'application/x-www-form-urlencoded' },
  });
const confirmationIn = (html: string) => /name="confirmation" value="([^"]+)"/.exec(html)?.[1] ?? '';
const counts = async () => {
  const [row] = await world.database.sql<{ users: number; tokens: number }[]>`
    select (select count(*)::int from gateway.accounts_users) as users,
      (select count(*)::int from gateway.accounts_tokens) as tokens`;
  return row;
};
async function whilePaused(check: () => Promise<void>): Promise<void> {
  await world.database.sql`update gateway.bureaus_records set state = 'paused'`;
  try {
    await check();
  } finally {
    await world.database.sql`update gateway.bureaus_records set state = 'active'`;
  }
}

describe('a redirect login without redirect_to', () => {
  test('issues the token only after the person confirms the code', async () => {
    oidc.account = { sub: 'ada', email: 'ada@example.com', email_verified: true, name: 'Ada <Lovelace>' };
    const { loginId, url, userCode } = await start();
    expect(userCode).toMatch(/^[B-Z]{4}-[B-Z]{4}$/);
    const page = await comeBack(await oidc.browse(url));
    expect(page.status).toBe(200);
    expect(page.text).toContain(userCode);
    expect(page.text).toContain('Local');
    expect((await result(loginId)).body).toEqual({ login_id: loginId, status: 'pending' });

    const decision = await decide({ confirmation: confirmationIn(page.text), decision: 'confirm' });
    expect([decision.status, decision.text]).toEqual([200, expect.stringContaining('You are logged in')]);
    const { body } = await result(loginId);
    expect(body).toMatchObject({
      status: 'done',
      user: { email: 'ada@example.com', display_name: 'Ada <Lovelace>' },
    });
    expect((await world.call('GET', '/v1/accounts/me', { token: body.user_token })).status).toBe(200);
  });

  test('issues no token when the person declines', async () => {
    const { loginId, url } = await start();
    const page = await comeBack(await oidc.browse(url));
    const confirmation = confirmationIn(page.text);
    expect((await decide({ confirmation, decision: 'cancel' })).text).toContain('refused');
    expect((await result(loginId)).body).toEqual({
      login_id: loginId,
      status: 'failed',
      error: 'login_denied',
    });
    expect((await decide({ confirmation, decision: 'confirm' })).status).toBe(400);
    expect((await result(loginId)).body.status).toBe('failed');
  });

  test.each([
    ['an unknown confirmation', { confirmation: `lgf_${'0'.repeat(43)}`, decision: 'confirm' }],
    ['no confirmation', { decision: 'confirm' }],
  ])('refuses a form with %s', async (_name, fields) => {
    expect((await decide(fields as Record<string, string>)).status).toBe(400);
  });

  test('refuses a decision that is neither confirm nor cancel', async () => {
    const { loginId, url } = await start();
    const confirmation = confirmationIn((await comeBack(await oidc.browse(url))).text);
    expect((await decide({ confirmation, decision: 'maybe' })).status).toBe(400);
    expect((await result(loginId)).body).toEqual({ login_id: loginId, status: 'pending' });
  });

  test('answers pages without scripts, frames and caching', async () => {
    const { url } = await start();
    const { headers, text } = await comeBack(await oidc.browse(url));
    expect(headers['content-type']).toMatch(/^text\/html;charset=utf-8$/);
    const policy = String(headers['content-security-policy']).split('; ');
    expect(policy).toEqual([
      "default-src 'none'",
      expect.stringMatching(/^style-src 'sha256-[^']+'$/),
      "form-action 'self'",
      "frame-ancestors 'none'",
      "base-uri 'none'",
    ]);
    expect(headers['cache-control']).toBe('no-store');
    expect(headers['referrer-policy']).toBe('no-referrer');
    expect(text).not.toContain('<script');
  });

  test('escapes the name of a Bureau', async () => {
    await world.database.sql`update gateway.bureaus_records set name = '<img src=x onerror=alert(1)>'`;
    const { url } = await start();
    const { text } = await comeBack(await oidc.browse(url));
    await world.database.sql`update gateway.bureaus_records set name = 'Local'`;
    expect(text).toContain('&#60;img');
    expect(text).not.toContain('<img');
  });
});

describe('a redirect login with redirect_to', () => {
  test('issues the token for the login code and its verifier', async () => {
    const { verifier, challenge } = createProof();
    const { loginId, url, userCode } = await start({ redirect_to: redirectTo, code_challenge: challenge });
    expect(userCode).toBeUndefined();
    const callbackAnswer = await comeBack(await oidc.browse(url));
    expect(callbackAnswer.status).toBe(303);
    const location = String(callbackAnswer.headers.location);
    expect(location).toMatch(/^https:\/\/shop\.example\/login\?from=menu#login_code=lgc_[0-9A-Za-z]{43}$/);
    const code = location.slice(location.indexOf('=lgc_') + 1);

    // Not enough: the login ID alone, the code with another verifier, the verifier with another code.
    const resultWithoutProof = await result(loginId);
    expect([resultWithoutProof.status, resultWithoutProof.body.error.param]).toEqual([400, 'login_code']);
    for (const members of [
      { login_code: code, code_verifier: createProof().verifier },
      { login_code: `lgc_${'0'.repeat(43)}`, code_verifier: verifier },
    ]) {
      const refusal = await result(loginId, members);
      expect([refusal.status, refusal.body.error.code]).toEqual([401, 'invalid_credentials']);
    }
    const { status, body } = await result(loginId, { login_code: code, code_verifier: verifier });
    expect([status, body.status]).toEqual([200, 'done']);
    expect((await result(loginId)).status).toBe(400);
  });

  test('sends the browser back with the reason of a refusal', async () => {
    oidc.deniesLogin = true;
    const { loginId, url } = await start({
      redirect_to: redirectTo,
      code_challenge: createProof().challenge,
    });
    const callbackAnswer = await comeBack(await oidc.browse(url));
    expect([callbackAnswer.status, callbackAnswer.headers.location]).toEqual([
      303,
      `${redirectTo}#login_error=login_denied`,
    ]);
    expect((await result(loginId)).body).toEqual({
      login_id: loginId,
      status: 'failed',
      error: 'login_denied',
    });
  });

  test.each([
    ['an origin that the Bureau does not list', 'https://evil.example/login'],
    ['a host that only begins with the Bureau’s', 'https://shop.example.evil.example/'],
    ['credentials that look like the Bureau’s host', 'https://shop.example@evil.example/'],
    ['credentials', 'https://user:password@shop.example/'],
    ['a backslash', 'https://evil.example\\@shop.example/'],
    ['another port', 'https://shop.example:8443/'],
    ['plain http', 'http://shop.example/'],
    ['no host', 'javascript:alert(1)//https://shop.example'],
    ['a relative address', '//shop.example/login'],
    ['a fragment', 'https://shop.example/#x'],
    ['a custom scheme', 'shop.example://login'],
  ])('refuses a redirect_to with %s', async (_name, address) => {
    const members = { redirect_to: address, code_challenge: createProof().challenge };
    const { status, body } = await requestLogin(members);
    expect([status, body.error.param]).toEqual([400, 'redirect_to']);
  });

  test.each<[string, Record<string, string>]>([
    ['code_challenge', { redirect_to: redirectTo }],
    ['redirect_to', { code_challenge: createProof().challenge }],
  ])('needs %s', async (param, members) => {
    const { status, body } = await requestLogin(members);
    expect([status, body.error.param]).toEqual([400, param]);
  });

  test("accepts the origin of the Bureau's Server entrypoint", async () => {
    const { url } = await start({
      redirect_to: `${world.url}/done`,
      code_challenge: createProof().challenge,
    });
    expect(String((await comeBack(await oidc.browse(url))).headers.location)).toMatch(/\/done#login_code=/);
  });
});

const getPage = async (url: string) => {
  const { status, headers, text } = await world.call('GET', url);
  expect(headers['content-type']).toMatch(/^text\/html/);
  return { status, text };
};

describe('the callback', () => {
  test.each([
    ['no state', '?code=abc'],
    ['an empty state', '?state=&code=abc'],
    ['a well-formed state that was never issued', `?state=lgs_${'0'.repeat(43)}&code=abc`],
    ['a malformed state', '?state=abc&code=abc'],
    ['a login_id instead of a state', `?state=lgn_${'0'.repeat(43)}&code=abc`],
    ['nothing at all', ''],
  ])('answers 400 in plain words to %s', async (_name, query) => {
    const { status, text } = await getPage(`/v1/accounts/oauth/callback${query}`);
    expect([status, text]).toEqual([400, expect.stringContaining('Start again')]);
  });

  test('accepts a state once', async () => {
    const { url } = await start();
    const callbackUrl = await oidc.browse(url);
    expect((await comeBack(callbackUrl)).status).toBe(200);
    expect((await getPage(pathOf(callbackUrl))).status).toBe(400);
  });

  test('ignores unknown query members', async () => {
    const { url } = await start();
    const callbackUrl = await oidc.browse(url);
    callbackUrl.searchParams.set('scope', 'openid email');
    callbackUrl.searchParams.set('authuser', '0');
    callbackUrl.searchParams.set('prompt', 'consent');
    expect((await comeBack(callbackUrl)).status).toBe(200);
  });

  test('refuses another iss before the code exchange', async () => {
    const { loginId, url } = await start();
    const callbackUrl = await oidc.browse(url);
    expect(callbackUrl.searchParams.get('iss')).toBe(oidc.issuer);
    callbackUrl.searchParams.set('iss', 'https://evil.example');
    const exchanges = oidc.exchanges;
    expect((await getPage(pathOf(callbackUrl))).status).toBe(400);
    expect(oidc.exchanges).toBe(exchanges);
    expect((await result(loginId)).body).toMatchObject({ status: 'failed', error: 'login_failed' });
  });

  test('refuses the code of one attempt for the state of another', async () => {
    const [attempt, otherAttempt] = [await start(), await start()];
    const [firstUrl, secondUrl] = [await oidc.browse(attempt.url), await oidc.browse(otherAttempt.url)];
    firstUrl.searchParams.set('code', secondUrl.searchParams.get('code') ?? '');
    expect((await getPage(pathOf(firstUrl))).status).toBe(400);
    expect((await result(attempt.loginId)).body.status).toBe('failed');
  });

  test('reports a refusal without the provider’s text', async () => {
    const { loginId, url } = await start();
    const state = new URL(url).searchParams.get('state') ?? '';
    const query = new URLSearchParams({
      state,
      error: 'server_error',
      error_description: '<b>evil words</b>',
    });
    const { status, text } = await getPage(`/v1/accounts/oauth/callback?${query}`);
    expect(status).toBe(400);
    expect(text).not.toContain('evil words');
    expect((await result(loginId)).body).toMatchObject({ status: 'failed', error: 'login_failed' });
  });

  test('answers 504 when the provider does not answer in time', async () => {
    const { loginId, url } = await start();
    const callbackUrl = await oidc.browse(url);
    oidc.hangingPaths.add('/token');
    const startedMs = performance.now();
    const { status, text } = await getPage(pathOf(callbackUrl));
    expect([status, text]).toEqual([504, expect.stringContaining('did not answer in time')]);
    expect(performance.now() - startedMs).toBeLessThan(20_000);
    expect((await result(loginId)).body).toMatchObject({ status: 'failed', error: 'upstream_timeout' });
  });
});

describe('an ID token', () => {
  test.each<[string, NonNullable<Oidc['rewriteIdToken']>]>([
    ['another nonce', ({ header, claims, sign }) => sign(header, { ...claims, nonce: 'another' })],
    ['no nonce', ({ header, claims: { nonce: _nonce, ...claims }, sign }) => sign(header, claims)],
    ['another audience', ({ header, claims, sign }) => sign(header, { ...claims, aud: 'another' })],
    [
      'another issuer',
      ({ header, claims, sign }) => sign(header, { ...claims, iss: 'https://evil.example' }),
    ],
    ['no subject', ({ header, claims: { sub: _sub, ...claims }, sign }) => sign(header, claims)],
    [
      'an empty subject',
      ({ header, claims, sign }) => sign(header, { ...claims, sub: '', email: 'eve@shop.example' }),
    ],
    [
      'a blank subject',
      ({ header, claims, sign }) => sign(header, { ...claims, sub: ' ', email: 'eve@shop.example' }),
    ],
    [
      'a NUL as subject',
      ({ header, claims, sign }) => sign(header, { ...claims, sub: 'a\0b', email: 'eve@shop.example' }),
    ],
    [
      'a subject beyond 255 characters',
      ({ header, claims, sign }) =>
        sign(header, { ...claims, sub: 'a'.repeat(256), email: 'eve@shop.example' }),
    ],
    [
      'a number as subject',
      ({ header, claims, sign }) => sign(header, { ...claims, sub: 7, email: 'eve@shop.example' }),
    ],
    ['an expiry in the past', ({ header, claims, sign }) => sign(header, { ...claims, exp: 1_700_000_000 })],
    ['the algorithm none', ({ claims }) => `${encode({ alg: 'none' })}.${encode(claims)}.`],
    // 342 characters are the 256 bytes of an RSA signature.
    [
      'a signature by another key',
      ({ header, claims, sign }) =>
        `${sign(header, claims).split('.').slice(0, 2).join('.')}.${'A'.repeat(342)}`,
    ],
    [
      'other claims under the old signature',
      ({ header, claims, sign }) =>
        [encode(header), encode({ ...claims, sub: 'eve' }), sign(header, claims).split('.')[2]].join('.'),
    ],
  ])('with %s creates no user', async (_name, rewriteIdToken) => {
    const countsBefore = await counts();
    const { loginId, url } = await start();
    const callbackUrl = await oidc.browse(url);
    oidc.rewriteIdToken = rewriteIdToken;
    const { status, text } = await getPage(pathOf(callbackUrl));
    expect([status, text]).toEqual([400, expect.stringContaining('is invalid')]);
    expect(text).not.toContain('name="confirmation"');
    expect((await result(loginId)).body).toMatchObject({ status: 'failed', error: 'login_failed' });
    expect(await counts()).toEqual(countsBefore);
  });
});

describe('an attempt that waits for its callback', () => {
  test('expires after ten minutes', async () => {
    const { loginId, url } = await start();
    const callbackUrl = await oidc.browse(url);
    await world.shiftClock('601 seconds');
    expect((await getPage(pathOf(callbackUrl))).status).toBe(400);
    expect((await result(loginId)).body).toEqual({ login_id: loginId, status: 'expired' });
  });

  test('expires while the person reads the page', async () => {
    const { loginId, url } = await start();
    const page = await comeBack(await oidc.browse(url));
    await world.shiftClock('601 seconds');
    expect((await decide({ confirmation: confirmationIn(page.text), decision: 'confirm' })).status).toBe(400);
    expect((await result(loginId)).body.status).toBe('expired');
  });

  test('issues one token for twenty concurrent callbacks', async () => {
    oidc.account = { sub: 'grace' };
    const countsBefore = await counts();
    const { verifier, challenge } = createProof();
    const { loginId, url } = await start({ redirect_to: redirectTo, code_challenge: challenge });
    const callbackUrl = await oidc.browse(url);
    const answers = await Promise.all(Array.from({ length: 20 }, () => comeBack(callbackUrl)));
    const [firstAnswer, ...refusals] = answers.toSorted((a, b) => a.status - b.status);
    expect([firstAnswer?.status, refusals.map(({ status }) => status)]).toEqual([303, Array(19).fill(400)]);
    const code = String(firstAnswer?.headers.location).split('login_code=')[1] ?? '';
    const reads = await Promise.all(
      Array.from({ length: 20 }, () => result(loginId, { login_code: code, code_verifier: verifier })),
    );
    const userTokens = new Set(reads.map(({ body }) => body.user_token));
    expect([...userTokens]).toEqual([expect.stringMatching(/^\w+$/)]);
    expect(await counts()).toEqual({
      users: (countsBefore?.users ?? 0) + 1,
      tokens: (countsBefore?.tokens ?? 0) + 1,
    });
  });

  test('is refused when the Bureau was paused meanwhile', async () => {
    const { url } = await start();
    const callbackUrl = await oidc.browse(url);
    await whilePaused(async () => expect((await getPage(pathOf(callbackUrl))).status).toBe(403));
  });

  test('creates no user when the Bureau was paused meanwhile', async () => {
    oidc.account = { sub: 'late' };
    const { loginId, url } = await start();
    const page = await comeBack(await oidc.browse(url));
    const countsBefore = await counts();
    const form = { confirmation: confirmationIn(page.text), decision: 'confirm' };
    await whilePaused(async () => expect((await decide(form)).status).toBe(403));
    expect(await counts()).toEqual(countsBefore);
    expect((await result(loginId)).body.status).toBe('pending');
  });
});

describe('the identity of an OpenID login', () => {
  async function logIn(): Promise<{ user_id: string; email: string | null }> {
    const { loginId, url } = await start();
    const page = await comeBack(await oidc.browse(url));
    await decide({ confirmation: confirmationIn(page.text), decision: 'confirm' });
    return (await result(loginId)).body.user as unknown as { user_id: string; email: string | null };
  }

  test('is the issuer and the subject, never the e-mail address', async () => {
    oidc.account = { sub: 'one', email: 'shared@example.com', email_verified: true };
    const login = await logIn();
    expect((await logIn()).user_id).toBe(login.user_id);
    oidc.account = { sub: 'two', email: 'shared@example.com', email_verified: true };
    const secondLogin = await logIn();
    expect(secondLogin.user_id).not.toBe(login.user_id);
    expect(secondLogin.email).toBe(login.email);
  });

  test('ignores an unverified e-mail address', async () => {
    oidc.account = { sub: 'three', email: 'victim@example.com', email_verified: false };
    expect((await logIn()).email).toBeNull();
  });

  test('of a blocked user is refused on the confirmation page', async () => {
    oidc.account = { sub: 'mallory' };
    const { user_id: userId } = await logIn();
    await world.database.sql`update gateway.accounts_users set state = 'blocked' where user_id = ${userId}`;
    const { loginId, url } = await start();
    const page = await comeBack(await oidc.browse(url));
    expect((await decide({ confirmation: confirmationIn(page.text), decision: 'confirm' })).status).toBe(403);
    expect((await result(loginId)).body).toMatchObject({ status: 'failed', error: 'user_blocked' });
  });
});

describe('the provider', () => {
  test('is listed once its keys are set', async () => {
    const { body } = await world.call('GET', '/v1/accounts/providers?bureau_id=local');
    expect(
      (body.items as unknown as { id: string; kind: string }[]).find(({ id }) => id === 'oidc'),
    ).toMatchObject({ kind: 'redirect', inputs: [] });
  });

  test('is called with PKCE, state and nonce', async () => {
    const authorization = new URL((await start()).url).searchParams;
    expect(Object.fromEntries(authorization)).toMatchObject({
      client_id: oidc.clientId,
      redirect_uri: `${world.url}/v1/accounts/oauth/callback`,
      response_type: 'code',
      code_challenge_method: 'S256',
      state: expect.stringMatching(/^lgs_/),
      nonce: expect.stringMatching(/^[\w-]{43}$/),
    });
  });

  test('never redirects to an address from a header', async () => {
    const headers = {
      host: 'localhost:1',
      'x-forwarded-host': 'evil.example',
      'x-forwarded-proto': 'https',
      forwarded: 'host=evil.example',
    };
    const { body } = await requestLogin({}, headers);
    expect(new URL(body.url).searchParams.get('redirect_uri')).toBe(
      `${world.url}/v1/accounts/oauth/callback`,
    );
  });

  describe('with other settings', () => {
    let settings: World['env'];
    beforeEach(() => {
      settings = { ...world.env };
    });
    afterEach(() => {
      Object.assign(world.env, settings);
    });

    test.each<[string, World['env']]>([
      ['without its secret', { OIDC_CLIENT_SECRET: undefined }],
      ['with an http issuer', { OIDC_ISSUER: 'http://login.example' }],
      ['with an issuer that is not a URL', { OIDC_ISSUER: 'login.example' }],
    ])('does not exist %s', async (_name, change) => {
      Object.assign(world.env, change);
      const { status, body } = await requestLogin();
      expect([status, body.error.code]).toEqual([404, 'provider_not_found']);
    });

    test('answers 504 while its discovery document does not arrive, and 200 later', async () => {
      const otherProvider = await startOidc(`${world.url}/v1/accounts/oauth/callback`);
      try {
        const { issuer, clientSecret } = otherProvider;
        Object.assign(world.env, { OIDC_ISSUER: issuer, OIDC_CLIENT_SECRET: clientSecret });
        otherProvider.hangingPaths.add('/.well-known/openid-configuration');
        const { status, body } = await requestLogin();
        expect([status, body.error.code]).toEqual([504, 'upstream_timeout']);
        otherProvider.hangingPaths.clear();
        expect((await requestLogin()).status).toBe(200);
      } finally {
        await otherProvider.close();
      }
    });

    test('answers 502 when it refuses the connection', async () => {
      Object.assign(world.env, { OIDC_ISSUER: 'http://127.0.0.1:1' });
      const { status, body } = await requestLogin();
      expect([status, body.error.code]).toEqual([502, 'upstream_failed']);
    });
  });
});

test('the database and the log contain no secret of a login', async () => {
  oidc.account = { sub: 'canary' };
  const { verifier, challenge } = createProof();
  const redirectLogin = await start({ redirect_to: redirectTo, code_challenge: challenge });
  const authorization = new URL(redirectLogin.url).searchParams;
  const dumpBefore = await world.dump();
  const callbackUrl = await oidc.browse(redirectLogin.url);
  const location = String((await comeBack(callbackUrl)).headers.location);
  const loginCode = location.split('login_code=')[1] ?? '';
  const answer = await result(redirectLogin.loginId, { login_code: loginCode, code_verifier: verifier });
  const codeLogin = await start();
  const page = await comeBack(await oidc.browse(codeLogin.url));
  expect(
    findSecrets(dumpBefore + (await world.dump()) + world.logLines.join(''), [
      redirectLogin.loginId,
      authorization.get('state') ?? '',
      authorization.get('nonce') ?? '',
      callbackUrl.searchParams.get('code') ?? '',
      loginCode,
      verifier,
      answer.body.user_token,
      codeLogin.loginId,
      codeLogin.userCode ?? '',
      confirmationIn(page.text),
      oidc.clientSecret,
    ]),
  ).toEqual([]);
});

function encode(part: object): string {
  return Buffer.from(JSON.stringify(part)).toString('base64url');
}
