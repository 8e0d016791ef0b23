// Ends running calls whose credential was revoked or whose Bureau was paused. After each change every
// replica identifies the credentials of its running calls again, so a revocation also ends a stream.
import type { Log } from '../kernel/log.ts';
import { Problem } from '../kernel/problem.ts';
import type { RunningRequest } from '../kernel/http/server.ts';
import type { Identity } from './identity.ts';

/** Returns the function to call after each change. Changes during a round of checks share one more round. */
export function createCredentialRecheck({
  runningRequests,
  identify,
  log,
}: {
  runningRequests(): readonly RunningRequest[];
  identify(bearer: string): Promise<Identity | null>;
  log: Log;
}): () => void {
  let isRunning = false;
  let isPending = false;

  async function checkAll(): Promise<void> {
    const callsByToken = Map.groupBy(runningRequests(), ({ token }) => token);
    // One after another: concurrent lookups for a thousand streams would exhaust the connection pool.
    for (const [token, calls] of callsByToken) {
      const problem = await checkToken(token, identify);
      if (problem === null) continue;
      log.info({ calls: calls.length, code: problem.code }, 'ended running calls of a refused credential');
      for (const call of calls) call.end(problem);
    }
  }

  async function run(): Promise<void> {
    isRunning = true;
    try {
      while (isPending) {
        isPending = false;
        await checkAll();
      }
    } finally {
      isRunning = false;
    }
  }

  return () => {
    isPending = true;
    if (!isRunning) void run();
  };
}

/** The reason why the token is refused now, or null. */
async function checkToken(
  token: string,
  identify: (bearer: string) => Promise<Identity | null>,
): Promise<Problem | null> {
  try {
    const identity = await identify(token);
    if (identity !== null) return null;
    return new Problem('unauthenticated', 'invalid_token', 'The credential is not valid any more.', {
      headers: { 'www-authenticate': 'Bearer error="invalid_token"' },
    });
  } catch (error) {
    // 403 means that the Bureau is not active. Other errors, such as an unreachable database, do not prove
    // that the credential is invalid.
    return error instanceof Problem && error.status === 403 ? error : null;
  }
}
