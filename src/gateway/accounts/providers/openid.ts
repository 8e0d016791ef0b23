// OpenID Connect and plain OAuth 2.0 logins through openid-client, which only this file imports. Every login
// uses PKCE and a state; a login at an OpenID Connect provider also uses a nonce and a signed ID token.
import { AsyncLocalStorage } from 'node:async_hooks';
import * as client from 'openid-client';
import { isLoopbackHost, isSecureUrl } from '../../../kernel/http/address.ts';
import { withTimeout } from '../../../kernel/async.ts';
import type { Clock } from '../../../kernel/clock.ts';
import { Problem } from '../../../kernel/problem.ts';

/** The third party's endpoints and this gateway's registration there. */
export interface ThirdParty {
  clientId: string;
  clientSecret: string;
  scope: string;
  /** OpenID providers publish their endpoints in a discovery document. Plain OAuth servers have none. */
  server: { issuer: string } | { authorizationUrl: string; tokenUrl: string; issuer: string; isPlain: true };
}

/** What an authorization code was exchanged for. */
export interface Grant {
  /** The claims of the verified ID token; undefined for plain OAuth. */
  claims: { iss: string; sub: string; [name: string]: unknown } | undefined;
  /** The answer of the user information endpoint; empty when the provider has none. */
  userInfo(): Promise<Readonly<Record<string, unknown>>>;
  /** Requests JSON from an address with the access token. */
  read(url: string): Promise<unknown>;
}

export interface OpenIdOptions {
  fetch: typeof globalThis.fetch;
  clock: Pick<Clock, 'monotonicMs'>;
  /** One deadline for all requests of a login step. */
  deadlineMs?: number;
  /** How long a discovery document is cached. */
  cacheMs?: number;
}

interface AuthorizationRequest {
  callbackUrl: string;
  state: string;
}

interface AuthorizationResponse extends AuthorizationRequest {
  query: string;
  memory: string;
}

export interface OpenId {
  /** Builds the authorization URL. Pass `memory` to `end` when the browser returns. */
  begin(party: ThirdParty, request: AuthorizationRequest): Promise<{ url: string; memory: string }>;
  /** Exchanges the code and passes the grant to `read`. Throws the Problems of `RedirectProvider.finish`. */
  end<T>(party: ThirdParty, response: AuthorizationResponse, read: (grant: Grant) => Promise<T>): Promise<T>;
}

interface Memory {
  verifier: string;
  nonce?: string;
}

export function createOpenId({
  fetch,
  clock,
  deadlineMs = 10_000,
  cacheMs = 600_000,
}: OpenIdOptions): OpenId {
  // Configurations are shared by all calls; each call has its own deadline.
  const deadline = new AsyncLocalStorage<AbortSignal>();
  const boundedFetch: client.CustomFetch = (url, options) => {
    const signals = [options.signal, deadline.getStore()].filter(
      (signal) => signal !== undefined && signal !== null,
    );
    return fetch(url, { ...options, signal: AbortSignal.any(signals) } as RequestInit);
  };
  const configurationOf = createConfigurationCache({ fetch: boundedFetch, clock, cacheMs });

  // The signal cannot abort a discovery that another call started and that this call shares, but
  // `withTimeout` still rejects at the deadline.
  async function withDeadline<T>(work: () => Promise<T>): Promise<T> {
    try {
      return await withTimeout((signal) => deadline.run(signal, work), { ms: deadlineMs, error: timedOut });
    } catch (error) {
      throw asProblem(error);
    }
  }

  return {
    begin: (party, request) =>
      withDeadline(async () => beginAuthorization(party, await configurationOf(party), request)),
    end: (party, response, read) =>
      withDeadline(async () => {
        const configuration = await configurationOf(party);
        return read(await exchangeCode(configuration, response));
      }),
  };
}

async function beginAuthorization(
  party: ThirdParty,
  configuration: client.Configuration,
  { callbackUrl, state }: AuthorizationRequest,
): Promise<{ url: string; memory: string }> {
  const memory: Memory = {
    verifier: client.randomPKCECodeVerifier(),
    ...('isPlain' in party.server ? {} : { nonce: client.randomNonce() }),
  };
  const url = client.buildAuthorizationUrl(configuration, {
    redirect_uri: callbackUrl,
    scope: party.scope,
    state,
    code_challenge: await client.calculatePKCECodeChallenge(memory.verifier),
    code_challenge_method: 'S256',
    ...(memory.nonce === undefined ? {} : { nonce: memory.nonce }),
  });
  return { url: url.href, memory: JSON.stringify(memory) };
}

async function exchangeCode(
  configuration: client.Configuration,
  { callbackUrl, state, query, memory }: AuthorizationResponse,
): Promise<Grant> {
  const { verifier, nonce } = JSON.parse(memory) as Memory;
  const tokens = await client.authorizationCodeGrant(configuration, new URL(`${callbackUrl}?${query}`), {
    expectedState: state,
    pkceCodeVerifier: verifier,
    ...(nonce === undefined ? {} : { expectedNonce: nonce, idTokenExpected: true }),
  });
  const claims = tokens.claims();
  return {
    claims,
    async userInfo() {
      if (claims === undefined || configuration.serverMetadata().userinfo_endpoint === undefined) return {};
      return client.fetchUserInfo(configuration, tokens.access_token, claims.sub);
    },
    async read(url) {
      const response = await client.fetchProtectedResource(
        configuration,
        tokens.access_token,
        new URL(url),
        'GET',
        null,
        new Headers({ accept: 'application/json' }),
      );
      if (!response.ok)
        throw new Problem(
          'upstream_failed',
          'upstream_failed',
          'The login provider refused to identify you.',
        );
      try {
        return (await response.json()) as unknown;
      } catch (error) {
        throw new Problem(
          'upstream_failed',
          'upstream_failed',
          'The answer of the login provider cannot be read.',
          { cause: withoutParameters(error) },
        );
      }
    },
  };
}

