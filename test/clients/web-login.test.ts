// The login of a web page, with a storage and a server that the test scripts. `test/browser` runs
// it in Chromium.
import { afterEach, describe, expect, type Mock, test, vi } from 'vitest';
import { createWebLogin, type WebLoginOptions } from '../../clients/gateway/src/index.ts';

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
function openPage(
  answer: (request: { url: string; headers: Headers }) => Response,
  address = '/',
  options: Partial<WebLoginOptions> = {},
) {
  const { href, origin, pathname } = new URL(address, 'https://shop.example');
  const leave = vi.fn<(address: string) => void>();
  const replace = vi.fn<(address: string) => void>();
  vi.stubGlobal('location', { href, origin, pathname, assign: leave, replace });
  vi.stubGlobal('isSecureContext', true);
  vi.stubGlobal('history', { state: null, replaceState: vi.fn<(...values: unknown[]) => void>() });
  const storage = memoryStorage();
  const login = createWebLogin({
    baseUrl,
    bureauId: 'shop',
    storage,
    ...options,
    fetch: async (input, init) => {
      const { url, headers } = new Request(input, init);
      return answer({ url, headers });
    },
  });
  return { login, storage, leave, replace };
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
    expect(login.state()).toEqual({
      status: 'signed-in',
      user,
      expiresAt: expect.any(Date),
      endReason: null,
    });
  });

  test('ends with a call whose token the server refuses', async () => {
    const { login, storage } = openPage(() => refusal('invalid_token'));
    storage.setItem(key('session'), sessionOf('th_usr_1'));
    expect(await login.handle()).toBeNull();
    expect(storage.getItem(key('session'))).toBeNull();
    expect(login.state()).toMatchObject({ status: 'signed-out', endReason: 'revoked' });
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
    await expect(login.client.accounts.getMe()).rejects.toMatchObject({ code: 'provider_credentials' });
    expect(login.token()).toBe('th_usr_1');
  });

  test('ends at its expiry without a call', async () => {
    vi.useFakeTimers();
    const { login, storage } = openPage(me);
    // 30 days, longer than the 24.8 days that setTimeout can wait.
    storage.setItem(key('session'), sessionOf('th_usr_1', 30 * 86_400_000));
    await login.handle();
    const listener = vi.fn<() => void>();
    login.subscribe(listener);
    vi.advanceTimersByTime(30 * 86_400_000 - 1);
    expect([login.state().status, listener.mock.calls.length]).toEqual(['signed-in', 0]);
    vi.advanceTimersByTime(1);
    expect(login.state()).toMatchObject({ status: 'signed-out', endReason: 'expired' });
    expect(listener).toHaveBeenCalledOnce();
    expect(storage.getItem(key('session'))).toBeNull();
  });

  test('that has expired is reported when the page is opened', async () => {
    const { login, storage } = openPage(me);
    storage.setItem(key('session'), sessionOf('th_usr_1', -1));
    expect(await login.handle()).toBeNull();
    expect(login.state().endReason).toBe('expired');
  });

  test('ends without a reason after a sign-out', async () => {
    const { login, storage } = openPage(() => Response.json({ revoked: true }));
    storage.setItem(key('session'), sessionOf('th_usr_1'));
    await login.signOut();
    expect(login.state()).toMatchObject({ status: 'signed-out', endReason: null });
  });

  test('is absent when the browser blocks the storage', async () => {
    const blockedStorage = {
      getItem: () => {
        throw new Error('denied');
      },
      setItem: () => undefined,
      removeItem: () => undefined,
    };
    const { login } = openPage(me, '/', { storage: blockedStorage });
    expect(await login.handle()).toBeNull();
    expect(login.state().status).toBe('signed-out');
  });
});

describe('a sign-in', () => {
  /** The query of the login page's address. The promise of a sign-in stays pending. */
  async function readLoginQuery(leave: Mock<(address: string) => void>): Promise<URLSearchParams> {
    await vi.waitFor(() => expect(leave).toHaveBeenCalledOnce());
    return new URL(leave.mock.calls[0]?.[0] ?? '').searchParams;
  }

  test('fills in the address of the user whose session expired', async () => {
    const { login, storage, leave } = openPage(me);
    storage.setItem(key('session'), sessionOf('th_usr_1', -1));
    await login.handle();
    void login.signIn();
    expect((await readLoginQuery(leave)).get('login_hint')).toBe('ada@shop.example');
  });

  test('fills in no address after a sign-out', async () => {
    const { login, storage, leave } = openPage(() => Response.json({ revoked: true }));
    storage.setItem(key('session'), sessionOf('th_usr_1'));
    await login.signOut();
    void login.signIn();
    expect((await readLoginQuery(leave)).has('login_hint')).toBe(false);
  });

  test.each(['https://evil.example/', '//evil.example', 'javascript:alert(1)'])(
    'refuses to return to %s',
    async (returnTo) => {
      const { login, leave } = openPage(me);
      await expect(login.signIn({ returnTo })).rejects.toThrow('use an address of https://shop.example');
      expect(leave).not.toHaveBeenCalled();
    },
  );

  test('says what is missing on a page without https', async () => {
    const { login } = openPage(me);
    vi.stubGlobal('isSecureContext', false);
    await expect(login.signIn()).rejects.toThrow('A sign-in needs https');
  });

  test('keeps its verifier in its own tab', async () => {
    const tab = memoryStorage();
    vi.stubGlobal('sessionStorage', tab);
    const { login, storage, leave } = openPage(me);
    void login.signIn();
    await readLoginQuery(leave);
    expect(tab.getItem(key('pending'))).toContain('verifier');
    expect(storage.getItem(key('pending'))).toBeNull();
  });
});

describe('the return from the login page', () => {
  const pendingFrom = (returnTo: string) =>
    JSON.stringify({ state: 's1', verifier: 'v', redirectUri: 'https://shop.example/', returnTo });
  const pendingLogin = pendingFrom('https://shop.example/?from=menu');
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

  test('goes to the address where the sign-in began', async () => {
    const { login, storage, replace } = openPage(token, '/?code=lga_1&state=s1');
    storage.setItem(key('pending'), pendingFrom('https://shop.example/orders/5?page=2#total'));
    await login.handle();
    expect(replace).toHaveBeenCalledExactlyOnceWith('https://shop.example/orders/5?page=2#total');
  });

  test('returns through the router of the page', async () => {
    const navigate = vi.fn<(address: URL) => void>();
    const { login, storage, replace } = openPage(token, '/?code=lga_1&state=s1', { navigate });
    storage.setItem(key('pending'), pendingFrom('https://shop.example/orders/5'));
    await login.handle();
    expect(navigate.mock.calls[0]?.[0].pathname).toBe('/orders/5');
    expect(replace).not.toHaveBeenCalled();
  });

  test('stays where the sign-in began', async () => {
    const { login, storage, replace } = openPage(token, '/?code=lga_1&state=s1&from=menu');
    storage.setItem(key('pending'), pendingLogin);
    await login.handle();
    expect(replace).not.toHaveBeenCalled();
  });

  test('ignores a code with another state', async () => {
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
