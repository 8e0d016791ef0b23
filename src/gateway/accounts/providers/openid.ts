// Third parties that say who a person is, through OpenID Connect or plain OAuth 2; the only file that knows
// openid-client. The rule it keeps: PKCE and state always, a nonce and a signed ID token wherever there is one, and
// an end to every wait.
import { AsyncLocalStorage } from 'node:async_hooks';
import * as client from 'openid-client';
import { isLoopbackHost } from '../../../kernel/http/address.ts';
import type { Clock } from '../../../kernel/clock.ts';
import { Problem } from '../../../kernel/problem.ts';

/** Who we are to a third party, and where it is. */
export interface ThirdParty {
  clientId: string;
  clientSecret: string;
  scope: string;
  /** An OpenID provider is found by its issuer's discovery document; a plain OAuth server is told. */
  server: { issuer: string } | { authorizationUrl: string; tokenUrl: string; issuer: string; isPlain: true };
}

/** What a third party's answer was exchanged for. */
export interface Grant {
  /** Of a checked ID token; undefined for plain OAuth. */
  claims: { iss: string; sub: string; [name: string]: unknown } | undefined;
  /** What the provider's endpoint for user information says, when it has one. */
  userInfo(): Promise<Readonly<Record<string, unknown>>>;
  /** Asks an address with the access token. */
  read(url: string): Promise<unknown>;
}

export interface OpenIdNeeds {
  fetch: typeof globalThis.fetch;
  clock: Pick<Clock, 'monotonicMs'>;
  /** For all that one step asks of a third party. */
  deadlineMs?: number;
  /** How long a discovery document is believed. */
  cacheMs?: number;
}

export interface OpenId {
  /** The address to send the browser to, and what to remember until it is back. */
  begin(
    party: ThirdParty,
    request: { callbackUrl: string; state: string },
  ): Promise<{ url: string; memory: string }>;
  /** Exchanges what came back and reads who it is. Throws the Problems that a redirect provider may throw. */
  end<T>(
    party: ThirdParty,
    answer: { callbackUrl: string; state: string; query: string; memory: string },
    read: (grant: Grant) => Promise<T>,
  ): Promise<T>;
}

interface Memory {
  verifier: string;
  nonce?: string;
}

interface Discovered {
  configuration: Promise<client.Configuration>;
  atMs: number;
}

export function createOpenId({ fetch, clock, deadlineMs = 10_000, cacheMs = 600_000 }: OpenIdNeeds): OpenId {
  const discovered = new Map<string, Discovered>();
  // The configuration is shared by all calls, the deadline is each call's own.
  const deadline = new AsyncLocalStorage<AbortSignal>();

  const boundedFetch: client.CustomFetch = (url, options) => {
    const signals = [options.signal, deadline.getStore()].filter(
      (signal) => signal !== undefined && signal !== null,
    );
    return fetch(url, { ...options, signal: AbortSignal.any(signals) } as RequestInit);
  };

  async function discover({ server, clientId, clientSecret }: ThirdParty): Promise<client.Configuration> {
    if ('isPlain' in server) return plainConfiguration(server, clientId, clientSecret);
    const configuration = await client.discovery(
      new URL(server.issuer),
      clientId,
      clientSecret,
      clientAuthentication(clientSecret),
      {
        [client.customFetch]: boundedFetch,
        ...(isLocalHttp(server.issuer) ? { execute: [allowPlainHttp] } : {}),
      },
    );
    // Not only the TLS connection vouches for an ID token, but its signature too.
    client.enableNonRepudiationChecks(configuration);
    return configuration;
  }

  function plainConfiguration(
    server: Extract<ThirdParty['server'], { isPlain: true }>,
    clientId: string,
    clientSecret: string,
  ): client.Configuration {
    const metadata = {
      issuer: server.issuer,
      authorization_endpoint: server.authorizationUrl,
      token_endpoint: server.tokenUrl,
    };
    const configuration = new client.Configuration(
      metadata,
      clientId,
      clientSecret,
      client.ClientSecretPost(clientSecret),
    );
    configuration[client.customFetch] = boundedFetch;
    if (isLocalHttp(server.tokenUrl)) allowPlainHttp(configuration);
    return configuration;
  }

  function configurationOf(party: ThirdParty): Promise<client.Configuration> {
    const key = JSON.stringify(party);
    const known = discovered.get(key);
    if (known && clock.monotonicMs() - known.atMs < cacheMs) return known.configuration;
    // A changed secret makes another key; the few old ones are not worth counting, but must not pile up.
    if (discovered.size >= 32) discovered.clear();
    const configuration = discover(party);
    discovered.set(key, { configuration, atMs: clock.monotonicMs() });
    // A failure is not kept: the next attempt asks again.
    configuration.catch(() => discovered.delete(key));
    return configuration;
  }

  async function bounded<T>(work: () => Promise<T>): Promise<T> {
    const signal = AbortSignal.timeout(deadlineMs);
    const late = new Promise<never>((_resolve, reject) =>
      signal.addEventListener('abort', () => reject(tooSlow()), { once: true }),
    );
    try {
      // The race is for what another call has begun and this one only waits for, such as a discovery.
      return await Promise.race([deadline.run(signal, work), late]);
    } catch (error) {
      if (signal.aborted) throw tooSlow();
      throw asProblem(error);
    }
  }

  return {
    begin: (party, { callbackUrl, state }) =>
      bounded(async () => {
        const configuration = await configurationOf(party);
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
      }),
    end: (party, { callbackUrl, state, query, memory }, read) =>
      bounded(async () => {
        const configuration = await configurationOf(party);
        const { verifier, nonce } = JSON.parse(memory) as Memory;
        const tokens = await client.authorizationCodeGrant(
          configuration,
          new URL(`${callbackUrl}?${query}`),
          {
            expectedState: state,
            pkceCodeVerifier: verifier,
            ...(nonce === undefined ? {} : { expectedNonce: nonce, idTokenExpected: true }),
          },
        );
        const claims = tokens.claims();
        return read({
          claims,
          async userInfo() {
            if (claims === undefined || configuration.serverMetadata().userinfo_endpoint === undefined)
              return {};
            return client.fetchUserInfo(configuration, tokens.access_token, claims.sub);
          },
          async read(url) {
            const answer = await client.fetchProtectedResource(
              configuration,
              tokens.access_token,
              new URL(url),
              'GET',
              null,
              new Headers({ accept: 'application/json' }),
            );
            if (!answer.ok)
              throw new Problem(
                'upstream_failed',
                'upstream_failed',
                'The provider did not say who this is.',
              );
            return (await answer.json()) as unknown;
          },
        });
      }),
  };
}