/**
 * Discovers and caches a configuration per third party. Concurrent callers share one
 * discovery; failures are not cached.
 */
function createConfigurationCache({
  fetch,
  clock,
  cacheMs,
}: {
  fetch: client.CustomFetch;
  clock: Pick<Clock, 'monotonicMs'>;
  cacheMs: number;
}): (party: ThirdParty) => Promise<client.Configuration> {
  const cache = new Map<string, { configuration: Promise<client.Configuration>; atMs: number }>();

  return (party) => {
    const key = JSON.stringify(party);
    const entry = cache.get(key);
    if (entry && clock.monotonicMs() - entry.atMs < cacheMs) return entry.configuration;
    // A changed client secret makes a new key. Clear the cache before entries of old secrets pile up.
    if (cache.size >= 32) cache.clear();
    const configuration = configure(party, fetch);
    cache.set(key, { configuration, atMs: clock.monotonicMs() });
    configuration.catch(() => cache.delete(key));
    return configuration;
  };
}

async function configure(
  { server, clientId, clientSecret }: ThirdParty,
  fetch: client.CustomFetch,
): Promise<client.Configuration> {
  if ('isPlain' in server) {
    const metadata = {
      issuer: server.issuer,
      authorization_endpoint: server.authorizationUrl,
      token_endpoint: server.tokenUrl,
    };
    const authentication = client.ClientSecretPost(clientSecret);
    const configuration = new client.Configuration(metadata, clientId, clientSecret, authentication);
    configuration[client.customFetch] = fetch;
    if (isLocalHttp(server.tokenUrl)) allowPlainHttp(configuration);
    return configuration;
  }
  const configuration = await client.discovery(
    new URL(server.issuer),
    clientId,
    clientSecret,
    clientAuthentication(clientSecret),
    {
      [client.customFetch]: fetch,
      ...(isLocalHttp(server.issuer) ? { execute: [allowPlainHttp] } : {}),
    },
  );
  // Verify the ID token's signature too; the library relies on TLS alone by default.
  client.enableNonRepudiationChecks(configuration);
  return configuration;
}

// oxlint-disable-next-line typescript/no-deprecated -- deprecated as a warning only; used for providers on this machine.
const allowPlainHttp: (configuration: client.Configuration) => void = client.allowInsecureRequests;

/**
 * Uses `client_secret_basic`, the default of OpenID Connect Discovery, unless the
 * provider does not support it.
 */
function clientAuthentication(secret: string): client.ClientAuth {
  const authenticateBasic = client.ClientSecretBasic(secret);
  const authenticatePost = client.ClientSecretPost(secret);
  return (server, ...parameters) => {
    const methods = server.token_endpoint_auth_methods_supported;
    const supportsBasic = methods === undefined || methods.includes('client_secret_basic');
    return (supportsBasic ? authenticateBasic : authenticatePost)(server, ...parameters);
  };
}

/** Whether an issuer is safe to use: HTTPS, or plain HTTP on this machine. */
export function isUsableIssuer(issuer: string): boolean {
  return URL.canParse(issuer) && isSecureUrl(new URL(issuer));
}

function isLocalHttp(url: string): boolean {
  const { protocol, host } = new URL(url);
  return protocol === 'http:' && isLoopbackHost(host);
}

function timedOut(): Problem {
  return new Problem('upstream_timeout', 'upstream_timeout', 'The login provider did not answer in time.');
}

// An unreachable provider or an unreadable answer is a 502; an answer that fails validation is a 400.
function asProblem(error: unknown): Problem {
  if (error instanceof Problem) return error;
  if (error instanceof client.AuthorizationResponseError) {
    if (error.error === 'access_denied')
      return new Problem('forbidden', 'login_denied', 'You declined the login at the provider.', {
        cause: withoutParameters(error),
      });
    return new Problem('bad_request', 'login_failed', 'The login provider refused the login.', {
      cause: withoutParameters(error),
    });
  }
  const code = error instanceof client.ClientError ? error.code : undefined;
  const isProviderFailure =
    (error instanceof TypeError && error.message === 'fetch failed') ||
    [
      'OAUTH_RESPONSE_IS_NOT_CONFORM',
      'OAUTH_RESPONSE_IS_NOT_JSON',
      'OAUTH_PARSE_ERROR',
      'OAUTH_TIMEOUT',
      'OAUTH_ABORT',
    ].includes(code ?? '');
  if (isProviderFailure)
    return new Problem('upstream_failed', 'upstream_failed', 'The login provider cannot be reached.', {
      cause: withoutParameters(error),
    });
  return new Problem('bad_request', 'login_failed', 'The answer of the login provider is invalid.', {
    cause: withoutParameters(error),
  });
}

// The library's errors contain request parameters, which are secrets. Log only the
// name, the OAuth error and the code.
function withoutParameters(error: unknown): Error {
  const { name, code, error: oauthError } = error as { name?: unknown; code?: unknown; error?: unknown };
  const message = [name, oauthError]
    .filter((part) => typeof part === 'string' && /^[\w. ]{1,64}$/.test(part))
    .join(' ');
  return Object.assign(
    new Error(message),
    { name: typeof name === 'string' ? name : 'Error' },
    typeof code === 'string' ? { code } : {},
  );
}
