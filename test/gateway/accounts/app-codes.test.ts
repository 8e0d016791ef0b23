// The codes for apps of other origins: issued for a finished login, exchanged once with the verifier.
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { startOidc, type Oidc } from '../../support/oidc.ts';
import { findSecrets } from '../stored-text.ts';
import { createProof, startWorld, type World } from './world.ts';

const redirectUri = 'https://shop.example/welcome?from=menu';
let world: World;
let oidc: Oidc;
beforeAll(async () => {
  world = await startWorld({ canShiftClock: true });
  oidc = await startOidc(`${world.url}/v1/accounts/oauth/callback`);
  Object.assign(world.env, {
    OIDC_ISSUER: oidc.issuer,
    OIDC_CLIENT_ID: oidc.clientId,
    OIDC_CLIENT_SECRET: oidc.clientSecret,
  });
  await world.database.sql`
    update gateway.bureaus_records set redirect_uris = ${[redirectUri]}::text[]`;
});
beforeEach(() => world.shiftClock('0'));
afterAll(async () => {
  await oidc?.close();
  await world?.close();
});

async function startLogin(members: Record<string, string> = {}) {
  const { body } = await world.call('POST', '/v1/accounts/login/start', {
    body: { provider: 'local', bureau_id: 'local', ...members },
  });
  return { loginId: String(body.login_id), url: String(body.url) };
}

const issueCode = (loginId: string, challenge: string, members: Record<string, string> = {}) =>
  world.call('POST', '/v1/accounts/login/code', {
    body: {
      login_id: loginId,
      redirect_uri: redirectUri,
      code_challenge: challenge,
      state: 's',
      ...members,
    },
  });
const exchange = (code: string, verifier: string, address = redirectUri) =>
  world.call('POST', '/v1/accounts/login/token', {
    body: { code, code_verifier: verifier, redirect_uri: address },
  });

/** A code for the app, and its verifier. */
async function createCode() {
  const { verifier, challenge } = createProof();
  const { loginId } = await startLogin();
  const { status, body } = await issueCode(loginId, challenge, { state: 's1' });
  expect(status).toBe(200);
  return { loginId, verifier, code: new URL(body.url).searchParams.get('code') ?? '' };
}

async function outcomeOf(code: string, verifier: string, address?: string) {
  const { status, body } = await exchange(code, verifier, address);
  return [status, body.error?.code];
}
const codeRefused = [401, 'invalid_credentials'];

