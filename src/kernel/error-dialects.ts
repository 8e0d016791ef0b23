// Error types as the client libraries of other interfaces map them to their own classes. Only `type` differs from our
// one error shape, and `type: "error"` stands beside it where a library insists on that.
import type { Problem, ProblemBody } from './problem.ts';

/** The values of `x-error-types` in the contract. */
export const errorDialects = ['anthropic', 'ai-sdk-gateway'] as const;
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

/** The body with the dialect's type; without a dialect as it is. */
export function toErrorDialect(
  body: ProblemBody,
  problem: Pick<Problem, 'status' | 'code'>,
  dialect: ErrorDialect | undefined,
): ProblemBody & { type?: 'error' } {
  if (dialect === undefined) return body;
  const isModel = dialect === 'ai-sdk-gateway' && problem.code === 'model_not_found';
  const types = dialect === 'anthropic' ? anthropicTypes : gatewayTypes;
  const type = isModel ? 'model_not_found' : (types[problem.status] ?? 'invalid_request_error');
  return { ...(dialect === 'anthropic' ? { type: 'error' as const } : {}), error: { ...body.error, type } };
}
