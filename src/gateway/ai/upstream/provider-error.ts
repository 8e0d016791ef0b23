// Turns an error response of a provider into a Problem for the caller. The caller sees the
// provider's message only for statuses that it can act on (400, 404, 413, 422), and always without
// keys and addresses.
import { parseJsonOrUndefined } from '../../../kernel/json-value.ts';
import { Problem, type ProblemKind } from '../../../kernel/problem.ts';

const forwardedKinds: Record<number, ProblemKind> = {
  400: 'bad_request',
  404: 'not_found',
  413: 'too_large',
  422: 'impossible',
};

const maxMessageLength = 2000;
// Providers may request hours. Callers should retry sooner, as a fallback may answer by then.
const maxRetryAfterSeconds = 60;

export interface ErrorResponse {
  status: number;
  retryAfter: string | undefined;
  body: string;
  /** Replaces known secrets in a string. */
  hide: (text: string) => string;
  now: Date;
}

/** The Problem for a response whose status is not a success. */
export function problemOfErrorResponse(response: ErrorResponse): Problem {
  const { status } = response;
  const words = loggedMessage(response);
  const kind = forwardedKinds[status];
  if (kind !== undefined) return forwardMessage(kind, response, words);
  if (status === 401 || status === 403) {
    return new Problem(
      'upstream_failed',
      'provider_credentials',
      'The model provider refused the key that is configured for it.',
      { cause: { status, words } },
    );
  }
  const hasRetryAfter = response.retryAfter !== undefined;
  if (status === 429) {
    return new Problem(
      'rate_limited',
      'rate_limited',
      'The model provider is limiting requests; try again later.',
      {
        cause: {
          status,
          hasRetryAfter,
          words,
          ...(hasRetryAfter ? { retryAfterMs: requestedSeconds(response) * 1000 } : {}),
        },
        headers: { 'retry-after': String(retryAfterSeconds(response)) },
      },
    );
  }
  if (status === 408 || status === 504) {
    return new Problem('upstream_timeout', 'upstream_timeout', 'The model provider did not answer in time.', {
      cause: { status, words },
    });
  }
  return new Problem('upstream_failed', 'upstream_failed', 'The model provider failed to answer.', {
    cause: { status, hasRetryAfter, words },
    ...(hasRetryAfter && (status === 503 || status === 529)
      ? { headers: { 'retry-after': String(retryAfterSeconds(response)) } }
      : {}),
  });
}

/** The cause of a Problem when no response arrived: the connection failed or was cut before. */
export class ConnectionFailure extends Error {
  override readonly name = 'ConnectionFailure';
}

/** The HTTP status of the provider's error response; undefined for a failure without one. */
export function providerStatusOf({ cause }: Problem): number | undefined {
  // A Problem as the cause has a status too, but that is the one of our own answer.
  if (cause instanceof Problem) return undefined;
  const { status } = (cause ?? {}) as { status?: unknown };
  return typeof status === 'number' ? status : undefined;
}

/** A provider that missed a deadline. */
export function timeoutProblem(): Problem {
  return new Problem('upstream_timeout', 'upstream_timeout', 'The model provider did not answer in time.');
}

/**
 * The error of a failed transport. A Problem is returned unchanged; after an abort it is the abort's
 * reason, from a deadline or the caller; otherwise a Problem that the connection failed, before the
 * response or midway.
 */
export function toTransportProblem(
  error: unknown,
  { aborted, reason }: Pick<AbortSignal, 'aborted' | 'reason'>,
  phase: 'before' | 'midway',
): unknown {
  // First: reading a slow error body aborts the response, and the Problem of its status is to be thrown.
  if (error instanceof Problem) return error;
  if (aborted) return reason;
  const cause = new ConnectionFailure(error instanceof Error ? error.message : 'the connection failed', {
    cause: error,
  });
  if ((error as { code?: unknown } | null)?.code === 'UND_ERR_CONNECT_TIMEOUT') {
    return new Problem(
      'upstream_timeout',
      'upstream_timeout',
      'The model provider did not take the connection in time.',
      { cause },
    );
  }
  return phase === 'before'
    ? new Problem('upstream_failed', 'upstream_failed', 'The model provider could not be reached.', { cause })
    : new Problem(
        'upstream_failed',
        'upstream_truncated',
        'The model provider closed the connection before its answer was complete.',
        { cause: error },
      );
}

/**
 * The seconds of a `Retry-After` header, which has a number of seconds or a date: from 0 to 60, and
 * 1 if the header is missing or invalid.
 */