// oxlint-disable-next-line typescript/no-deprecated -- marked so that it stands out; here it is for a provider on this machine.
const allowPlainHttp: (configuration: client.Configuration) => void = client.allowInsecureRequests;

/** Basic is what the specification says of a client that was registered without saying how. */
function clientAuthentication(secret: string): client.ClientAuth {
  const [basic, post] = [client.ClientSecretBasic(secret), client.ClientSecretPost(secret)];
  return (server, ...rest) => {
    const methods = server.token_endpoint_auth_methods_supported;
    return (methods === undefined || methods.includes('client_secret_basic') ? basic : post)(server, ...rest);
  };
}

/** Whether an issuer may be used: a plain connection is for this machine alone. */
export function isUsableIssuer(issuer: string): boolean {
  return URL.canParse(issuer) && (new URL(issuer).protocol === 'https:' || isLocalHttp(issuer));
}

function isLocalHttp(url: string): boolean {
  const { protocol, host } = new URL(url);
  return protocol === 'http:' && isLoopbackHost(host);
}

function tooSlow(): Problem {
  return new Problem('upstream_timeout', 'upstream_timeout', 'The login provider did not answer in time.');
}

// What does not hold is the answer's fault, what could not be asked is the provider's.
function asProblem(error: unknown): Problem {
  if (error instanceof Problem) return error;
  if (error instanceof client.AuthorizationResponseError) {
    if (error.error === 'access_denied')
      return new Problem('forbidden', 'login_denied', 'You did not let the provider say who you are.', {
        cause: plain(error),
      });
    return new Problem('bad_request', 'login_failed', 'The provider refused the login.', {
      cause: plain(error),
    });
  }
  const code = error instanceof client.ClientError ? error.code : undefined;
  const isTheirs =
    (error instanceof TypeError && error.message === 'fetch failed') ||
    [
      'OAUTH_RESPONSE_IS_NOT_CONFORM',
      'OAUTH_RESPONSE_IS_NOT_JSON',
      'OAUTH_PARSE_ERROR',
      'OAUTH_TIMEOUT',
      'OAUTH_ABORT',
    ].includes(code ?? '');
  if (isTheirs)
    return new Problem('upstream_failed', 'upstream_failed', 'The login provider cannot be reached.', {
      cause: plain(error),
    });
  return new Problem('bad_request', 'login_failed', 'What the login provider sent back does not hold.', {
    cause: plain(error),
  });
}

// The library's errors carry the parameters, which are secrets; the name and the code are enough for a log.
function plain(error: unknown): Error {
  const { name, code, error: answered } = error as { name?: unknown; code?: unknown; error?: unknown };
  const kept = new Error(
    [name, answered].filter((part) => typeof part === 'string' && /^[\w. ]{1,64}$/.test(part)).join(' '),
  );
  return Object.assign(
    kept,
    { name: typeof name === 'string' ? name : 'Error' },
    typeof code === 'string' ? { code } : {},
  );
}
