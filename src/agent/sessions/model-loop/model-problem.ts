// What a failure on the way to the model is to the caller of this agent. The gateway's own words are passed on
// where the caller can act on them; addresses, tokens and the texts of exceptions never are.
import { GatewayError } from '@townhall/gateway';
import { Problem, type ProblemKind } from '../../../kernel/problem.ts';
import type { ProblemCode } from '../../../contract/problem-code.gen.ts';

/** Any throw of a turn as a Problem; what is none of the gateway's is an internal error with its cause for the log. */
export function modelProblem(thrown: unknown): Problem {
  if (thrown instanceof Problem) return thrown;
  const error = firstOf(thrown);
  if (error instanceof Problem) return error;
  if (!GatewayError.isInstance(error)) {
    return new Problem('internal', 'internal_error', 'The run failed on our side; the log says why.', {
      cause: thrown,
    });
  }
  // What went wrong on the way is told by its code alone; a status may have come before it.
  const lost = onTheWay(error);
  if (lost) return lost;
  // An error told inside of a stream has the status of the stream, so its type has to stand for the status.
  const status = error.status === 200 ? (statusOfType[error.type] ?? 502) : error.status;
  const extra = { cause: error };
  switch (status) {
    case 401:
    case 403:
      return new Problem(
        'upstream_failed',
        'provider_credentials',
        "The gateway refuses this agent's token; give the agent another one.",
        extra,
      );
    case 402:
      return new Problem(
        'insufficient_credits',
        'insufficient_credits',
        "The credits of this agent's account do not cover the call.",
        {
          ...extra,
          details: [...error.details],
        },
      );
    case 404:
      return error.code === 'model_not_found'
        ? new Problem(
            'not_found',
            'model_not_found',
            'There is no model with this id that the agent can call.',
            { ...extra, param: 'model' },
          )
        : failed(
            'upstream_refused',
            'The gateway has no such route; is the address right that the agent was given?',
            error,
          );
    case 400:
    case 413:
    case 422:
      return new Problem(
        'impossible',
        refusalCodes.get(error.code) ?? 'upstream_refused',
        refusalText(error),
        extra,
      );
    case 429:
      return passing(
        'rate_limited',
        'rate_limited',
        'The gateway or the model is at its limit; try again later.',
        error,
      );
    case 503:
      return passing('unavailable', 'not_ready', 'The gateway is not ready; try again in a moment.', error);
    case 504:
      return new Problem('upstream_timeout', 'upstream_timeout', 'The model was too slow.', extra);
    default:
      return failed(
        error.code === 'upstream_truncated' ? 'upstream_truncated' : 'upstream_failed',
        'The model or its gateway failed.',
        error,
      );
  }
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

function onTheWay(error: GatewayError): Problem | null {
  switch (error.code) {
    case 'timeout':
      return new Problem('upstream_timeout', 'upstream_timeout', 'The gateway did not answer in time.', {
        cause: error,
      });
    case 'stream_truncated':
      return failed('upstream_truncated', "The model's answer was cut off.", error);
    case 'connection_failed':
      return failed('upstream_failed', 'The gateway cannot be reached.', error);
    default:
      return null;
  }
}

function failed(code: ProblemCode, message: string, cause: GatewayError): Problem {
  return new Problem('upstream_failed', code, message, { cause });
}

function passing(kind: ProblemKind, code: ProblemCode, message: string, error: GatewayError): Problem {
  const waitSeconds = Math.max(1, Math.ceil((error.retryAfterMs ?? 1000) / 1000));
  return new Problem(kind, code, message, { cause: error, headers: { 'retry-after': String(waitSeconds) } });
}

// A refusal says what to change, such as a context that is too long; the gateway has taken keys and addresses out.
function refusalText(error: GatewayError): string {
  return `The model refused the request: ${error.message.slice(0, 500)}`;
}

// After its retries the AI SDK throws an error of its own around the last one.
function firstOf(thrown: unknown): unknown {
  const inner =
    typeof thrown === 'object' && thrown !== null ? (thrown as { lastError?: unknown }).lastError : undefined;
  return inner ?? thrown;
}
