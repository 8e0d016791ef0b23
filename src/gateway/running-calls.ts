// Ends what still runs for a credential that is worth nothing any more: after every change each running call is
// asked for its identity again, on every replica, so that a revocation or a pause also ends a stream.
import type { Log } from '../kernel/log.ts';
import { Problem } from '../kernel/problem.ts';
import type { RunningRequest } from '../kernel/http/server.ts';
import type { Identity } from './identity.ts';

export interface RunningCallsNeeds {
  running(): readonly RunningRequest[];
  identify(bearer: string): Promise<Identity | null>;
  log: Log;
}

/** Returns what to call after a change; calls that come while one is at work lead to one more round. */
export function createRecheck({ running, identify, log }: RunningCallsNeeds): () => void {
  let isAtWork = false;
  let isAskedAgain = false;

  async function round(): Promise<void> {
    const byCredential = new Map<string, RunningRequest[]>();
    for (const call of running())
      byCredential.set(call.authorization, [...(byCredential.get(call.authorization) ?? []), call]);
    // One after the other: a thousand streams must not fill the pool of connections.
    for (const [authorization, calls] of byCredential) {
      const refusal = await refusalOf(authorization);
      if (refusal === null) continue;
      log.info({ calls: calls.length, code: refusal.code }, 'running calls ended with their credential');
      for (const call of calls) call.end(refusal);
    }
  }

  async function refusalOf(authorization: string): Promise<Problem | null> {
    try {
      const identity = await identify(authorization.replace(/^bearer +/i, ''));
      if (identity !== null) return null;
      return new Problem('unauthenticated', 'invalid_token', 'The credential is not valid any more.', {
        headers: { 'www-authenticate': 'Bearer error="invalid_token"' },
      });
    } catch (error) {
      // A database that is away says nothing about a credential.
      return error instanceof Problem && error.status === 403 ? error : null;
    }
  }

  async function work(): Promise<void> {
    isAtWork = true;
    try {
      while (isAskedAgain) {
        isAskedAgain = false;
        await round();
      }
    } finally {
      isAtWork = false;
    }
  }

  return () => {
    isAskedAgain = true;
    if (!isAtWork) void work();
  };
}
