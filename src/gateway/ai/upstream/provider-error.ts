// What a provider's refusal becomes for our caller. The provider's own words pass only where the caller can act on
// them (400, 404, 413, 422), and never with a key or an address in them.
import { Problem, type ProblemKind } from '../../../kernel/problem.ts';

const passedOn: Record<number, ProblemKind> = {
  400: 'bad_request',
  404: 'not_found',
  413: 'too_large',
  422: 'impossible',
};

const longestMessage = 2000;
// A provider that asks for more patience than this is as good as away; callers should hear from us again sooner.
const longestRetryAfterSeconds = 60;

export interface ErrorResponse {
  status: number;
  retryAfter: string | undefined;
  body: string;
  /** Takes known secrets out of a text. */
  hide: (text: string) => string;
  now: Date;
}

/** The Problem for an answer of the provider that is no success. */
export function problemOfErrorResponse(refusal: ErrorResponse): Problem {
  const { status } = refusal;
  const words = loggedWords(refusal);
  const kind = passedOn[status];
  if (kind !== undefined) return passOn(kind, refusal, words);
  if (status === 401 || status === 403) {
    return new Problem(
      'upstream_failed',
      'provider_credentials',
      'The model provider refused the key that is configured for it.',
      { cause: { status, words } },
    );
  }
  const asked = refusal.retryAfter !== undefined;
  if (status === 429) {
    return new Problem(
      'rate_limited',
      'rate_limited',
      'The model provider is limiting requests; try again later.',
      {
        cause: { status, asked, words },
        headers: { 'retry-after': String(retryAfterSeconds(refusal)) },
      },
    );
  }
  if (status === 408 || status === 504) {
    return new Problem('upstream_timeout', 'upstream_timeout', 'The model provider did not answer in time.', {
      cause: { status, words },
    });
  }
  return new Problem('upstream_failed', 'upstream_failed', 'The model provider failed to answer.', {
    cause: { status, asked, words },
    ...(asked && (status === 503 || status === 529)
      ? { headers: { 'retry-after': String(retryAfterSeconds(refusal)) } }
      : {}),
  });
}

/** The cause of a Problem whose call never reached the provider, or was cut before any answer to it. */
export class ConnectionFailure extends Error {
  override readonly name = 'ConnectionFailure';
}

/** Seconds out of a `Retry-After` in either of its forms, between 0 and 60; 1 where there is none to be understood. */
export function retryAfterSeconds({ retryAfter, now }: Pick<ErrorResponse, 'retryAfter' | 'now'>): number {
  if (retryAfter === undefined) return 1;
  const seconds = /^\s*-?\d+(\.\d+)?\s*$/.test(retryAfter)
    ? Number(retryAfter)
    : (Date.parse(retryAfter) - now.getTime()) / 1000;
  if (Number.isNaN(seconds)) return 1;
  return Math.min(Math.max(Math.ceil(seconds), 0), longestRetryAfterSeconds);
}

// A log line is for reading; what is longer is cut.
const longestLoggedWords = 500;

/** The provider's own words for the operator's log, without secrets, addresses and keys; a page of HTML has none. */
function loggedWords({ body, hide }: Pick<ErrorResponse, 'body' | 'hide'>): string | undefined {
  const { message, code } = errorOf(body);
  const text =
    typeof message === 'string'
      ? message
      : typeof code === 'string'
        ? code
        : /^\s*[<{[]/.test(body)
          ? ''
          : body;
  return textForLog(text, hide);
}

/** A provider's text as a log line may have it; undefined where nothing is left. */
export function textForLog(text: string, hide: (text: string) => string): string | undefined {
  const words = redactText(text, hide).replace(/\s+/g, ' ').trim();
  // Cut between words: the beginning of a key would no longer be known for one.
  const loggedWords =
    words.length <= longestLoggedWords
      ? words
      : words.slice(0, Math.max(words.lastIndexOf(' ', longestLoggedWords), 0));
  return loggedWords === '' ? undefined : loggedWords;
}

function passOn(
  kind: ProblemKind,
  { status, body, hide }: ErrorResponse,
  words: string | undefined,
): Problem {
  const said = errorOf(body);
  const clean = (text: string) => redactText(text, hide);
  const message =
    typeof said.message === 'string' && said.message.trim() !== ''
      ? clean(said.message)
      : 'The model provider refused the request.';
  return new Problem(kind, 'upstream_refused', message, {
    cause: { status, words },
    param: typeof said.param === 'string' ? clean(said.param) : null,
    ...(typeof said.code === 'string' && said.code !== '' ? { foreignCode: clean(said.code) } : {}),
  });
}

/** A provider's words without secrets, addresses and keys, and no longer than a message is. */
export function redactText(text: string, hide: (text: string) => string): string {
  return withoutAddresses(hide(text).slice(0, longestMessage));
}

// The shapes in use: {error: {message, …}}, {error: "…"} and {message, …}. Anything else, HTML too, says nothing.
function errorOf(body: string): { message?: unknown; param?: unknown; code?: unknown } {
  let value: unknown;
  try {
    value = JSON.parse(body);
  } catch {
    return {};
  }
  if (typeof value !== 'object' || value === null) return {};
  const { error } = value as { error?: unknown };
  if (typeof error === 'string') return { message: error };
  return typeof error === 'object' && error !== null ? error : value;
}

const addresses = new RegExp(
  [
    '[a-z][a-z0-9+.-]*://[^\\s"\'<>`]+',
    '\\b\\d{1,3}(?:\\.\\d{1,3}){3}(?::\\d+)?\\b',
    '\\[[0-9a-f:]*:[0-9a-f:.]*\\](?::\\d+)?',
    '\\b(?:[a-z0-9-]+\\.)+[a-z]{2,}:\\d+\\b',
    '\\blocalhost(?::\\d+)?\\b',
    // The forms that keys have among providers, whole or shortened with asterisks.
    '\\b(?:sk|pk|rk|gsk|xai)[-_][A-Za-z0-9_*-]{6,}',
    '\\bAIza[A-Za-z0-9_-]{20,}',
  ].join('|'),
  'gi',
);

function withoutAddresses(text: string): string {
  return text.replace(addresses, '[redacted]');
}
