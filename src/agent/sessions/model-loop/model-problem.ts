// Translates failures of model calls into Problems for the agent's callers. The gateway's message is
// passed on where the caller can act on it; addresses, tokens and the texts of exceptions never are.
import { GatewayError } from '@townhall/gateway';
import { Problem, type ProblemKind } from '../../../kernel/problem.ts';
import { startOfText } from '../../../kernel/start-of-text.ts';
import type { ProblemCode } from '../../../contract/problem-code.gen.ts';

/**
 * Any error of a model call as a Problem. Errors that are not the gateway's become
 * internal, with a cause for the log.
 */
export function modelProblem(error: unknown): Problem {
  const original = originalError(error);
  if (original instanceof Problem) return original;
  if (!GatewayError.isInstance(original))
    return new Problem('internal', 'internal_error', 'The run failed in the agent; the log has the reason.', {
      cause: error,
    });
  return connectionProblem(original) ?? statusProblem(original);
}

/** Connection failures have a code; the response may have begun with any status before them. */
function connectionProblem(error: GatewayError): Problem | null {
  switch (error.code) {
    case 'timeout':
      return new Problem('upstream_timeout', 'upstream_timeout', 'The gateway did not answer in time.', {
        cause: error,
      });
    case 'stream_truncated':
      return upstreamFailure('upstream_truncated', "The model's answer was cut off.", error);
    case 'connection_failed':
      return upstreamFailure('upstream_failed', 'The gateway cannot be reached.', error);
    default:
      return null;
  }
}

function statusProblem(error: GatewayError): Problem {
  // An error inside a stream has the status of the stream, so its type stands for the status.
  const status = error.status === 200 ? (statusOfType[error.type] ?? 502) : error.status;
  switch (status) {
    case 401:
    case 403:
      return upstreamFailure(
        'provider_credentials',
        "The gateway refuses this agent's token; give the agent a valid token.",
        error,
      );
    case 402:
      return creditProblem(error);
    case 404:
      return notFoundProblem(error);
    case 400:
    case 413:
    case 422:
      return refusalProblem(error);
    case 429:
      return transientProblem(
        'rate_limited',
        'The gateway or the model is at its limit; try again later.',
        error,
      );
    case 503:
      return transientProblem('not_ready', 'The gateway is not ready; try again in a moment.', error);
    case 504:
      return new Problem('upstream_timeout', 'upstream_timeout', 'The model was too slow.', { cause: error });
    default:
      return upstreamFailure(
        error.code === 'upstream_truncated' ? 'upstream_truncated' : 'upstream_failed',
        'The model or its gateway failed.',
        error,
      );
  }
}

function creditProblem(error: GatewayError): Problem {
  return new Problem(
    'insufficient_credits',
    'insufficient_credits',
    "The credits of this agent's account do not cover the call.",
    { cause: error, details: [...error.details] },
  );
}

// The gateway's message tells the caller what to change, such as the length of the context. The gateway has
// removed keys and addresses from it.
function refusalProblem(error: GatewayError): Problem {
  const code = refusalCodes.get(error.code) ?? 'upstream_refused';
  const message = `The model refused the request: ${startOfText(error.message, 500)}`;
  return new Problem('impossible', code, message, { cause: error });
}

function notFoundProblem(error: GatewayError): Problem {
  if (error.code !== 'model_not_found')
    return upstreamFailure(
      'upstream_refused',
      "The gateway has no such route; check the gateway's address in the agent's settings.",
      error,
    );
  return new Problem(
    'not_found',
    'model_not_found',
    'There is no model with this id that the agent can call.',
    { cause: error, param: 'model' },
  );
}

// Every provider words this error differently. The gateway's limit of bytes and the prompt limit of its local
// models are overflows too.
const overflowPatterns = [
  /context[ _-]?(?:length|window|size)/i,
  /maximum context/i,
  /too (?:long|large|many tokens)/i,
  /(?:prompt|input|request|tokens?) (?:\w+ ){0,4}exceeds?/i,
  /exceeds? (?:the )?(?:model|maximum|max|limit|token)/i,
  /token limit/i,
  /maximum (?:prompt|input) length/i,
  /longer than the \d+ bytes/i,
  /reads \d+ KiB of prompt/i,
];

/** Whether the request was refused because it was too long. */
export function isContextOverflow({ kind, message, cause }: Problem): boolean {
  if (GatewayError.isInstance(cause) && cause.status === 413) return true;
  return kind === 'impossible' && overflowPatterns.some((pattern) => pattern.test(message));
}

/** Whether the provider refused this request, so that a changed request may succeed. */
export function isRefusal({ kind, code }: Problem): boolean {
  return kind === 'impossible' && (code === 'upstream_refused' || code === 'unsupported_by_model');
}

/** Whether the refusal means that the model does not support such input at all. */
export function isUnsupportedInput({ code, message }: Problem): boolean {
  return (
    code === 'unsupported_by_model' ||
    /does not (?:take|support)|not supported|unsupported|multimodal|\bvision\b/i.test(message)
  );
}

/** The gateway's `retry-after` in milliseconds; undefined without one. */
export function retryAfterMs(error: unknown): number | undefined {
  const original = originalError(error);
  return GatewayError.isInstance(original) ? original.retryAfterMs : undefined;
}

const statusOfType: Record<string, number> = {
  invalid_request_error: 422,
  insufficient_credits: 402,
  rate_limit_error: 429,
};

const refusalCodes = new Map<string, ProblemCode>([
  ['unsupported_by_model', 'unsupported_by_model'],
  ['unsupported_reasoning_effort', 'unsupported_reasoning_effort'],
]);

function upstreamFailure(code: ProblemCode, message: string, cause: GatewayError): Problem {
  return new Problem('upstream_failed', code, message, { cause });
}

const transientKinds = {
  rate_limited: 'rate_limited',
  not_ready: 'unavailable',
} as const satisfies Partial<Record<ProblemCode, ProblemKind>>;

function transientProblem(code: keyof typeof transientKinds, message: string, error: GatewayError): Problem {
  const waitSeconds = Math.max(1, Math.ceil((error.retryAfterMs ?? 1000) / 1000));
  const headers = { 'retry-after': String(waitSeconds) };
  return new Problem(transientKinds[code], code, message, { cause: error, headers });
}

// The AI SDK wraps the last error after its retries.
function originalError(error: unknown): unknown {
  if (error instanceof Problem || typeof error !== 'object' || error === null) return error;
  return (error as { lastError?: unknown }).lastError ?? error;
}
