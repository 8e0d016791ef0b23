// The login of a web page through the gateway's own page `/login`: the authorization code flow with
// PKCE (RFC 7636). It has its own client, which sends the token of the session in the browser's
// storage.

import { createGatewayClient, type GatewayClient, type GatewayClientOptions } from './client.ts';
import type { User } from './generated/types.gen.ts';
import { deriveChallenge, randomText } from './pkce.ts';
import {
  type BrowserStorage,
  createWebSession,
  readJson,
  type WebLoginState,
  type WebSession,
} from './web-session.ts';

export interface WebLoginOptions extends Omit<GatewayClientOptions, 'token'> {
  bureauId: string;
  /**
   * The address to which the login page returns, one of the Bureau's `redirect_uris`. By default
   * the address of the page that calls `signIn`, without its query and fragment.
   */
  redirectUri?: string | undefined;
  /**
   * Where the token is stored. By default `sessionStorage`, so a login ends with its tab. With
   * `localStorage` the login lasts as long as the token, and all tabs share it.
   */
  storage?: BrowserStorage | undefined;
  /**
   * Returns to the address where the sign-in began, if that is not `redirectUri`. By default the
   * browser loads the address; pass your router's function to change the view without a page load.
   */
  navigate?: ((address: URL) => void) | undefined;
}

export interface SignInOptions {
  /** The view that the login page opens with; the sign-in by default. */
  screen?: 'register' | undefined;
  /** An e-mail address that the page fills in; by default the user's whose session has ended. */
  loginHint?: string | undefined;
  /**
   * Where the user arrives after the sign-in, an address of the page's own origin. By default the
   * current one.
   */
  returnTo?: string | undefined;
}

export interface WebLogin {
  /** A client with the token of the user who is signed in. */
  readonly client: GatewayClient;
  /**
   * Finishes a login when the browser has just returned from the login page, or restores the stored
   * session. Call it once when the page loads. Null when the user is signed out. Throws a `GatewayError`
   * when a returned login cannot be finished.
   */
  handle(): Promise<User | null>;
  /**
   * Leaves the page for the login page. The promise stays pending while the browser goes there.
   * Throws on a page that is neither https nor on localhost, and for a `returnTo` of another origin.
   */
  signIn(options?: SignInOptions): Promise<never>;
  /** Deletes the token from the storage, even if the server cannot be reached, and revokes it. */
  signOut(): Promise<void>;
  /** The token of the user who is signed in. */
  token(): string | undefined;
  state(): WebLoginState;
  /**
   * Calls the listener after each change of the state, including the expiry. Returns a function that
   * removes the listener.
   */
  subscribe(listener: () => void): () => void;
}

/** A login that waits for the browser to return. */
interface PendingLogin {
  state: string;
  verifier: string;
  redirectUri: string;
  /** Where the sign-in began. */
  returnTo: string;
}

/**
 * Creates the login of a page. It sends nothing, and touches no storage, until a method is called.
 */
export function createWebLogin(options: WebLoginOptions): WebLogin {
  const { bureauId, redirectUri, storage: customStorage, navigate, ...connection } = options;
  const keys = storageKeys(connection.baseUrl, bureauId);
  const session = createWebSession(() => customStorage ?? sessionStorage, keys.session);
  const token = () => session.read()?.userToken;
  const client = createGatewayClient({
    ...connection,
    token: () => token() ?? '',
    fetch: createSessionFetch(connection.fetch, session),
  });
  // Each tab has its own pending login, even if the tabs share the token: two tabs may sign in at the
  // same time. Where there is no `sessionStorage`, the storage of the options holds it.
  const pendingLogins = (): BrowserStorage =>
    typeof sessionStorage === 'undefined' && customStorage !== undefined ? customStorage : sessionStorage;
  let returnPromise: Promise<User | null> | undefined;

  return {
    client,
    token,
    state: () => session.state(),
    subscribe: (listener) => session.subscribe(listener),
    handle() {
      // Frameworks may call this twice for one page load, but the code can be exchanged only once.
      returnPromise ??= finishOrRestore({
        client,
        session,
        pendingLogins,
        key: keys.pending,
        navigate,
      }).finally(() => {
        returnPromise = undefined;
      });
      return returnPromise;
    },
    async signIn({ screen, loginHint = session.endedEmail(), returnTo = location.href } = {}) {
      requireSecurePage();
      const pendingLogin = createPendingLogin(redirectUri, returnTo);
      pendingLogins().setItem(keys.pending, JSON.stringify(pendingLogin));
      const query = await createLoginQuery(bureauId, pendingLogin, { screen, loginHint });
      location.assign(`${connection.baseUrl.replace(/\/+$/, '')}/login?${query}`);
      return new Promise<never>(() => {});
    },
    async signOut() {
      // Delete the token first: the user may leave the page before the server has answered.
      const userToken = token();
      session.end(null);
      if (userToken === undefined) return;
      const headers = { authorization: `Bearer ${userToken}` };
      await client.accounts.logout(undefined, { headers }).catch(() => undefined);
    },
  };
}

