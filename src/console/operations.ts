// What a page may have the console ask of the agent: this list and nothing beside it. Most are operations of the agent's
// contract under their own names; those of `console` sum up what a page shows at once, alike for both variants.
import type {
  Approval,
  ManagedPluginState,
  PluginSummary,
  Run,
  RunStatus,
  ServiceState,
} from '@townhall/agent';
import { AgentError } from '@townhall/agent';
import { Problem } from '../kernel/problem.ts';
import { TokenFileError, type AgentLink, type Variant } from './agent-link.ts';

type Members = Readonly<Record<string, unknown>>;
type Operation = (members: Members, signal: AbortSignal) => Promise<unknown>;

/** What the pages ask for every other second. */
export interface Overview {
  agent: AgentView;
  /** Of all sessions that wait for a person, the newest fifty. */
  approvals: (Approval & { sessionTitle: string | null })[];
  services: ServiceState[];
}

/** `away` cannot be reached; `silent` takes connections and does not answer; `refused` does not accept the token. */
export type AgentView =
  | { state: 'here'; url: string; name: string; status: string; variant: Variant }
  | { state: 'away' | 'silent' | 'refused'; url: string; message: string };

/** A plugin as the page shows it; only the current variant says more of it than its availability. */
export type PluginView = PluginSummary & { managed: ManagedPluginState | null };

/** How a run stands, without what it wrote. */
export interface RunView {
  runId: string;
  status: RunStatus;
  reason: string | null;
  startedAt: string | null;
}

export interface PluginCall {
  plugin: string;
  action: string;
  payload: Record<string, unknown>;
}

// A process that is stopped still takes connections, so only a deadline notices it. What runs code of plugins has the
// long deadline of the link.
const deadlinesMs: Readonly<Record<string, number>> = {
  // Ends within its own deadline, with an answer that says so.
  'console.overview': Infinity,
  'services.controlService': 60_000,
  'services.callCommand': Infinity,
  'services.callAction': Infinity,
  'console.callPlugin': Infinity,
};
const defaultDeadlineMs = 15_000;
const overviewDeadlineMs = 6_000;

/** The agent took the connection and gave no answer in time. */
export class AgentSilentError extends Error {
  override name = 'AgentSilentError';
  constructor(afterMs: number, isRead: boolean) {
    super(
      `The agent did not answer within ${afterMs / 1_000} seconds.${isRead ? '' : ' It may have taken the call all the same.'}`,
    );
  }
}

// A person answers these one by one; whoever has more open questions than this sees the newest first.
const mostSessions = 50;

export function agentOperations(link: AgentLink): ReadonlyMap<string, Operation> {
  const { client, classic } = link;
  const operations = new Map<string, Operation>();
  const services = client as unknown as Record<
    string,
    Record<string, (members: Members, options: { signal: AbortSignal }) => Promise<unknown>>
  >;
  for (const name of passedOn) {
    const [service = '', method = ''] = name.split('.');
    operations.set(name, async (members, signal) => services[service]?.[method]?.(members, { signal }));
  }

  async function approvals(signal: AbortSignal): Promise<Overview['approvals']> {
    const { items } = await client.sessions.list(
      { status: 'requires_action', limit: mostSessions },
      { signal },
    );
    const asked = await Promise.all(
      items.map(async ({ id, title }) => {
        // It may have been removed since.
        const page = await client.sessions
          .listApprovals({ sessionId: id, status: 'pending' }, { signal })
          .catch(() => ({ items: [] }));
        return page.items.map((approval) => ({ ...approval, sessionTitle: title }));
      }),
    );
    return asked.flat().sort((a, b) => a.requestedAt.localeCompare(b.requestedAt));
  }

  const readOverview = withDeadline(overviewDeadlineMs, true, async (_members, signal): Promise<Overview> => {
    const [{ name, status }, variant, pending, listed] = await Promise.all([
      client.status.getStatus(undefined, { signal }),
      link.variant(signal),
      approvals(signal),
      client.services.listServices(undefined, { signal }),
    ]);
    return {
      agent: { state: 'here', url: link.url, name, status, variant },
      approvals: pending,
      services: listed.services,
    };
  });

  operations.set('console.overview', async (members, signal) => {
    try {
      return await readOverview(members, signal);
    } catch (error) {
      if (signal.aborted) throw error;
      link.forget();
      return { agent: describeLoss(error, link.url), approvals: [], services: [] };
    }
  });

  operations.set('console.plugins', async (_members, signal): Promise<{ plugins: PluginView[] }> => {
    const [{ plugins }, variant] = await Promise.all([
      client.ui.listPlugins(undefined, { signal }),
      link.variant(signal),
    ]);
    const managed =
      variant === 'current' ? (await client.plugins.listPlugins(undefined, { signal })).plugins : [];
    return {
      plugins: plugins.map((plugin) => ({
        ...plugin,
        managed: managed.find(({ name }) => name === plugin.name) ?? null,
      })),
    };
  });

  operations.set('console.runs', async (members, signal): Promise<{ items: RunView[] }> => {
    const { sessionId, runIds } = readRunsRequest(members);
    const views: (RunView | null)[] = [];
    // In groups, to leave the agent room for other callers.
    for (let at = 0; at < runIds.length; at += runsAtOnce)
      views.push(
        ...(await Promise.all(
          runIds.slice(at, at + runsAtOnce).map((runId) => findRun(sessionId, runId, signal)),
        )),
      );
    return { items: views.filter((view) => view !== null) };
  });

  // A fork has the messages of its ancestors, and the runs stay with the session that ran them.
  async function findRun(sessionId: string, runId: string, signal: AbortSignal): Promise<RunView | null> {
    let owner: string | null = sessionId;
    for (let depth = 0; owner !== null && depth < maxAncestors; depth += 1) {
      try {
        const { status, error, startedAt }: Run = await client.sessions.getRun(
          { sessionId: owner, runId },
          { signal },
        );
        // A prompt that waited at the time of the fork has no outcome here.
        return owner !== sessionId && startedAt === null
          ? null
          : { runId, status, reason: error?.message ?? null, startedAt };
      } catch (error) {
        if (!AgentError.isInstance(error) || error.code !== 'run_not_found') throw error;
      }
      owner = await parentOf(owner, signal);
    }
    return null;
  }

  async function parentOf(sessionId: string, signal: AbortSignal): Promise<string | null> {
    try {
      return (await client.sessions.get({ sessionId }, { signal })).parentSessionId;
    } catch (error) {
      // An ancestor may have been removed; its messages stay with the fork.
      if (AgentError.isInstance(error) && error.status === 404) return null;
      throw error;
    }
  }

  operations.set('console.callPlugin', async (members, signal) => {
    const { plugin, action, payload } = members as unknown as PluginCall;
    return (await link.variant(signal)) === 'classic'
      ? classic.plugins.callAction({ pluginName: plugin, actionName: action, payload }, { signal })
      : client.plugins.callAction({ plugin_name: plugin, action_name: action, payload }, { signal });
  });

  return new Map(
    [...operations].map(([name, operation]) => [
      name,
      withDeadline(deadlinesMs[name] ?? defaultDeadlineMs, isRead(name), operation),
    ]),
  );
}

