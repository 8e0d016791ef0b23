// The login of a web page, with a storage and a server that the test scripts. `test/browser` runs
// it in Chromium.
import { afterEach, describe, expect, test, vi } from 'vitest';
import { createWebLogin } from '../../clients/gateway/src/index.ts';

const user = {
  user_id: 'usr_01jd6zv0c5e9fsr8m2w4x1k7qa',
  email: 'ada@shop.example',
  display_name: 'Ada',
  avatar_url: null,
  metadata: {},
  created_at: '2026-11-20T09:00:00.000Z',
};
const baseUrl = 'https://models.shop.example';
const key = (name: string) => `townhall ${baseUrl} shop ${name}`;

afterEach(() => {
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

function memoryStorage() {
  const values = new Map<string, string>();
  return {
    getItem: (name: string) => values.get(name) ?? null,
    setItem: (name: string, value: string) => void values.set(name, value),
    removeItem: (name: string) => void values.delete(name),
  };
}

/** A login of the page at `address`, whose server answers with `answer`. */
function openPage(answer: (request: { url: string; headers: Headers }) => Response, address = '/') {
  const href = new URL(address, 'https://shop.example').href;
  vi.stubGlobal('location', { href });
  vi.stubGlobal('history', { state: null, replaceState: vi.fn<(...values: unknown[]) => void>() });
  const storage = memoryStorage();
  const login = createWebLogin({
    baseUrl,
    bureauId: 'shop',
    storage,
    fetch: async (input, init) => {
      const { url, headers } = new Request(input, init);
      return answer({ url, headers });
    },
  });
  return { login, storage };
}

const sessionOf = (userToken: string, lifetimeMs = 60_000) =>
  JSON.stringify({ userToken, expiresAt: new Date(Date.now() + lifetimeMs).toISOString(), user });

const refusal = (code: string) =>
  Response.json({ error: { code, message: 'No.', param: null, request_id: 'r' } }, { status: 401 });
const me = () => Response.json({ user });

describe('the session of a web login', () => {
  test('is restored from the storage', async () => {
    const { login, storage } = openPage(me);
    storage.setItem(key('session'), sessionOf('th_usr_1'));
    expect(await login.handle()).toEqual(user);
    expect(login.state()).toEqual({ status: 'signed-in', user });
  });

  test('ends with a call whose token the server refuses', async () => {
    const { login, storage } = openPage(() => refusal('invalid_token'));
    storage.setItem(key('session'), sessionOf('th_usr_1'));
    expect(await login.handle()).toBeNull();
    expect(storage.getItem(key('session'))).toBeNull();
  });

  test('outlives the late refusal of an earlier token', async () => {
    const { login, storage } = openPage(({ headers }) => {
      if (headers.get('authorization') !== 'Bearer th_usr_1') return me();
      // Another tab signs in while the server answers.
      storage.setItem(key('session'), sessionOf('th_usr_2'));
      return refusal('invalid_token');
    });
    storage.setItem(key('session'), sessionOf('th_usr_1'));
    await expect(login.client.accounts.getMe()).rejects.toMatchObject({ code: 'invalid_token' });
    expect(login.token()).toBe('th_usr_2');
  });

  test('outlives a refusal for another reason than its token', async () => {
    const { login, storage } = openPage(() => refusal('provider_credentials'));
    storage.setItem(key('session'), sessionOf('th_usr_1'));
    await login.client.accounts.getMe().catch(() => undefined);
    expect(login.token()).toBe('th_usr_1');
  });

  test('is shown as ended by the first call after its expiry', async () => {
    vi.useFakeTimers({ toFake: ['Date'] });
    const { login, storage } = openPage(({ headers }) =>
      headers.has('authorization') ? me() : refusal('authentication_required'),
    );
    storage.setItem(key('session'), sessionOf('th_usr_1'));
    await login.handle();
    const listener = vi.fn<() => void>();
    login.subscribe(listener);
    vi.setSystemTime(Date.now() + 61_000);
    await expect(login.client.accounts.getMe()).rejects.toMatchObject({ status: 401 });
    expect(login.state()).toEqual({ status: 'signed-out', user: null });
    expect(listener).toHaveBeenCalledOnce();
  });
});

describe('the return from the login page', () => {
  const pendingLogin = JSON.stringify({ state: 's1', verifier: 'v', redirectUri: 'https://shop.example/' });
  const token = () =>
    Response.json({
      user_token: 'th_usr_1',
      expires_at: new Date(Date.now() + 60_000).toISOString(),
      user,
    });

  test('exchanges the code once for two calls of handle', async () => {
    const urls: string[] = [];
    const { login, storage } = openPage(({ url }) => {
      urls.push(url);
      return token();
    }, '/?code=lga_1&state=s1&from=menu');
    storage.setItem(key('pending'), pendingLogin);
    expect(await Promise.all([login.handle(), login.handle()])).toEqual([user, user]);
    expect(urls).toEqual([`${baseUrl}/v1/accounts/login/token`]);
    expect(storage.getItem(key('pending'))).toBeNull();
    expect(String(vi.mocked(history.replaceState).mock.calls[0]?.[2])).toBe(
      'https://shop.example/?from=menu',
    );
  });

  test('sends no code with another state', async () => {
    const urls: string[] = [];
    const { login, storage } = openPage(({ url }) => {
      urls.push(url);
      return token();
    }, '/?code=lga_1&state=s2');
    storage.setItem(key('pending'), pendingLogin);
    expect(await login.handle()).toBeNull();
    expect(urls).toEqual([]);
  });
});
