// Reads the answer of a call and converts its failures into the client's error class.

import { ClientError, type Failure, describeMediaType } from './client-error.ts';
import type { AbortScope } from './abort-scope.ts';

/** Constructs the client's own error. */
export type Fail = (failure: Failure) => ClientError;

/**
 * JSON as its value, media and files as a Blob, 204 as undefined. Any other media type is
 * `invalid_response`.
 */
export async function readAnswer(response: Response, fail: Fail): Promise<unknown> {
  const mediaType = describeMediaType(response);
  if (response.status === 204) return undefined;
  // An uploaded file may have any media type, even that of JSON.
  if (response.headers.get('content-disposition')?.startsWith('attachment') === true) return response.blob();
  if (mediaType === 'application/json' || mediaType.endsWith('+json'))
    return parseJson(await response.text(), response, fail);
  if (/^(audio|image|video)\/|^application\/octet-stream$/.test(mediaType)) return response.blob();
  throw fail({
    ...originOf(response),
    code: 'invalid_response',
    message: `The server answered with ${mediaType} where JSON was expected; is the base address right?`,
  });
}

export function parseJson(text: string, response: Response, fail: Fail): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw fail({
      ...originOf(response),
      code: 'invalid_response',
      message: 'The server sent something that is not JSON.',
      cause,
    });
  }
}

/** The members of a failure that identify the answer. */
export function originOf(response: Response): Pick<Failure, 'status' | 'requestId' | 'headers'> {
  const headers = Object.fromEntries(response.headers);
  return { status: response.status, requestId: headers['x-request-id'], headers };
}

export interface FailedCall {
  scope: AbortScope;
  caller: AbortSignal | undefined;
  /** Undefined when no headers arrived. */
  response: Response | undefined;
  fail: Fail;
}

/**
 * The error with which a call rejects: the reason of the caller's signal, or one of the client's own class.
 */
export function callError(error: unknown, { scope, caller, response, fail }: FailedCall): unknown {
  if (scope.end === 'aborted') return caller?.reason;
  const status = response?.status;
  const requestId = response?.headers.get('x-request-id') ?? undefined;
  if (scope.end === 'late' || isFetchTimeout(error)) {
    const message = 'The server did not answer in time.';
    return fail({ status, requestId, code: 'timeout', message, cause: error });
  }
  if (error instanceof ClientError) return error;
  if (response === undefined) {
    const message = 'The server could not be reached.';
    return fail({ code: 'connection_failed', message, retryable: true, cause: error });
  }
  const message = 'The connection broke in the middle of the answer.';
  return fail({ status, requestId, code: 'connection_failed', message, cause: error });
}

// Node's fetch times out after five minutes without headers or without a byte.
function isFetchTimeout(error: unknown): boolean {
  const code = error instanceof Error ? (error.cause as { code?: unknown } | undefined)?.code : undefined;
  return code === 'UND_ERR_HEADERS_TIMEOUT' || code === 'UND_ERR_BODY_TIMEOUT';
}
