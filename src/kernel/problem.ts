// The error class of the product and its form on the wire. Code throws a Problem where it checks
// a rule; http/respond.ts renders it. The message is for the caller, the cause for the log alone.
import type { ProblemCode } from '../contract/problem-code.gen.ts';

const kinds = {
  bad_request: { status: 400, type: 'invalid_request_error' },
  unauthenticated: { status: 401, type: 'authentication_error' },
  insufficient_credits: { status: 402, type: 'insufficient_credits' },
  forbidden: { status: 403, type: 'permission_error' },
  not_found: { status: 404, type: 'invalid_request_error' },
  method_not_allowed: { status: 405, type: 'invalid_request_error' },
  conflict: { status: 409, type: 'invalid_request_error' },
  gone: { status: 410, type: 'invalid_request_error' },
  too_large: { status: 413, type: 'invalid_request_error' },
  unsupported_media: { status: 415, type: 'invalid_request_error' },
  impossible: { status: 422, type: 'invalid_request_error' },
  rate_limited: { status: 429, type: 'rate_limit_error' },
  internal: { status: 500, type: 'server_error' },
  upstream_failed: { status: 502, type: 'upstream_error' },
  unavailable: { status: 503, type: 'server_error' },
  upstream_timeout: { status: 504, type: 'upstream_error' },
} as const;

/** A closed list of error kinds; each has one status and one `type` on the wire. */
export type ProblemKind = keyof typeof kinds;

/** The kind with this status. Throws for a status that no error of ours has. */
export function kindOfStatus(status: number): ProblemKind {
  const [kind] = Object.entries(kinds).find(([, entry]) => entry.status === status) ?? [];
  if (kind === undefined) throw new Error(`No error has the status ${status}.`);
  return kind as ProblemKind;
}

/** One invalid member: `path` as the caller would write it, such as `messages[0].role`. */
export interface ProblemDetail {
  path: string;
  message: string;
}

export interface ProblemExtra {
  /** The underlying error, for the log only; it never reaches the caller. */
  cause?: unknown;
  /** The invalid member or parameter. */
  param?: string | null;
  details?: ProblemDetail[];
  /** Headers of the answer, such as `retry-after`. Names in lower case. */
  headers?: Record<string, string>;
  /**
   * Replaces `code` in the error body when the refusal of another system is passed on, such as a model
   * provider's `context_length_exceeded`.
   */
  externalCode?: string;
}

export class Problem extends Error {
  override readonly name = 'Problem';
  readonly kind: ProblemKind;
  readonly status: number;
  readonly type: string;
  readonly code: ProblemCode;
  readonly param: string | null;
  readonly details: ProblemDetail[] | undefined;
  readonly headers: Record<string, string>;
  readonly externalCode: string | undefined;

  constructor(kind: ProblemKind, code: ProblemCode, message: string, extra: ProblemExtra = {}) {
    super(message, extra.cause === undefined ? undefined : { cause: extra.cause });
    this.kind = kind;
    this.status = kinds[kind].status;
    this.type = kinds[kind].type;
    this.code = code;
    this.param = extra.param ?? null;
    this.details = extra.details;
    this.headers = extra.headers ?? {};
    this.externalCode = extra.externalCode;
  }
}

/** The 400 for one member of a request; the message ends a sentence that starts with its name. */
export function invalidMember(param: string, message: string, cause?: unknown): Problem {
  return new Problem('bad_request', 'invalid_request', `\`${param}\` ${message}.`, {
    param,
    details: [{ path: param, message }],
    cause,
  });
}

/** 401 for a credential that is unknown, or that was revoked or expired since it was checked. */
export function invalidToken(): Problem {
  return new Problem('unauthenticated', 'invalid_token', 'The credential is not valid.', {
    headers: { 'www-authenticate': 'Bearer error="invalid_token"' },
  });
}

/** 429 for every limit on guesses, always the same, so that it does not reveal which accounts exist. */
export function tooManyAttempts(retryAfterSeconds: number): Problem {
  return new Problem('rate_limited', 'rate_limited', 'Too many attempts; try again later.', {
    headers: { 'retry-after': String(retryAfterSeconds) },
  });
}

/** The one error body. `details` is absent rather than empty. */
export interface ProblemBody {
  error: {
    type: string;
    /** A ProblemCode, or the code of another system (`externalCode`). */
    code: string;
    message: string;
    param: string | null;
    request_id: string;
    details?: ProblemDetail[];
  };
}

/** The two servers of the product. */
export type Surface = 'gateway' | 'agent';

/** The agent's errors carry `success: false` too. */
export function forSurface<Body extends object>(body: Body, surface: Surface): Body {
  return surface === 'agent' ? { success: false, ...body } : body;
}

export function renderProblem(problem: Problem, requestId: string): ProblemBody {
  const { type, code, externalCode, message, param, details } = problem;
  return {
    error: {
      type,
      code: externalCode ?? code,
      message,
      param,
      request_id: requestId,
      ...(details && details.length > 0 ? { details } : {}),
    },
  };
}

/** Any thrown value as a Problem. An unknown error becomes a 500 without detail; its cause is for the log. */
export function asProblem(error: unknown): Problem {
  if (error instanceof Problem) return error;
  return new Problem(
    'internal',
    'internal_error',
    'An internal error occurred; find the details in the log of the server by the request id.',
    {
      cause: error,
    },
  );
}

/**
 * Whether the same request would fail again later. Its response then has `x-should-retry: false`, because
 * client libraries otherwise retry every 409.
 */
export function isPermanent(problem: Problem): boolean {
  return problem.status < 500 && problem.status !== 429 && problem.headers['retry-after'] === undefined;
}
