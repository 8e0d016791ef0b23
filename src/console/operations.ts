// The only operations that a page may call on the agent through the console. Most are operations of the
// agent's contract under their own names; the operations of `console` combine what a page needs, for
// either variant of the agent.
import { withTimeout } from '../kernel/async.ts';
import type { AgentLink } from './agent-link.ts';
import { AgentSilentError, describeLoss } from './failures.ts';
import { listRuns } from './run-views.ts';
import { agentDeadlineMs } from './pages/shared/deadlines.ts';
import type { Overview, PluginCall, PluginView, RunView } from './pages/shared/views.ts';

type Members = Readonly<Record<string, unknown>>;
type Operation = (members: Members, signal: AbortSignal) => Promise<unknown>;

const contractOperations = [
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
  'sessions.getChanges',
  'sessions.undoRun',
  'sessions.redoRun',
  'sessions.listQueue',
  'sessions.removeQueueItem',
  'sessions.listApprovals',
  'sessions.decideApproval',
  'permissions.list',
  'permissions.remove',
  'services.controlService',
  'services.callCommand',
  'services.callAction',
] as const;

const overviewDeadlineMs = 6_000;
// The overview lists the approvals of this many sessions: enough, as a person answers them one by one.
const maxSessions = 50;

export function agentOperations(link: AgentLink): ReadonlyMap<string, Operation> {
  const operations: [string, Operation][] = [
    ...contractOperations.map((name): [string, Operation] => [name, contractOperation(link, name)]),
    ['console.overview', overviewOperation(link)],
    ['console.plugins', async (_members, signal) => ({ plugins: await listPlugins(link, signal) })],
    [
      'console.runs',
      async (members, signal): Promise<{ items: RunView[] }> => ({
        items: await listRuns(link.client, members, signal),
      }),
    ],
    ['console.callPlugin', (members, signal) => callPlugin(link, members as unknown as PluginCall, signal)],
  ];
  return new Map(
    operations.map(([name, operation]) => [
      name,
      withDeadline(operation, { ms: agentDeadlineMs(name), isRead: isRead(name) }),
    ]),
  );
}

function contractOperation({ client }: AgentLink, name: string): Operation {
  const services = client as unknown as Record<
    string,
    Record<string, (members: Members, options: { signal: AbortSignal }) => Promise<unknown>>
  >;
  const [service = '', method = ''] = name.split('.');
  return async (members, signal) => services[service]?.[method]?.(members, { signal });
}

// Answers even while the agent is unreachable: the state of the connection is part of the overview.
function overviewOperation(link: AgentLink): Operation {
  const read = withDeadline((_members, signal) => readOverview(link, signal), {
    ms: overviewDeadlineMs,
    isRead: true,
  });
  return async (members, signal) => {
    try {
      return await read(members, signal);
    } catch (error) {
      if (signal.aborted) throw error;
      link.forgetVariant();
      return { agent: describeLoss(error, link.url), approvals: [], services: [] } satisfies Overview;
    }
  };
}

async function readOverview(link: AgentLink, signal: AbortSignal): Promise<Overview> {
  const { client, url } = link;
  const [{ name, status }, variant, approvals, { services }] = await Promise.all([
    client.status.getStatus(undefined, { signal }),
    link.variant(signal),
    listApprovals(link, signal),
    client.services.listServices(undefined, { signal }),
  ]);
  return { agent: { state: 'connected', url, name, status, variant }, approvals, services };
}

async function listApprovals({ client }: AgentLink, signal: AbortSignal): Promise<Overview['approvals']> {
  const { items } = await client.sessions.list({ status: 'requires_action', limit: maxSessions }, { signal });
  const approvals = await Promise.all(
    items.map(async ({ id, title }) => {
      // The session may have been removed since. After any other error its approvals are missing until the
      // next overview, which is better than an overview without an agent.
      const page = await client.sessions
        .listApprovals({ sessionId: id, status: 'pending' }, { signal })
        .catch(() => ({ items: [] }));
      return page.items.map((approval) => ({ ...approval, sessionTitle: title }));
    }),
  );
  return approvals.flat().sort((a, b) => a.requestedAt.localeCompare(b.requestedAt));
}

async function listPlugins(link: AgentLink, signal: AbortSignal): Promise<PluginView[]> {
  const { client } = link;
  const [{ plugins }, variant] = await Promise.all([
    client.ui.listPlugins(undefined, { signal }),
    link.variant(signal),
  ]);
  const states =
    variant === 'current' ? (await client.plugins.listPlugins(undefined, { signal })).plugins : [];
  return plugins.map((plugin) => ({
    ...plugin,
    managed: states.find(({ name }) => name === plugin.name) ?? null,
  }));
}

async function callPlugin(
  link: AgentLink,
  { plugin, action, payload }: PluginCall,
  signal: AbortSignal,
): Promise<unknown> {
  return (await link.variant(signal)) === 'classic'
    ? link.classic.plugins.callAction({ pluginName: plugin, actionName: action, payload }, { signal })
    : link.client.plugins.callAction({ plugin_name: plugin, action_name: action, payload }, { signal });
}

function isRead(name: string): boolean {
  return /\.(?:list|get)/.test(name) || name === 'console.plugins' || name === 'console.runs';
}

function withDeadline(
  operation: Operation,
  { ms, isRead: isReadOnly }: { ms: number; isRead: boolean },
): Operation {
  if (ms === Infinity) return operation;
  const error = (): Error => new AgentSilentError({ afterMs: ms, isRead: isReadOnly });
  return (members, signal) =>
    withTimeout((timeoutSignal) => operation(members, timeoutSignal), { ms, signal, error });
}
