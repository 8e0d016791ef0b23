// The services of one agent by name, each behind its machine. It is built once, at start, and refuses there two claims
// on one name.
import type { Clock } from '../../kernel/clock.ts';
import type { Log } from '../../kernel/log.ts';
import { Problem } from '../../kernel/problem.ts';
import type { ServiceDefinition } from './definition.ts';
import {
  createMachine,
  machineLimits,
  type MachineLimits,
  type ServiceCommand,
  type ServiceMachine,
  type ServiceSnapshot,
} from './machine.ts';
import { callOperation, compileOperations, type Operation, type OperationNeeds } from './operations.ts';

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
  /** The result; throws a Problem when there is none, `service_stopped` while the service does not run. */
  call(request: ServiceCallRequest): Promise<unknown>;
  /** Starts those that start with the agent, and waits as long as a control would. One that fails is `failed`. */
  start(): Promise<void>;
  /** Ends all of them, the last one first. */
  close(): Promise<void>;
}

export interface DirectoryNeeds extends OperationNeeds {
  services: readonly ServiceDefinition[];
  limits?: Partial<MachineLimits>;
  clock: Clock;
  log: Log;
}

interface Entry {
  definition: ServiceDefinition;
  machine: ServiceMachine;
  actions: ReadonlyMap<string, Operation>;
  commands: ReadonlyMap<string, Operation>;
}

export function createDirectory(needs: DirectoryNeeds): ServiceDirectory {
  const limits = { ...machineLimits, ...needs.limits };
  const entries = new Map<string, Entry>();
  for (const definition of needs.services) {
    const { name } = definition;
    if (!/^[a-z][a-z0-9-]{0,30}$/.test(name))
      throw new Error(
        `A service has the name ${JSON.stringify(name)}; names are lower-case letters, digits and hyphens, 31 at most.`,
      );
    if (entries.has(name)) throw new Error(`Two services claim the name "${name}".`);
    entries.set(name, {
      definition,
      machine: createMachine(definition, { limits, clock: needs.clock, log: needs.log }),
      actions: compileOperations(name, definition.actions),
      commands: compileOperations(name, definition.commands),
    });
  }

  function find(name: string): Entry {
    const entry = entries.get(name);
    if (!entry)
      throw new Problem('not_found', 'service_not_found', `There is no service ${JSON.stringify(name)}.`);
    return entry;
  }

  const viewOf = ({ definition, machine, actions, commands }: Entry): ServiceView => ({
    name: definition.name,
    title: definition.title,
    ...machine.snapshot(),
    actions: [...actions.keys()],
    commands: [...commands.keys()],
  });

  return {
    list: () => [...entries.values()].map(viewOf),
    view: (name) => viewOf(find(name)),
    async control(name, command) {
      const entry = find(name);
      const { changed } = await entry.machine.control(command);
      return { changed, service: viewOf(entry) };
    },
    async call({ service, kind, name, payload, ...rest }) {
      const entry = find(service);
      const operation = (kind === 'action' ? entry.actions : entry.commands).get(name);
      if (!operation) {
        const code = kind === 'action' ? 'action_not_found' : 'command_not_found';
        throw new Problem(
          'not_found',
          code,
          `The service "${service}" has no ${kind} ${JSON.stringify(name)}.`,
        );
      }
      const running = entry.machine.running();
      if (running === null) {
        throw new Problem(
          'unavailable',
          'service_stopped',
          `The service "${service}" is ${entry.machine.snapshot().state}.`,
          { headers: { 'retry-after': '1' } },
        );
      }
      return callOperation({ operation, payload, running, ...rest }, needs);
    },
    async start() {
      await Promise.all(
        [...entries.values()]
          .filter(({ definition }) => definition.autostart !== false)
          .map(({ machine }) => machine.control('start')),
      );
    },
    async close() {
      for (const { machine } of [...entries.values()].reverse()) await machine.close();
    },
  };
}
