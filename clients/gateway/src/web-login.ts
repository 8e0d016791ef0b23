// The login of a web page through the gateway's own page `/login`: the authorization code flow with
// PKCE (RFC 7636). It keeps the token in the browser's storage and gives it to a client of its own.

import { createGatewayClient, type GatewayClient, type GatewayClientOptions } from './client.ts';
import type { User } from './generated/types.gen.ts';
import { deriveChallenge, randomText } from './pkce.ts';

export interface WebLoginOptions extends Omit<GatewayClientOptions, 'token'> {
  bureauId: string;
  /**
   * The address to which the login page returns, one of the Bureau's `redirect_uris`. By default
   * the address of the page that calls `signIn`, without its query and fragment.
   */
  redirectUri?: string | undefined;
  /**
   * Keeps the token and the pending login. `sessionStorage` by default, so a login ends with its tab; pass
   * `localStorage` for one that lasts as long as the token and is shared by all tabs.
   */
  storage?: Pick<Storage, 'getItem' | 'setItem' | 'removeItem'> | undefined;
}

/** The state that a page shows; each change creates a new object. */
export type WebLoginState =
  | { readonly status: 'loading' | 'signed-out'; readonly user: null }
  | { readonly status: 'signed-in'; readonly user: User };

export interface SignInOptions {
  /** The view that the login page opens with; the sign-in by default. */
  screen?: 'register' | undefined;
  /** An e-mail address that the page fills in. */
  loginHint?: string | undefined;
}

export interface WebLogin {
  /** A client with the token of the user who is signed in. */
  readonly client: GatewayClient;
  /**
   * Finishes a login with which the browser has just returned, or restores the stored one. Call it
   * once when the page loads. Null where the user is signed out. Throws a `GatewayError` when a
   * returned login cannot be finished.
   */
  handle(): Promise<User | null>;
  /** Leaves the page for the login page. The promise stays pending while the browser goes there. */
  signIn(options?: SignInOptions): Promise<never>;
  /** Revokes the token and deletes it from the storage, also when the server cannot be reached. */
  signOut(): Promise<void>;
  /** The token of the user who is signed in. */
  token(): string | undefined;
  state(): WebLoginState;
  /** Calls the listener after each change of the state; returns the unsubscribe. */
  subscribe(listener: () => void): () => void;
}

/** A login that waits for the browser to return. */
interface PendingLogin {
  state: string;
  verifier: string;
  redirectUri: string;
}

interface StoredSession {
  userToken: string;
  expiresAt: string;
  user: User;
}

/** The stored session of a page, and what the page shows of it. */
interface Session {
  /** Null for a session that has expired. */
  read(): StoredSession | null;
  write(session: StoredSession | null): void;
  /** Reads the storage again and notifies the listeners. */
  refresh(): void;
  state(): WebLoginState;
  subscribe(listener: () => void): () => void;
}

type BrowserStorage = NonNullable<WebLoginOptions['storage']>;

/** Creates the login of a page. It sends nothing, and touches no storage, until a method is called. */
export function createWebLogin(options: WebLoginOptions): WebLogin {
  const { bureauId, redirectUri, storage: customStorage, ...connection } = options;
  const keys = storageKeys(connection.baseUrl, bureauId);
  const storage = () => customStorage ?? sessionStorage;
  const session = createSession(storage, keys.session);
  const token = () => session.read()?.userToken;
  const client = createGatewayClient({
    ...connection,
    token: () => token() ?? '',
    fetch: createSessionFetch(connection.fetch, session),
  });
  let returnPromise: Promise<User | null> | undefined;

  return {
    client,
    token,
    state: () => session.state(),
    subscribe: (listener) => session.subscribe(listener),
    handle() {
      // Frameworks may run the effect of a page twice; the code works once.
      returnPromise ??= handle({ client, session, storage: storage(), key: keys.pending })
        .catch((error: unknown) => {
          session.refresh();
          throw error;
        })
        .finally(() => {
          returnPromise = undefined;
        });
      return returnPromise;
    },
    async signIn(view = {}) {
      const pendingLogin: PendingLogin = {
        state: randomText(),
        verifier: randomText(),
        redirectUri: redirectUri ?? location.origin + location.pathname,
      };
      storage().setItem(keys.pending, JSON.stringify(pendingLogin));
      const query = await createLoginQuery(bureauId, pendingLogin, view);
      location.assign(`${connection.baseUrl.replace(/\/+$/, '')}/login?${query}`);
      return new Promise<never>(() => {});
    },
    async signOut() {
      // Delete the token first, so that a page which is left meanwhile is signed out too.
      const userToken = token();
      session.write(null);
      if (userToken === undefined) return;
      const headers = { authorization: `Bearer ${userToken}` };
      await client.accounts.logout(undefined, { headers }).catch(() => undefined);
    },
  };
}

