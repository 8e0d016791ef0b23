// Who may ask how often: which of the configured limits counts for a caller, and the headers that say so. It
// counts requests; guesses of passwords and codes are counted where they are made.
import { networkOf } from '../kernel/http/address.ts';
import type { Exchange, OperationFacts } from '../kernel/contract/exchange.ts';
import {
  rateLimitHeaders,
  rateLimitProblem,
  type RateLimitResult,
  type RateLimiter,
  type RateLimitPolicy,
} from '../kernel/http/rate-limits.ts';
import { Problem } from '../kernel/problem.ts';
import type { Identity } from './identity.ts';

export interface AdmissionNeeds {
  quota: RateLimiter;
  /** Requests a minute; null is no limit. */
  limits: { user: number | null; guest: number | null; admin: number | null; login: number | null };
  /** A Bureau's own limit for its users. */
  requestsPerMinute(bureauId: string): number | undefined;
}

export type Admission = (
  exchange: Exchange,
  operation: OperationFacts,
  identity: Identity | null,
) => void | Promise<void>;

// A provider sends each person here once a login, so that one address needs a few more of these.
const callbacksPerLogin = 3;

export function createAdmission({ quota, limits, requestsPerMinute }: AdmissionNeeds): Admission {
  /** The limit of the operation itself, by address, whoever calls. */
  function ownPolicy({ rateLimit }: OperationFacts): RateLimitPolicy | null {
    // Who follows a link was given it by somebody who counts; a page with many pictures is one visit.
    if (rateLimit === 'media')
      return limits.user === null ? null : { name: rateLimit, perMinute: limits.user };
    if (rateLimit === undefined || limits.login === null) return null;
    return {
      name: rateLimit,
      perMinute: rateLimit === 'callback' ? limits.login * callbacksPerLogin : limits.login,
    };
  }

  function policyOf(identity: Identity | null): RateLimitPolicy | null {
    // Who shows a credential that is nobody's is as unknown as who shows none.
    const kind = identity?.kind ?? 'guest';
    const perMinute =
      (identity?.kind === 'user' && limits.user !== null
        ? requestsPerMinute(identity.bureauId)
        : undefined) ?? limits[kind];
    return perMinute === null ? null : { name: kind, perMinute };
  }

  function apply(exchange: Exchange, policy: RateLimitPolicy, result: RateLimitResult): void {
    exchange.answerHeaders = rateLimitHeaders(policy, result);
    if (!result.isAllowed) throw rateLimitProblem(result.waitSeconds);
  }

  function count(exchange: Exchange, policy: RateLimitPolicy | null, key: string): void | Promise<void> {
    if (policy === null) return;
    const result = quota.take(key, policy);
    return result instanceof Promise
      ? result.then((late) => apply(exchange, policy, late))
      : apply(exchange, policy, result);
  }

  return (exchange, operation, identity) => {
    const network = networkOf(exchange.remoteAddress);
    const first = count(exchange, ownPolicy(operation), network);
    const countCaller = () =>
      operation.rateLimit === 'media'
        ? undefined
        : count(exchange, policyOf(identity), keyOf(identity) ?? network);
    return first instanceof Promise ? first.then(() => countCaller()) : countCaller();
  };
}

/** A user counts over all of their tokens; a guest by the network. */
function keyOf(identity: Identity | null): string | null {
  if (identity?.kind === 'user') return identity.userId;
  return identity?.kind === 'admin' ? identity.tokenId : null;
}

type AnyCall = { identity: Identity; body: unknown; query: unknown };

/**
 * The same handlers, closed to machine credentials that name another Bureau than their own in body or query. What
 * else they may not touch is hidden from them in the same way, by the handlers that find it.
 */
export function withinOwnBureau<Handlers extends Record<string, (call: never) => Promise<unknown>>>(
  handlers: Handlers,
): Handlers {
  const guarded = Object.entries(handlers).map(([operationId, handler]) => [
    operationId,
    (call: AnyCall) => {
      const own = call.identity.kind === 'admin' ? call.identity.bureauId : undefined;
      if (own !== undefined && [call.body, call.query].some((members) => namesOther(members, own))) {
        throw new Problem('not_found', 'bureau_not_found', 'There is no such Bureau.', {
          param: 'bureau_id',
        });
      }
      return handler(call as never);
    },
  ]);
  return Object.fromEntries(guarded) as Handlers;
}

function namesOther(members: unknown, own: string): boolean {
  const named =
    typeof members === 'object' && members !== null && 'bureau_id' in members ? members.bureau_id : undefined;
  return named !== undefined && named !== own;
}

/** To whom an Idempotency-Key belongs: the person, so that it outlives a token. */
export function callerOf(identity: Identity): string | null {
  if (identity.kind === 'user') return `user ${identity.userId}`;
  return identity.kind === 'admin' ? `admin ${identity.adminId}` : null;
}
