// The services of one agent by name, each with its supervisor. Built once, when the agent starts;
// duplicate names stop the start.
import type { Log } from '../../kernel/log.ts';
import { Problem } from '../../kernel/problem.ts';
import type { ServiceDefinition } from '../service-definition.ts';
import { callOperation, compileOperations, type Operation, type OperationOptions } from './operations.ts';
import {
  createSupervisor,
  supervisorLimits,
  type ServiceCommand,
  type ServiceSnapshot,
  type ServiceSupervisor,
  type SupervisorLimits,
} from './supervisor.ts';

export interface ServiceView extends ServiceSnapshot {
  name: string;
  title: string;
  actions: string[];
  commands: string[];
}

export interface ServiceCallRequest {
  service: string;
  kind: 'action' | 'command';
  name: string;
  payload: Readonly<Record<string, unknown>>;
  signal: AbortSignal;
  requestId: string;
  log: Log;
}

export interface ServiceDirectory {
  list(): ServiceView[];
  /** Throws `service_not_found`. */
  view(name: string): ServiceView;
  control(name: string, command: ServiceCommand): Promise<{ changed: boolean; service: ServiceView }>;
  /**
   * The result as JSON. Throws a Problem: `service_stopped` while the service does not run, or the
   * error of the call.
   */
  call(request: ServiceCallRequest): Promise<unknown>;
  /**
   * Starts all services except those with `autostart: false`, and waits as long as `control` does. Never
   * throws; the states of the services show failures.
   */
  start(): Promise<void>;
  /** Stops all services, the last one first. */
  close(): Promise<void>;
}

interface Entry {
  definition: ServiceDefinition;
  supervisor: ServiceSupervisor;
  actions: ReadonlyMap<string, Operation>;
  commands: ReadonlyMap<string, Operation>;
}

export interface DirectoryOptions extends OperationOptions {
  services: readonly ServiceDefinition[];
  limits?: Partial<SupervisorLimits>;
  log: Log;
}

/** Throws for an invalid or duplicate service name. */
export function createDirectory(options: DirectoryOptions): ServiceDirectory {
  const entries = createEntries(options);
  return {
    list: () => [...entries.values()].map(viewOf),
    view: (name) => viewOf(findEntry(entries, name)),
    async control(name, command) {
      const entry = findEntry(entries, name);
      const { changed: hasChanged } = await entry.supervisor.control(command);
      return { changed: hasChanged, service: viewOf(entry) };
    },
    async call({ service, kind, name, payload, ...rest }) {
      const entry = findEntry(entries, service);
      const operation = requireOperation(entry, kind, name);
      const runningService = requireRunning(entry);
      const { sandbox } = entry.definition;
      return callOperation({ operation, payload, running: runningService, sandbox, ...rest }, options);
    },
    async start() {
      await Promise.all(
        [...entries.values()]
          .filter(({ definition }) => definition.autostart !== false)
          .map(({ supervisor }) => supervisor.control('start')),
      );
    },
    async close() {
      for (const { supervisor } of [...entries.values()].reverse()) await supervisor.close();
    },
  };
}

function createEntries({ services, limits, clock, log }: DirectoryOptions): ReadonlyMap<string, Entry> {
  const entries = new Map<string, Entry>();
  for (const definition of services) {
    const { name } = definition;
    requireServiceName(name);
    if (entries.has(name)) throw new Error(`Two services claim the name "${name}".`);
    entries.set(name, {
      definition,
      supervisor: createSupervisor(definition, { limits: { ...supervisorLimits, ...limits }, clock, log }),
      actions: compileOperations(name, definition.actions),
      commands: compileOperations(name, definition.commands),
    });
  }
  return entries;
}

function findEntry(entries: ReadonlyMap<string, Entry>, name: string): Entry {
  const entry = entries.get(name);
  if (!entry)
    throw new Problem('not_found', 'service_not_found', `There is no service ${JSON.stringify(name)}.`);
  return entry;
}

function requireServiceName(name: string): void {
  if (!/^[a-z][a-z0-9-]{0,30}$/.test(name))
    throw new Error(
      `A service has the name ${JSON.stringify(name)}; a name is a lower-case letter, then ` +
        'lower-case letters, digits and hyphens, 31 at most.',
    );
}

function viewOf({ definition, supervisor, actions, commands }: Entry): ServiceView {
  return {
    name: definition.name,
    title: definition.title,
    ...supervisor.snapshot(),
    actions: [...actions.keys()],
    commands: [...commands.keys()],
  };
}

function requireOperation(entry: Entry, kind: 'action' | 'command', name: string): Operation {
  const operation = (kind === 'action' ? entry.actions : entry.commands).get(name);
  if (operation) return operation;
  throw new Problem(
    'not_found',
    kind === 'action' ? 'action_not_found' : 'command_not_found',
    `The service "${entry.definition.name}" has no ${kind} ${JSON.stringify(name)}.`,
  );
}

function requireRunning({ definition, supervisor }: Entry): AbortSignal {
  const runningService = supervisor.running();
  if (runningService !== null) return runningService;
  throw new Problem(
    'unavailable',
    'service_stopped',
    `The service "${definition.name}" is ${supervisor.snapshot().state}.`,
    { headers: { 'retry-after': '1' } },
  );
}