/** PKCE needs the browser's cryptography, which only pages over https and of localhost have. */
function requireSecurePage(): void {
  if (!globalThis.isSecureContext)
    throw new Error(
      `A sign-in needs https, which ${location.origin} does not use. http works only for localhost.`,
    );
}

function createPendingLogin(redirectUri: string | undefined, returnTo: string): PendingLogin {
  return {
    state: randomText(),
    verifier: randomText(),
    redirectUri: redirectUri ?? location.origin + location.pathname,
    returnTo: ownAddress(returnTo).href,
  };
}

/**
 * Throws for an address of another origin. Otherwise a link with a crafted `returnTo` could send the user
 * to another site after the sign-in (an open redirect).
 */
function ownAddress(address: string): URL {
  const url = new URL(address, location.href);
  if (url.origin !== location.origin)
    throw new Error(`"returnTo" has the origin ${url.origin}; use an address of ${location.origin}.`);
  return url;
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
  session: WebSession;
  pendingLogins: () => BrowserStorage;
  /** The key under which the pending login is stored. */
  key: string;
  navigate: WebLoginOptions['navigate'];
}

async function finishOrRestore({
  client,
  session,
  pendingLogins,
  key,
  navigate,
}: HandleOptions): Promise<User | null> {
  const address = new URL(location.href);
  const [code, state] = [address.searchParams.get('code'), address.searchParams.get('state')];
  const pendingLogin = code === null ? null : readJson<PendingLogin>(pendingLogins, key);
  // A code whose state does not match, such as a code from an attacker's own login, is ignored.
  if (code === null || pendingLogin === null || state !== pendingLogin.state) {
    session.refresh();
    // The call detects a token that was revoked meanwhile, which ends the session (createSessionFetch).
    if (session.read() !== null) await client.accounts.getMe().catch(() => undefined);
    return session.read()?.user ?? null;
  }
  pendingLogins().removeItem(key);
  for (const name of ['code', 'state']) address.searchParams.delete(name);
  history.replaceState(history.state, '', address);
  try {
    const {
      user_token: userToken,
      expires_at: expiresAt,
      user,
    } = await client.accounts.issueLoginToken({
      code,
      code_verifier: pendingLogin.verifier,
      redirect_uri: pendingLogin.redirectUri,
    });
    session.write({ userToken, expiresAt, user });
    goBack(pendingLogin.returnTo, address, navigate);
    return user;
  } catch (error) {
    session.refresh();
    throw error;
  }
}

/** Goes to the address where the sign-in began, unless the browser is already there. */
function goBack(start: string, current: URL, navigate: WebLoginOptions['navigate']): void {
  if (start === current.href) return;
  if (navigate !== undefined) navigate(new URL(start));
  else location.replace(start);
}

/**
 * Ends the session when the server refuses its token, such as one that was revoked. The refusal of
 * an earlier token changes nothing: the user may have signed in again meanwhile.
 */
function createSessionFetch(
  baseFetch: GatewayClientOptions['fetch'],
  session: WebSession,
): typeof globalThis.fetch {
  return async (input, init) => {
    const response = await (baseFetch ?? globalThis.fetch)(input, init);
    if (response.status !== 401) return response;
    const code = await readErrorCode(response.clone());
    const current = session.read();
    if (current === null) {
      // The stored session has expired, so the call was sent without its token.
      if (session.state().user !== null) session.refresh();
    } else if (code === 'invalid_token' && isSentWith(current.userToken, init)) session.end('revoked');
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

// A page that uses two gateways, or two Bureaus of one gateway, has a session for each of them.
function storageKeys(baseUrl: string, bureauId: string): { session: string; pending: string } {
  const name = `townhall ${baseUrl.replace(/\/+$/, '')} ${bureauId}`;
  return { session: `${name} session`, pending: `${name} pending` };
}
