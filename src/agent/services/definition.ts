// The shape of a service of the agent: something that runs beside the requests, has a state, and offers actions to
// its users and commands to its operator. The machine keeps it; a service only says how it starts and how it ends.
import type { JsonSchema } from '../../kernel/contract/schema.ts';
import type { Log } from '../../kernel/log.ts';
import type { ProgramResult } from '../processes/index.ts';

/** What a start gets. */
export interface ServiceRun {
  /** Aborted when the start is late, and when the service is to stop. */
  signal: AbortSignal;
  log: Log;
  /** Says that it has ended by itself; the machine starts it again. The reason is for whoever holds the token. */
  failed(reason: string): void;
}

/** What an action or a command gets beside its input. */
export interface ServiceCall {
  /** Aborted at the deadline and when the service stops. */
  signal: AbortSignal;
  requestId: string;
  log: Log;
  /** Ends the call with a reason that its caller may read. */
  refuse(reason: string): never;
  /** Runs a program in the workspace under the deadline of the call; nothing of it is left when this resolves. */
  program(command: readonly string[], options?: { input?: string }): Promise<ProgramResult>;
}

export interface ServiceOperation {
  description: string;
  /** The JSON Schema of the payload, an object. */
  input: JsonSchema;
  run(input: never, call: ServiceCall): Promise<unknown>;
}

export interface ServiceDefinition {
  /** Unique among the services of the agent. */
  name: string;
  title: string;
  /** Whether it starts with the agent; it does unless said. */
  autostart?: boolean;
  /** Resolves once it runs. A throw is an attempt that failed. */
  start(run: ServiceRun): Promise<void>;
  /** Resolves once nothing of it runs; called after a start that went well, and after one that was late or has failed. */
  stop(): Promise<void>;
  /** Asked now and then while it runs; false, a throw and taking too long count as one miss. */
  healthy?(): Promise<boolean>;
  /** Called at `/service/<name>/<action>`, while it runs. */
  actions?: Readonly<Record<string, ServiceOperation>>;
  /** Called at `/api/services/command`, while it runs. */
  commands?: Readonly<Record<string, ServiceOperation>>;
}
