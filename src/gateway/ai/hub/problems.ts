// Problems that several formats, handlers and providers throw.
import { Problem } from '../../../kernel/problem.ts';

/** A 422 for a request member that the model does not support. The model's fallbacks are tried next. */
export function unsupportedMember(param: string, message: string): Problem {
  return new Problem('impossible', 'unsupported_by_model', message, { param });
}

/** A 502 for a provider's answer that the gateway cannot use. */
export function upstreamFailed(message: string, cause?: unknown): Problem {
  return new Problem('upstream_failed', 'upstream_failed', message, { cause });
}

/** A 502 for a provider's answer that is not in the requested format. */
export function wrongFormat(): Problem {
  return upstreamFailed('The model provider sent an answer that is not in the requested format.');
}

/** A 502 for an answer that the provider cut off. */
export function truncatedByProvider(): Problem {
  return new Problem(
    'upstream_failed',
    'upstream_truncated',
    'The model provider closed the connection before its answer was complete.',
  );
}
