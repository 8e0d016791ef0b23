// The states of runs that a session's messages name. A fork has the messages of its ancestors, but
// their runs belong to the session that executed them, so the search walks up the ancestors.
import { AgentError, type AgentClient, type Run } from '@townhall/agent';
import { runReason } from './pages/conversation/run-reason.ts';
import type { RunView } from './pages/shared/views.ts';

const maxRuns = 100;
// Few at a time, to leave the agent capacity for other callers.
const runsAtOnce = 8;
const maxAncestors = 8;

/** Skips runs that cannot be found. Throws a TypeError for a malformed request. */
export async function listRuns(
  client: AgentClient,
  request: Readonly<Record<string, unknown>>,
  signal: AbortSignal,
): Promise<RunView[]> {
  const { sessionId, runIds } = readRequest(request);
  const views: (RunView | null)[] = [];
  for (let index = 0; index < runIds.length; index += runsAtOnce) {
    const batch = runIds.slice(index, index + runsAtOnce);
    views.push(...(await Promise.all(batch.map((runId) => findRun(client, { sessionId, runId }, signal)))));
  }
  return views.filter((view) => view !== null);
}

async function findRun(
  client: AgentClient,
  { sessionId, runId }: { sessionId: string; runId: string },
  signal: AbortSignal,
): Promise<RunView | null> {
  let owner: string | null = sessionId;
  for (let depth = 0; owner !== null && depth < maxAncestors; depth += 1) {
    try {
      const run: Run = await client.sessions.getRun({ sessionId: owner, runId }, { signal });
      const { status, error, startedAt } = run;
      // A prompt that was still queued when the fork was created has no outcome in the fork.
      return owner !== sessionId && startedAt === null
        ? null
        : { runId, status, reason: runReason(error), startedAt };
    } catch (error) {
      if (!AgentError.isInstance(error) || error.status !== 404) throw error;
      // A fork still names a removed ancestor, whose runs can no longer be read.
      if (error.code === 'session_not_found' && owner !== sessionId) return null;
      if (error.code !== 'run_not_found') throw error;
    }
    owner = await findParent(client, owner, signal);
  }
  return null;
}

async function findParent(
  client: AgentClient,
  sessionId: string,
  signal: AbortSignal,
): Promise<string | null> {
  try {
    return (await client.sessions.get({ sessionId }, { signal })).parentSessionId;
  } catch (error) {
    // The ancestor was removed after the call above; its messages stay in the fork.
    if (AgentError.isInstance(error) && error.status === 404) return null;
    throw error;
  }
}

function readRequest({ sessionId, runIds }: Readonly<Record<string, unknown>>): {
  sessionId: string;
  runIds: string[];
} {
  if (typeof sessionId !== 'string') throw new TypeError('`sessionId` must be a string.');
  const isValid =
    Array.isArray(runIds) && runIds.length <= maxRuns && runIds.every((runId) => typeof runId === 'string');
  if (!isValid) throw new TypeError(`\`runIds\` must be an array of at most ${maxRuns} strings.`);
  return { sessionId, runIds };
}