export function retryAfterSeconds(response: Pick<ErrorResponse, 'retryAfter' | 'now'>): number {
  return Math.min(requestedSeconds(response), maxRetryAfterSeconds);
}

/** `retryAfterSeconds` without the limit of 60. */
function requestedSeconds({ retryAfter, now }: Pick<ErrorResponse, 'retryAfter' | 'now'>): number {
  if (retryAfter === undefined) return 1;
  const seconds = /^\s*-?\d+(\.\d+)?\s*$/.test(retryAfter)
    ? Number(retryAfter)
    : (Date.parse(retryAfter) - now.getTime()) / 1000;
  if (Number.isNaN(seconds)) return 1;
  return Math.max(Math.ceil(seconds), 0);
}

// Longer messages are cut in the log.
const maxLoggedLength = 500;

/**
 * The provider's message for the operator's log; undefined for HTML and for JSON without a message.
 */
function loggedMessage({ body, hide }: Pick<ErrorResponse, 'body' | 'hide'>): string | undefined {
  const { message, code } = parseError(body);
  const isMarkup = /^\s*[<{[]/.test(body);
  const text = [message, code].find((value) => typeof value === 'string') ?? (isMarkup ? '' : body);
  return textForLog(text, hide);
}

/** A provider's text for one log line, redacted and shortened; undefined if nothing is left. */
export function textForLog(text: string, hide: (text: string) => string): string | undefined {
  const line = redactText(text, hide).replace(/\s+/g, ' ').trim();
  // Cut at a space: the first half of a key would no longer match the pattern of keys.
  const shortLine =
    line.length <= maxLoggedLength
      ? line
      : line.slice(0, Math.max(line.lastIndexOf(' ', maxLoggedLength), 0));
  return shortLine === '' ? undefined : shortLine;
}

function forwardMessage(
  kind: ProblemKind,
  { status, body, hide }: ErrorResponse,
  words: string | undefined,
): Problem {
  const error = parseError(body);
  const redact = (text: string) => redactText(text, hide);
  const message =
    typeof error.message === 'string' && error.message.trim() !== ''
      ? redact(error.message)
      : 'The model provider refused the request.';
  return new Problem(kind, 'upstream_refused', message, {
    cause: { status, words, ...(refusesUsage(body, redact) ? { refusesUsage: true } : {}) },
    param: typeof error.param === 'string' ? redact(error.param) : null,
    ...(typeof error.code === 'string' && error.code !== '' ? { externalCode: redact(error.code) } : {}),
  });
}

// Validators name the member in the message, in `param` or in a list of locations, so the
// whole body is searched. Addresses are redacted first: a URL in the caller's own input may contain
// the same words.
function refusesUsage(body: string, redact: (text: string) => string): boolean {
  return /stream_options|include_usage/.test(redact(body));
}

/** A provider's text without secrets, addresses and keys, cut to the length of a message. */
export function redactText(text: string, hide: (text: string) => string): string {
  return redactAddressesAndKeys(hide(text).slice(0, maxMessageLength));
}

// Reads the shapes {error: {message, …}}, {error: "…"} and {message, …}; empty for
// anything else, such as HTML.
function parseError(body: string): { message?: unknown; param?: unknown; code?: unknown } {
  const value = parseJsonOrUndefined(body);
  if (typeof value !== 'object' || value === null) return {};
  const { error } = value as { error?: unknown };
  if (typeof error === 'string') return { message: error };
  return typeof error === 'object' && error !== null ? error : value;
}

const addressesAndKeys = new RegExp(
  [
    '[a-z][a-z0-9+.-]*://[^\\s"\'<>`]+',
    '\\b\\d{1,3}(?:\\.\\d{1,3}){3}(?::\\d+)?\\b',
    '\\[[0-9a-f:]*:[0-9a-f:.]*\\](?::\\d+)?',
    '\\b(?:[a-z0-9-]+\\.)+[a-z]{2,}:\\d+\\b',
    '\\blocalhost(?::\\d+)?\\b',
    // Keys of common providers, complete or masked with asterisks.
    '\\b(?:sk|pk|rk|gsk|xai)[-_][A-Za-z0-9_*-]{6,}',
    '\\bAIza[A-Za-z0-9_-]{20,}',
    // Amazon Resource Names, which contain the account's number.
    '\\barn:aws[a-z-]*:[^\\s"\'<>`]+',
  ].join('|'),
  'gi',
);

function redactAddressesAndKeys(text: string): string {
  return text.replace(addressesAndKeys, '[redacted]');
}