function isRead(name: string): boolean {
  return /\.(?:list|get)/.test(name) || name === 'console.plugins' || name === 'console.runs';
}

function withDeadline(ms: number, onlyReads: boolean, operation: Operation): Operation {
  if (ms === Infinity) return operation;
  return async (members, signal) => {
    const deadline = AbortSignal.timeout(ms);
    try {
      return await operation(members, AbortSignal.any([signal, deadline]));
    } catch (error) {
      if (deadline.aborted && !signal.aborted) throw new AgentSilentError(ms, onlyReads);
      throw error;
    }
  };
}

const maxRuns = 100;
const runsAtOnce = 8;
const maxAncestors = 8;

function readRunsRequest({ sessionId, runIds }: Members): { sessionId: string; runIds: string[] } {
  if (typeof sessionId !== 'string') throw new TypeError('`sessionId` must be a string.');
  if (
    !Array.isArray(runIds) ||
    runIds.length > maxRuns ||
    !runIds.every((runId) => typeof runId === 'string')
  )
    throw new TypeError(`\`runIds\` must be an array of at most ${maxRuns} strings.`);
  return { sessionId, runIds };
}

const passedOn = [
  'chat.sendMessage',
  'sessions.list',
  'sessions.create',
  'sessions.get',
  'sessions.update',
  'sessions.prompt',
  'sessions.listMessages',
  'sessions.cancel',
  'sessions.compact',
  'sessions.fork',
  'sessions.listQueue',
  'sessions.removeQueueItem',
  'sessions.listApprovals',
  'sessions.decideApproval',
  'services.controlService',
  'services.callCommand',
  'services.callAction',
] as const;

/** How the agent's refusal is passed on to a page: as it is, but for what a page would take for the console's own. */
export function describeFailure(error: unknown, requestId: string): { status: number; body: object } {
  if (error instanceof AgentSilentError)
    return { status: 504, body: failure('agent_silent', error.message, requestId) };
  if (error instanceof TokenFileError)
    return { status: 502, body: failure('agent_refused', error.message, requestId) };
  if (error instanceof TypeError)
    return { status: 400, body: failure('invalid_request', error.message, requestId) };
  if (!AgentError.isInstance(error)) throw error;
  if (error.status === 0)
    return { status: 503, body: failure('agent_away', 'The agent does not answer.', requestId) };
  if (error.status === 401)
    return {
      status: 502,
      body: failure(
        'agent_refused',
        'The agent does not accept the token that the console has.',
        error.requestId ?? requestId,
      ),
    };
  const { code, message, param, details } = error;
  return {
    status: error.status < 400 ? 502 : error.status,
    body: {
      error: {
        code,
        message,
        param,
        request_id: error.requestId ?? requestId,
        ...(details.length === 0 ? {} : { details }),
      },
    },
  };
}

function failure(code: string, message: string, requestId: string): object {
  return { error: { code, message, param: null, request_id: requestId } };
}

function describeLoss(error: unknown, url: string): AgentView {
  if (error instanceof AgentSilentError) return { state: 'silent', url, message: error.message };
  if (error instanceof TokenFileError) return { state: 'refused', url, message: error.message };
  if (!AgentError.isInstance(error) && !(error instanceof Problem)) throw error;
  if (error.status === 401)
    return {
      state: 'refused',
      url,
      message:
        'The agent does not accept the token that the console has. Is the token file that of another agent?',
    };
  return { state: 'away', url, message: error.status === 0 ? 'The agent does not answer.' : error.message };
}
