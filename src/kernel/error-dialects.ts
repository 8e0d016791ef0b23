// Translates errors for the client libraries of other APIs, which map them to their own error classes.
// Anthropic's library and the AI SDK accept our error shape with another `type`; Anthropic's also needs
// `type: "error"` beside it. Google's APIs have their own error shape.
import type { Problem, ProblemBody } from './problem.ts';

/** The values of `x-error-types` in the contract. */
export const errorDialects = ['anthropic', 'ai-sdk-gateway', 'google'] as const;
export type ErrorDialect = (typeof errorDialects)[number];

// https://docs.claude.com/en/api/errors
const anthropicTypes: Readonly<Record<number, string>> = {
  401: 'authentication_error',
  402: 'billing_error',
  403: 'permission_error',
  404: 'not_found_error',
  413: 'request_too_large',
  429: 'rate_limit_error',
  500: 'api_error',
  502: 'api_error',
  503: 'overloaded_error',
  504: 'timeout_error',
};

// The cases of createGatewayErrorFromResponse in @ai-sdk/gateway 3 and 4.
const gatewayTypes: Readonly<Record<number, string>> = {
  401: 'authentication_error',
  403: 'forbidden',
  404: 'not_found',
  429: 'rate_limit_exceeded',
  500: 'internal_server_error',
  502: 'failed_dependency',
  503: 'internal_server_error',
  504: 'failed_dependency',
};

// https://cloud.google.com/apis/design/errors
const googleStatuses: Readonly<Record<number, string>> = {
  401: 'UNAUTHENTICATED',
  402: 'RESOURCE_EXHAUSTED',
  403: 'PERMISSION_DENIED',
  404: 'NOT_FOUND',
  405: 'UNIMPLEMENTED',
  409: 'ABORTED',
  429: 'RESOURCE_EXHAUSTED',
  500: 'INTERNAL',
  502: 'UNAVAILABLE',
  503: 'UNAVAILABLE',
  504: 'DEADLINE_EXCEEDED',
};

/**
 * An error in the shape of Google's APIs. `details` keeps our code, which is more specific than the status.
 */
export interface GoogleErrorBody {
  error: {
    code: number;
    message: string;
    status: string;
    details: { '@type': string; reason: string; domain: string; metadata: Record<string, string> }[];
  };
}

export type DialectBody = (ProblemBody & { type?: 'error' }) | GoogleErrorBody;

/** The body in the dialect; unchanged without a dialect. */
export function toErrorDialect(
  body: ProblemBody,
  problem: Pick<Problem, 'status' | 'code'>,
  dialect: ErrorDialect | undefined,
): DialectBody {
  if (dialect === undefined) return body;
  if (dialect === 'google') return toGoogleError(body, problem.status);
  return withTypes(body, problem, dialect);
}

/** The body with the dialect's type. */
export function withTypes(
  body: ProblemBody,
  problem: Pick<Problem, 'status' | 'code'>,
  dialect: Exclude<ErrorDialect, 'google'>,
): ProblemBody & { type?: 'error' } {
  const isModel = dialect === 'ai-sdk-gateway' && problem.code === 'model_not_found';
  const types = dialect === 'anthropic' ? anthropicTypes : gatewayTypes;
  const type = isModel ? 'model_not_found' : (types[problem.status] ?? 'invalid_request_error');
  return { ...(dialect === 'anthropic' ? { type: 'error' as const } : {}), error: { ...body.error, type } };
}

function toGoogleError({ error }: ProblemBody, status: number): GoogleErrorBody {
  const { code, message, param, request_id: requestId } = error;
  return {
    error: {
      code: status,
      message,
      status: googleStatuses[status] ?? 'INVALID_ARGUMENT',
      details: [
        {
          '@type': 'type.googleapis.com/google.rpc.ErrorInfo',
          reason: code,
          domain: 'townhall',
          metadata: { request_id: requestId, ...(param === null ? {} : { param }) },
        },
      ],
    },
  };
}
