// Rate limits of requests: picks the token bucket for each request and sets the RateLimit
// headers. Attempts at passwords and codes are limited separately, where they are checked.
import { networkOf } from '../kernel/http/address.ts';
import type { ContractOperation } from '../kernel/contract/operations.ts';
import type { ContractRequest } from '../kernel/contract/request.ts';
import {
  rateLimitHeaders,
  rateLimitProblem,
  type RateLimitResult,
  type RateLimiter,
  type RateLimitPolicy,
} from '../kernel/http/rate-limits.ts';
import type { Identity } from './identity.ts';

/** Counts the request. Throws 429 when a limit is reached. */
export type RequestLimiter = (
  request: ContractRequest,
  operation: ContractOperation,
  identity: Identity | null,
) => void | Promise<void>;

// One login leads to several callback requests from the user's address.
const callbacksPerLogin = 3;

/**
 * The returned function is synchronous when the limiter counts in memory, so that most requests need no
 * additional turn of the event loop.
 */
export function createRequestLimiter({
  limiter,
  limits,
  requestsPerMinute,
}: {
  limiter: RateLimiter;
  /** Requests per minute; null means unlimited. */
  limits: { user: number | null; guest: number | null; admin: number | null; login: number | null };
  /** The limit that a Bureau sets for each of its users; undefined without one. */
  requestsPerMinute(bureauId: string): number | undefined;
}): RequestLimiter {
  /** The limit of the operation itself. It counts requests by network, regardless of the identity. */
  function operationPolicy({ rateLimit }: ContractOperation): RateLimitPolicy | null {
    if (rateLimit === 'media')
      return limits.user === null ? null : { name: rateLimit, perMinute: limits.user };
    if (rateLimit === undefined || limits.login === null) return null;
    return {
      name: rateLimit,
      perMinute: rateLimit === 'callback' ? limits.login * callbacksPerLogin : limits.login,
    };
  }

  function identityPolicy(identity: Identity | null): RateLimitPolicy | null {
    // A request with an unknown credential counts as a guest's.
    const kind = identity?.kind ?? 'guest';
    const bureauLimit =
      identity?.kind === 'user' && limits.user !== null ? requestsPerMinute(identity.bureauId) : undefined;
    const perMinute = bureauLimit ?? limits[kind];
    return perMinute === null ? null : { name: kind, perMinute };
  }

  function apply(request: ContractRequest, policy: RateLimitPolicy, result: RateLimitResult): void {
    request.responseHeaders = rateLimitHeaders(policy, result);
    if (!result.isAllowed) throw rateLimitProblem(result.waitSeconds);
  }

  function count(
    request: ContractRequest,
    policy: RateLimitPolicy | null,
    key: string,
  ): void | Promise<void> {
    if (policy === null) return;
    const result = limiter.take(key, policy);
    return result instanceof Promise
      ? result.then((limitedResult) => apply(request, policy, limitedResult))
      : apply(request, policy, result);
  }

  return (request, operation, identity) => {
    const network = networkOf(request.remoteAddress);
    const networkResult = count(request, operationPolicy(operation), network);
    // A media link carries no identity, and a page with many images would exhaust a guest's limit.
    const countIdentity = () =>
      operation.rateLimit === 'media'
        ? undefined
        : count(request, identityPolicy(identity), bucketKey(identity) ?? network);
    return networkResult instanceof Promise ? networkResult.then(() => countIdentity()) : countIdentity();
  };
}

/** All tokens of a user share one bucket; guests count by network. */
function bucketKey(identity: Identity | null): string | null {
  if (identity?.kind === 'user') return identity.userId;
  return identity?.kind === 'admin' ? identity.tokenId : null;
}
