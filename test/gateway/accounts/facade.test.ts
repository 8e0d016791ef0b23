// `client.login(…)` against the whole gateway: an e-mail account, a third party in another browser,
// and a web page with a redirect.
import { GatewayError } from '@townhall/gateway';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startGateway, type GatewayWorld } from '../../support/gateway.ts';
import { startOidc, type Oidc } from '../../support/oidc.ts';
import { startMailbox, type Mailbox } from './mailbox.ts';

// With PostgreSQL, the server does not take its public address from the listener, so the tests set it as an
// operator would. Nothing listens at this port.
const publicUrl = 'http://127.0.0.1:43999';
// The Server entrypoint of the Bureau, to which a login may return.
const entrypoint = 'http://127.0.0.1:43127';
const callback = `${publicUrl}/v1/accounts/oauth/callback`;
let world: GatewayWorld;
let mailbox: Mailbox;
let oidc: Oidc;
beforeAll(async () => {
  mailbox = await startMailbox();
  oidc = await startOidc(callback);
  world = await startGateway({
    env: {
      TOWNHALL_CITY_BASE_URL: publicUrl,
      SMTP_URL: mailbox.url,
      MAIL_FROM: 'login@shop.example',
      OIDC_ISSUER: oidc.issuer,
      OIDC_CLIENT_ID: oidc.clientId,
      OIDC_CLIENT_SECRET: oidc.clientSecret,
    },
  });
  await world.sql`
    update gateway.bureaus_records set server_url = ${entrypoint} where bureau_id = 'local'`;
});
afterAll(async () => {
  await world?.close();
  await oidc?.close();
  await mailbox?.close();
});

/** Requests the callback as a browser would, but at the real port of the server. */
const visit = (url: URL) => fetch(world.url + url.pathname + url.search, { redirect: 'manual' });

async function decide(page: string, decision: 'confirm' | 'cancel'): Promise<void> {
  const confirmation = /name="confirmation" value="([^"]+)"/.exec(page)?.[1] ?? '';
  await fetch(`${world.url}/v1/accounts/oauth/confirm`, {
    method: 'POST',
    body: new URLSearchParams({ confirmation, decision }),
  });
}

describe('client.login', () => {
  test('asks for the inputs of each step until they are right', async () => {
    const prompts: string[] = [];
    const { userToken, expiresAt, user } = await world.guest.login({
      bureauId: 'local',
      provider: 'email_code',
      input: async (inputs, previousError) => {
        const names = inputs.map(({ name }) => name).join();
        prompts.push(previousError ? `${names} after ${previousError.code}` : names);
        if (names === 'email') return { email: 'ada@example.com' };
        const { code } = await mailbox.letterTo('ada@example.com');
        return { code: previousError ? code : code.replace(/./g, (digit) => String(9 - Number(digit))) };
      },
    });
    expect(prompts).toEqual(['email', 'code', 'code after invalid_credentials']);
    expect(user.email).toBe('ada@example.com');
    expect(expiresAt.getTime()).toBeGreaterThan(Date.now());
    expect((await world.as(userToken).accounts.getMe()).user.user_id).toBe(user.user_id);
  });

  test('shows the code and waits for a browser on any machine', async () => {
    oidc.account = { sub: 'ada', name: 'Ada' };
    const page = { text: '', userCode: '' };
    const { user } = await world.guest.login({
      bureauId: 'local',
      provider: 'oidc',
      pollMs: 20,
      open: ({ url, userCode }) =>
        void (async () => {
          page.text = await (await visit(await oidc.browse(url))).text();
          page.userCode = userCode;
          await decide(page.text, 'confirm');
        })(),
    });
    expect(user.display_name).toBe('Ada');
    expect(page.userCode).toMatch(/^[B-Z]{4}-[B-Z]{4}$/);
    expect(page.text).toContain(page.userCode);
  });

  test('throws the refusal of the person', async () => {
    const login = world.guest.login({
      bureauId: 'local',
      provider: 'oidc',
      pollMs: 20,
      open: ({ url }) =>
        void (async () => decide(await (await visit(await oidc.browse(url))).text(), 'cancel'))(),
    });
    await expect(login).rejects.toMatchObject({ name: 'GatewayError', code: 'login_denied' });
  });

  test('stops waiting with the signal’s reason', async () => {
    const stop = new AbortController();
    const login = world.guest.login({
      bureauId: 'local',
      provider: 'oidc',
      pollMs: 60_000,
      signal: stop.signal,
      // After 50 ms, the client is waiting for its next poll.
      open: () => setTimeout(() => stop.abort(new Error('enough')), 50),
    });
    await expect(login).rejects.toThrow('enough');
  });

  test('names the missing function', async () => {
    await expect(world.guest.login({ bureauId: 'local', provider: 'email_code' })).rejects.toThrow('`input`');
    await expect(world.guest.login({ bureauId: 'local', provider: 'oidc' })).rejects.toThrow('`open`');
  });

  test('throws the server’s refusal', async () => {
    await expect(world.guest.login({ bureauId: 'nobody', provider: 'oidc' })).rejects.toSatisfy(
      (error) => GatewayError.isInstance(error) && error.code === 'bureau_not_found',
    );
  });
});

describe('client.login.redirect and client.login.finish', () => {
  const redirectTo = `${entrypoint}/after`;
  const begin = () => world.guest.login.redirect({ bureauId: 'local', provider: 'oidc', redirectTo });

  test('give the token only to the page that began the login', async () => {
    oidc.account = { sub: 'grace', name: 'Grace' };
    const { url, resume } = await begin();
    const returnUrl = (await visit(await oidc.browse(url))).headers.get('location') ?? '';
    expect(returnUrl.startsWith(`${redirectTo}#login_code=`)).toBe(true);
    // The verifier of another browser does not match.
    await expect(world.guest.login.finish((await begin()).resume, returnUrl)).rejects.toMatchObject({
      code: 'login_failed',
    });
    const result = await world.guest.login.finish(resume, returnUrl);
    expect(result?.user.display_name).toBe('Grace');
  });

  test('throw the refusal of a login', async () => {
    const { resume } = await begin();
    await expect(
      world.guest.login.finish(resume, `${redirectTo}#login_error=login_denied`),
    ).rejects.toMatchObject({ code: 'login_denied' });
  });

  test('return null at an address without a result', async () => {
    const { resume } = await begin();
    expect(await world.guest.login.finish(resume, redirectTo)).toBeNull();
    expect(await world.guest.login.finish(resume, `${redirectTo}#top`)).toBeNull();
  });

  test('refuse a provider without a third party', async () => {
    await expect(
      world.guest.login.redirect({ bureauId: 'local', provider: 'email_code', redirectTo }),
    ).rejects.toThrow('use `login`');
  });
});
