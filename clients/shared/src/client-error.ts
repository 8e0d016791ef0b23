// The one error shape of both clients, whether the failure came from the server, a proxy, the
// connection or a deadline. It never contains the request's body or its credential.

/** The properties of a failure; the error classes of both clients are made from it. */
export interface Failure {
  message: string;
  code: string;
  status?: number | undefined;
  type?: string | undefined;
  param?: string | null | undefined;
  details?: readonly { path: string; message: string }[] | undefined;
  requestId?: string | undefined;
  retryable?: boolean | undefined;
  retryAfterMs?: number | undefined;
  headers?: Readonly<Record<string, string>> | undefined;
  cause?: unknown;
}

/** The codes of failures that no server sent; their `type` is `transport_error`. */
export type TransportCode =
  | 'connection_failed'
  | 'timeout'
  | 'invalid_response'
  | 'stream_truncated'
  | 'stream_event_too_large';

/** Base class of `GatewayError` and `AgentError`; tell them apart with `isInstance` of each class. */
export class ClientError extends Error {
  /**
   * The HTTP status, 0 without an answer. An error inside a stream has the stream's own status,
   * 200.
   */
  readonly status: number;
  /** Stable, for programs: a code of the contract, of a model's provider, or of this client. */
  readonly code: string;
  /** The family of the error; `transport_error` when no server sent it. */
  readonly type: string;
  /** The wrong member of the request. */
  readonly param: string | null;
  readonly details: readonly { path: string; message: string }[];
  /** The server's request id, to quote when asking for help. */
  readonly requestId: string | undefined;
  /**
   * Whether the same call may succeed when it is sent again. False once a part of an answer has
   * arrived, because a repetition would be charged again. The clients retry only with `maxRetries`.
   */
  readonly retryable: boolean;
  /** The server's Retry-After in milliseconds. */
  readonly retryAfterMs: number | undefined;
  /** The answer's headers, names in lower case; empty without an answer. */
  declare readonly headers: Readonly<Record<string, string>>;

  protected constructor(name: string, marker: symbol, failure: Failure) {
    super(failure.message, failure.cause === undefined ? undefined : { cause: failure.cause });
    this.name = name;
    this.status = failure.status ?? 0;
    this.code = failure.code;
    this.type = failure.type ?? 'transport_error';
    this.param = failure.param ?? null;
    this.details = failure.details ?? [];
    this.requestId = failure.requestId;
    this.retryable = failure.retryable ?? false;
    this.retryAfterMs = failure.retryAfterMs;
    // Not enumerable, so that a printed error stays readable.
    Object.defineProperty(this, 'headers', { value: failure.headers ?? {} });
    Object.defineProperty(this, marker, { value: true });
  }
}

/** Whether `error` has the marker, set by any copy of the module. */
export function hasMarker(error: unknown, marker: symbol): boolean {
  return typeof error === 'object' && error !== null && (error as Record<symbol, unknown>)[marker] === true;
}

// 408 and 425 are transient by definition; some providers answer 529 when overloaded.
const transientStatuses = new Set([408, 425, 429, 500, 502, 503, 504, 529]);

/** The failure of an answer with an error status, with any body. */
export function failureOfAnswer(response: Response, bodyText: string): Failure {
  const headers = Object.fromEntries(response.headers);
  const retryAfterMs = readRetryAfter(headers['retry-after']);
  const advice = headers['x-should-retry'];
  const problem = problemIn(parseJson(bodyText));
  return {
    ...(problem ?? {
      code: 'invalid_response',
      message: `The server answered ${response.status} (${describeMediaType(response)}) without an error of the contract; is the base address right, or is a proxy in between?`,
    }),
    status: response.status,
    requestId: headers['x-request-id'] ?? problem?.requestId,
    // A 409 is transient only with Retry-After, such as while the first call with the same key still runs.
    retryable:
      advice === undefined
        ? transientStatuses.has(response.status) || (response.status === 409 && retryAfterMs !== undefined)
        : advice === 'true',
    retryAfterMs,
    headers,
  };
}

/**
 * Reads `{error: {…}}`, the error shape of the contract and of chat completions;
 * undefined when `value` has another shape.
 */
export function problemIn(value: unknown): Failure | undefined {
  const error = isRecord(value) ? value['error'] : undefined;
  if (!isRecord(error) || typeof error['message'] !== 'string') return undefined;
  return {
    message: error['message'],
    code: typeof error['code'] === 'string' ? error['code'] : 'unknown_error',
    type: typeof error['type'] === 'string' ? error['type'] : undefined,
    param: typeof error['param'] === 'string' ? error['param'] : null,
    requestId: typeof error['request_id'] === 'string' ? error['request_id'] : undefined,
    details: Array.isArray(error['details']) ? error['details'].filter(isDetail) : undefined,
  };
}

/** The media type of an answer, for a message. */
export function describeMediaType(response: Response): string {
  return response.headers.get('content-type')?.split(';')[0]?.trim() || 'no media type';
}

function isDetail(value: unknown): value is { path: string; message: string } {
  return isRecord(value) && typeof value['path'] === 'string' && typeof value['message'] === 'string';
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null;
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function readRetryAfter(value: string | undefined): number | undefined {
  if (value === undefined) return undefined;
  const seconds = Number(value);
  const waitMs = Number.isFinite(seconds) ? seconds * 1000 : Date.parse(value) - Date.now();
  return Number.isFinite(waitMs) && waitMs >= 0 ? waitMs : undefined;
}