function createSession(storage: () => BrowserStorage, key: string): Session {
  const listeners = new Set<() => void>();
  let current: WebLoginState = { status: 'loading', user: null };

  const read = () => liveSession(readJson<StoredSession>(storage(), key));

  function show(user: User | null): void {
    current = user === null ? { status: 'signed-out', user } : { status: 'signed-in', user };
    for (const listener of listeners) listener();
  }

  const refresh = () => show(read()?.user ?? null);

  // Another tab signed in or out; sessionStorage belongs to one tab and sends no such event.
  const followTabs = (event: StorageEvent) => {
    if (event.key === key || event.key === null) refresh();
  };

  return {
    read,
    refresh,
    state: () => current,
    write(value) {
      if (value === null) storage().removeItem(key);
      else storage().setItem(key, JSON.stringify(value));
      show(value?.user ?? null);
    },
    subscribe(listener) {
      if (listeners.size === 0 && typeof addEventListener === 'function')
        addEventListener('storage', followTabs);
      listeners.add(listener);
      return () => {
        listeners.delete(listener);
        if (listeners.size === 0 && typeof removeEventListener === 'function')
          removeEventListener('storage', followTabs);
      };
    },
  };
}

/** The app's request in the address of the login page. */
async function createLoginQuery(
  bureauId: string,
  { redirectUri, verifier, state }: PendingLogin,
  { screen, loginHint }: SignInOptions,
): Promise<URLSearchParams> {
  return new URLSearchParams({
    response_type: 'code',
    client_id: bureauId,
    redirect_uri: redirectUri,
    code_challenge: await deriveChallenge(verifier),
    code_challenge_method: 'S256',
    state,
    ...(screen === undefined ? {} : { screen }),
    ...(loginHint === undefined ? {} : { login_hint: loginHint }),
  });
}

interface HandleOptions {
  client: GatewayClient;
  session: Session;
  storage: BrowserStorage;
  /** The key under which the pending login is stored. */
  key: string;
}

async function handle({ client, session, storage, key }: HandleOptions): Promise<User | null> {
  const address = new URL(location.href);
  const [code, state] = [address.searchParams.get('code'), address.searchParams.get('state')];
  const pendingLogin = readJson<PendingLogin>(storage, key);
  // A foreign code, such as one of an attacker's own login, has another state: it is left alone.
  if (code === null || pendingLogin === null || state !== pendingLogin.state) {
    const existing = session.read();
    session.write(existing);
    // The call detects a token that was revoked meanwhile, which ends the session (createSessionFetch).
    if (existing !== null) await client.accounts.getMe().catch(() => undefined);
    return session.read()?.user ?? null;
  }
  storage.removeItem(key);
  for (const name of ['code', 'state']) address.searchParams.delete(name);
  history.replaceState(history.state, '', address);
  const answer = await client.accounts.issueLoginToken({
    code,
    code_verifier: pendingLogin.verifier,
    redirect_uri: pendingLogin.redirectUri,
  });
  const { user_token: userToken, expires_at: expiresAt, user } = answer;
  session.write({ userToken, expiresAt, user });
  return user;
}

/**
 * Ends the session when the server refuses its token, such as one that was revoked. The refusal of
 * an earlier token changes nothing: the user may have signed in again meanwhile.
 */
function createSessionFetch(
  baseFetch: GatewayClientOptions['fetch'],
  session: Session,
): typeof globalThis.fetch {
  return async (input, init) => {
    const response = await (baseFetch ?? globalThis.fetch)(input, init);
    if (response.status !== 401) return response;
    const code = await readErrorCode(response.clone());
    const current = session.read();
    if (current === null) {
      // The stored session has expired, so the call was sent without its token.
      if (session.state().user !== null) session.write(null);
    } else if (code === 'invalid_token' && isSentWith(current.userToken, init)) session.write(null);
    return response;
  };
}

async function readErrorCode(response: Response): Promise<unknown> {
  const body = (await response.json().catch(() => null)) as { error?: { code?: unknown } } | null;
  return body?.error?.code;
}

function isSentWith(userToken: string, init: RequestInit | undefined): boolean {
  return new Headers(init?.headers).get('authorization') === `Bearer ${userToken}`;
}

function liveSession(session: StoredSession | null): StoredSession | null {
  return session !== null && Date.parse(session.expiresAt) > Date.now() ? session : null;
}

// Two gateways, or two Bureaus of one, do not share a session of one page.
function storageKeys(baseUrl: string, bureauId: string): { session: string; pending: string } {
  const name = `townhall ${baseUrl.replace(/\/+$/, '')} ${bureauId}`;
  return { session: `${name} session`, pending: `${name} pending` };
}

/** Null where there is none, or where another program has stored something else. */
function readJson<T>(storage: BrowserStorage, key: string): T | null {
  try {
    return JSON.parse(storage.getItem(key) ?? 'null') as T | null;
  } catch {
    return null;
  }
}
