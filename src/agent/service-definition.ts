// The shape of a service of the agent: something that runs beside the requests, has a state, and offers actions to
// users and commands to the operator. The supervisor runs it; a definition only says how it starts and stops.
import type { JsonSchema } from '../kernel/contract/schema.ts';
import type { Log } from '../kernel/log.ts';
import type { ProcessResult } from './processes/index.ts';

/** What `start` gets. */
export interface ServiceStartContext {
  /** Aborted when the start is late, and when the service stops. */
  signal: AbortSignal;
  log: Log;
  /** Reports that the service has ended by itself; the supervisor starts it again. Callers can read the reason. */
  failed(reason: string): void;
}

/** What an action or a command gets beside its input. */
export interface ServiceCallContext {
  /** Aborted at the deadline and when the service stops. */
  signal: AbortSignal;
  requestId: string;
  log: Log;
  /** Ends the call with a reason that its caller may read. */
  refuse(reason: string): never;
  /** Runs a program in the workspace under the deadline of the call. Its whole process tree has ended when this resolves. */
  program(command: readonly string[], options?: { input?: string }): Promise<ProcessResult>;
}

export interface ServiceOperation {
  description: string;
  /** The JSON Schema of the payload, an object. */
  input: JsonSchema;
  run(input: never, context: ServiceCallContext): Promise<unknown>;
}

export interface ServiceDefinition {
  /** Unique among the services of the agent. */
  name: string;
  title: string;
  /** Whether it starts with the agent; true by default. */
  autostart?: boolean;
  /** Resolves once the service runs. A throw is a failed attempt. */
  start(context: ServiceStartContext): Promise<void>;
  /** Resolves once nothing of the service runs. Called after every start, also one that was late or has failed. */
  stop(): Promise<void>;
  /** Polled while the service runs; false, a throw and a late answer each count as one miss. */
  healthy?(): Promise<boolean>;
  /** Served at `/service/<name>/<action>` while the service runs. */
  actions?: Readonly<Record<string, ServiceOperation>>;
  /** Served at `/api/services/command` while the service runs. */
  commands?: Readonly<Record<string, ServiceOperation>>;
}
