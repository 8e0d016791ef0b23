// The type of a service of the agent: a long-running part with a state, actions for users and
// commands for the operator. The supervisor runs it; a definition only knows how to start and stop
// it.
import type { JsonSchema } from '../kernel/contract/schema.ts';
import type { Log } from '../kernel/log.ts';
import type { ProcessResult, SandboxSettings } from './processes/index.ts';

/** The argument of `start`. */
export interface ServiceStartContext {
  /** Aborted at the deadline of the start, and when the service stops. */
  signal: AbortSignal;
  log: Log;
  /**
   * Reports that the service has ended by itself; the supervisor restarts it. Callers can read the
   * reason.
   */
  failed(reason: string): void;
}

/** The second argument of an action or a command. */
export interface ServiceCallContext {
  /** Aborted at the deadline, when the service stops, and when the caller disconnects. */
  signal: AbortSignal;
  requestId: string;
  log: Log;
  /** Ends the call with a reason that its caller may read. */
  refuse(reason: string): never;
  /**
   * Runs a program in the workspace under the deadline of the call. Its whole
   * process tree has ended when this resolves.
   */
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
  /**
   * The sandbox of the programs that its actions and commands run; by default they see the
   * workspace and have no network.
   */
  sandbox?: SandboxSettings;
  /** Resolves once the service runs. A rejection counts as a failed attempt. */
  start(context: ServiceStartContext): Promise<void>;
  /**
   * Resolves once every part of the service has ended. Called after every start, including a late
   * or failed one.
   */
  stop(): Promise<void>;
  /**
   * The supervisor polls it while the service runs; false, an exception and a timeout each count as one
   * miss.
   */
  healthy?(): Promise<boolean>;
  /** Actions at `/service/<name>/<action>`; they answer only while the service runs. */
  actions?: Readonly<Record<string, ServiceOperation>>;
  /** Commands at `/api/services/command`; they answer only while the service runs. */
  commands?: Readonly<Record<string, ServiceOperation>>;
}