describe('accounts.issueLoginCode', () => {
  test('returns the address of the app with a code and the app’s state', async () => {
    const { loginId } = await startLogin();
    const { status, headers, body } = await issueCode(loginId, createProof().challenge, { state: 'x&y=z' });
    expect([status, headers['cache-control']]).toEqual([200, 'no-store']);
    const url = new URL(body.url);
    expect(url.origin + url.pathname).toBe('https://shop.example/welcome');
    expect(Object.fromEntries(url.searchParams)).toEqual({
      from: 'menu',
      code: expect.stringMatching(/^lga_[0-9A-Za-z]{43}$/),
      state: 'x&y=z',
    });
  });

  test.each([
    ['another path', 'https://shop.example/elsewhere'],
    ['another query', 'https://shop.example/welcome'],
    ['another port', 'https://shop.example:8443/welcome?from=menu'],
    ['a longer host', 'https://shop.example.evil.example/welcome?from=menu'],
    ['credentials', 'https://shop.example@evil.example/welcome?from=menu'],
    ['plain http', 'http://shop.example/welcome?from=menu'],
  ])('refuses an address with %s', async (_name, address) => {
    const { loginId } = await startLogin();
    const { status, body } = await issueCode(loginId, createProof().challenge, { redirect_uri: address });
    expect([status, body.error.param]).toEqual([400, 'redirect_uri']);
  });

  test('refuses an unknown login', async () => {
    const { status, body } = await issueCode(`lgn_${'0'.repeat(43)}`, createProof().challenge);
    expect([status, body.error.code]).toEqual([404, 'login_not_found']);
  });

  test('refuses a login that waits for the person', async () => {
    const { loginId } = await startLogin({ provider: 'oidc' });
    const { status, body } = await issueCode(loginId, createProof().challenge);
    expect([status, body.error.code]).toEqual([409, 'conflict']);
  });

  test('refuses a login whose token was read', async () => {
    const { loginId } = await startLogin();
    await world.call('GET', `/v1/accounts/login/result?login_id=${loginId}`);
    const { status, body } = await issueCode(loginId, createProof().challenge);
    expect([status, body.error.code]).toEqual([410, 'login_spent']);
  });

  test('requires the proof of a login that a browser finished', async () => {
    const ownProof = createProof();
    const page = `${world.url}/login`;
    const { loginId, url } = await startLogin({
      provider: 'oidc',
      redirect_to: page,
      code_challenge: ownProof.challenge,
    });
    const callbackUrl = await oidc.browse(url);
    const { headers } = await world.call('GET', callbackUrl.pathname + callbackUrl.search);
    const loginCode = /^[^#]+#login_code=(lgc_\w+)$/.exec(String(headers['location']))?.[1] ?? '';
    const app = createProof();
    expect((await issueCode(loginId, app.challenge)).status).toBe(400);
    const wrongProof = { login_code: loginCode, code_verifier: createProof().verifier };
    const refusal = await issueCode(loginId, app.challenge, wrongProof);
    expect([refusal.status, refusal.body.error.code]).toEqual([401, 'invalid_credentials']);
    const answer = await issueCode(loginId, app.challenge, {
      login_code: loginCode,
      code_verifier: ownProof.verifier,
    });
    const code = new URL(answer.body.url).searchParams.get('code') ?? '';
    expect((await exchange(code, app.verifier)).status).toBe(200);
  });
});

describe('accounts.issueLoginToken', () => {
  test('issues a token that works', async () => {
    const { code, verifier } = await createCode();
    const { status, headers, body } = await exchange(code, verifier);
    expect([status, headers['cache-control']]).toEqual([200, 'no-store']);
    const me = await world.call('GET', '/v1/accounts/me', { token: body.user_token });
    expect(me.body.user).toEqual(body.user);
  });

  test('accepts a code once', async () => {
    const { code, verifier } = await createCode();
    const answers = await Promise.all([exchange(code, verifier), exchange(code, verifier)]);
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200, 401]));
    expect(await outcomeOf(code, verifier)).toEqual(codeRefused);
  });

  test('invalidates a code after a wrong verifier', async () => {
    const { code, verifier } = await createCode();
    expect(await outcomeOf(code, createProof().verifier)).toEqual(codeRefused);
    expect(await outcomeOf(code, verifier)).toEqual(codeRefused);
  });

  test('refuses an address for which the code was not issued', async () => {
    const { code, verifier } = await createCode();
    expect(await outcomeOf(code, verifier, 'https://shop.example/elsewhere')).toEqual(codeRefused);
  });

  test('refuses a code after a minute', async () => {
    const { code, verifier } = await createCode();
    await world.shiftClock('61 seconds');
    expect(await outcomeOf(code, verifier)).toEqual(codeRefused);
  });

  test('issues only one token for two codes of a login', async () => {
    const { loginId, code, verifier } = await createCode();
    const secondProof = createProof();
    const { body } = await issueCode(loginId, secondProof.challenge);
    expect((await exchange(code, verifier)).status).toBe(200);
    expect(await outcomeOf(new URL(body.url).searchParams.get('code') ?? '', secondProof.verifier)).toEqual(
      codeRefused,
    );
  });

  test('spends the result of the login', async () => {
    const { loginId, code, verifier } = await createCode();
    expect((await exchange(code, verifier)).status).toBe(200);
    const { status, body } = await world.call('GET', `/v1/accounts/login/result?login_id=${loginId}`);
    expect([status, body.error.code]).toEqual([410, 'login_spent']);
  });

  test('refuses the code of a user who was blocked meanwhile', async () => {
    const { code, verifier } = await createCode();
    await world.database.sql`update gateway.accounts_users set state = 'blocked'`;
    try {
      expect(await outcomeOf(code, verifier)).toEqual(codeRefused);
    } finally {
      await world.database.sql`update gateway.accounts_users set state = 'active'`;
    }
  });

  test('refuses the code of a Bureau that was paused meanwhile', async () => {
    const { code, verifier } = await createCode();
    await world.database.sql`update gateway.bureaus_records set state = 'paused'`;
    try {
      const { status, body } = await exchange(code, verifier);
      expect([status, body.error.code]).toEqual([403, 'bureau_paused']);
    } finally {
      await world.database.sql`update gateway.bureaus_records set state = 'active'`;
    }
  });

  test('stores neither the code nor the verifier nor the token', async () => {
    const { code, verifier } = await createCode();
    const dumpBefore = await world.dump();
    const { body } = await exchange(code, verifier);
    expect(findSecrets(dumpBefore + (await world.dump()), [code, verifier, body.user_token])).toEqual([]);
  });
});

describe('accounts.listProviders with a redirect_uri', () => {
  test('accepts only an address of the Bureau', async () => {
    const list = (address: string) =>
      world.call(
        'GET',
        `/v1/accounts/providers?${new URLSearchParams({ bureau_id: 'local', redirect_uri: address })}`,
      );
    expect((await list(redirectUri)).status).toBe(200);
    const { status, body } = await list('https://evil.example/');
    expect([status, body.error.param]).toEqual([400, 'redirect_uri']);
  });
});
