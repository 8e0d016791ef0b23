// Short-lived access tokens of OAuth 2.0 token endpoints (RFC 6749). One request with a deadline serves all
// waiting calls, and a token is renewed some minutes before it expires.
import { Problem } from '../../../../kernel/problem.ts';
import { asRecord, parseJsonOrUndefined } from '../../../../kernel/json-value.ts';
import type { Upstream } from '../../upstream/client.ts';
import { readAll } from '../../upstream/response-body.ts';
import { upstreamFailed } from '../../hub/problems.ts';

export interface TokenRequest {
  url: string;
  form: Readonly<Record<string, string>>;
}

export interface AccessTokens {
  /**
   * The token for a secret. Rejects with a Problem: `provider_credentials` when the endpoint refuses the
   * secret, otherwise the failure of the endpoint.
   */
  token(secret: string): Promise<string>;
  /** Marks the cached token as expired, so that the next call requests a new one. */
  discard(): void;
  /** The last token, even after `discard`, for redacting it in error texts. */
  current(): string | undefined;
}

interface Token {
  secret: string;
  text: string;
  /** Monotonic milliseconds. */
  expiresMs: number;
}

const requestMs = 10_000;
const maxAnswerBytes = 64 * 1024;
/** A token is renewed this long before it expires, so that it is still valid when the call is sent. */
const renewalMarginMs = 300_000;

export function createAccessTokens({
  upstream,
  clock,
  request,
}: {
  upstream: Upstream;
  clock: { monotonicMs(): number };
  /** Throws a Problem for a malformed secret. */
  request: (secret: string) => TokenRequest;
}): AccessTokens {
  let cachedToken: Token | undefined;
  let pendingFetch: { secret: string; token: Promise<Token> } | undefined;

  async function fetchToken(secret: string): Promise<Token> {
    const startedMs = clock.monotonicMs();
    const { text, seconds } = await requestToken(upstream, request(secret));
    // A token that is valid for less than ten minutes is used for half of that time.
    const usableMs = Math.max(seconds * 1000 - renewalMarginMs, (seconds * 1000) / 2);
    cachedToken = { secret, text, expiresMs: startedMs + usableMs };
    return cachedToken;
  }

  return {
    async token(secret) {
      if (cachedToken?.secret === secret && clock.monotonicMs() < cachedToken.expiresMs)
        return cachedToken.text;
      if (pendingFetch?.secret !== secret) {
        const newFetch = { secret, token: fetchToken(secret) };
        pendingFetch = newFetch;
        const clearPending = () => {
          if (pendingFetch === newFetch) pendingFetch = undefined;
        };
        newFetch.token.then(clearPending, clearPending);
      }
      return (await pendingFetch.token).text;
    },
    // The token stays known: the answer that refused it may quote it.
    discard() {
      if (cachedToken !== undefined) cachedToken = { ...cachedToken, expiresMs: -Infinity };
    },
    current: () => cachedToken?.text,
  };
}

async function requestToken(
  upstream: Upstream,
  { url, form }: TokenRequest,
): Promise<{ text: string; seconds: number }> {
  const answer = await upstream
    .send({
      url,
      apiKey: undefined,
      // The form has the credentials; its values are removed from error texts.
      authorizer: { headers: () => ({}), secrets: () => Object.values(form) },
      headers: { 'content-type': 'application/x-www-form-urlencoded' },
      body: new URLSearchParams(form).toString(),
      streams: false,
      firstMs: requestMs,
      idleMs: requestMs,
      signal: AbortSignal.timeout(2 * requestMs),
    })
    .catch((error: unknown) => {
      // A 400 of the endpoint concerns the configured credentials. The gateway's caller cannot correct those,
      // so the call does not fail with a 400.
      throw error instanceof Problem && error.code === 'upstream_refused' ? refusedSecret(error) : error;
    });
  const bytes = await readAll(answer.body, maxAnswerBytes);
  const { access_token: text, expires_in: expiry } = asRecord(parseJsonOrUndefined(bytes.toString('utf8')));
  if (typeof text !== 'string' || !/^[\x21-\x7e]+$/.test(text))
    throw upstreamFailed('The token endpoint of the model provider answered without a token.');
  const seconds = Number(expiry);
  return { text, seconds: Number.isFinite(seconds) && seconds > 0 ? seconds : 0 };
}

function refusedSecret(cause: Problem): Problem {
  return new Problem(
    'upstream_failed',
    'provider_credentials',
    'The model provider refused the credentials that are configured for it.',
    { cause: cause.cause },
  );
}

/** The Problem for configured credentials that are missing or malformed. */
export function unusableSecret(reason: string): Problem {
  return new Problem(
    'upstream_failed',
    'provider_credentials',
    `The credentials that are configured for the model provider cannot be used: ${reason}.`,
  );
}
