// What a project writes to add a service: plain values with a mark, so that they are known for what they are
// wherever they come from. Nothing is checked here; the server does at its start, and can then say where.
import type { Sql, Tx } from '../../kernel/data/database.ts';
import type { JsonSchema } from '../../kernel/contract/schema.ts';
import type { Storage } from '../../kernel/data/storage.ts';
import type { Identity } from '../identity.ts';

/** The part of the log that an action writes to; its lines carry the request, the service and the action. */
export interface ActionLog {
  debug(fields: object, message: string): void;
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

export interface ActionUser {
  userId: string;
  email: string | null;
  displayName: string | null;
  metadata: Record<string, unknown>;
}

export interface ActionBureau {
  bureauId: string;
  name: string;
  serverUrl: string;
  metadata: Record<string, unknown>;
}

/**
 * The declared database: `sql` of postgres.js, a tagged template whose values are parameters. Each statement may take
 * five seconds. What the project keeps belongs into its own schema, `project`.
 */
export type ProjectDatabase = Sql & {
  /** Commits when the work resolves and rolls back when it throws. Only the given `tx` may be used within. */
  begin<T>(work: (tx: Tx) => Promise<T>): Promise<T>;
};

export interface JobOptions {
  /** While a job of this name and key waits or runs, another is not taken. */
  key?: string;
  delaySeconds?: number;
  /** The job exists if and only if this transaction commits. */
  tx?: Tx;
}

/** The declared queue. */
export interface ProjectQueue {
  /** Puts a job of this service in the queue; its id, or null when one with its key is there already. */
  enqueue(job: string, data: object, options?: JobOptions): Promise<string | null>;
}

/** The declared storage. Keys are of `[A-Za-z0-9_-]`, 128 at most. */
export interface ProjectStorage extends Storage {
  /** The address of what is kept under the key, below `public_url_prefix`. */
  url(key: string): string;
}

export type ProjectResource = ProjectDatabase | ProjectQueue | ProjectStorage;
type ProjectResources = Readonly<Record<string, ProjectResource>>;

/** What an action is run with. */
export interface ActionCall<Input = Record<string, unknown>, Resources = ProjectResources> {
  /** Fits the action's `input`. */
  input: Input;
  /** Who calls, by the bearer credential alone. */
  identity: Pick<Identity, 'kind'> & Identity;
  /** The user and its Bureau; null for guests and administrators. */
  user: ActionUser | null;
  bureau: ActionBureau | null;
  /** The declared keys and no others, as they are now; an optional one may be undefined. */
  env: Readonly<Record<string, string | undefined>>;
  /** The database, the queue and the storage that the project declares, each under its binding. */
  resources: Resources;
  /** Aborted when the client is gone, at the deadline, and when the server stops. */
  signal: AbortSignal;
  log: ActionLog;
  /**
   * Charges the user who calls. The credits are held at once and taken when the action has answered; one that fails
   * costs nothing. Rejects when they are not there, which ends the action with 402 unless it catches that. Nothing is
   * taken of administrators. The user reads the reason in the history of credits.
   */
  charge(credits: number | bigint, reason: string): Promise<void>;
}

export interface ActionDefinition {
  method: 'GET' | 'POST';
  /** Who may call it: users when absent, anyone when empty. */
  identities?: readonly ('guest' | 'user' | 'admin')[];
  /** JSON Schema of an object. Without it the action takes no input. A GET takes its input from the query. */
  input?: JsonSchema;
  /** JSON Schema of the answer; without it the answer is any JSON value. */
  output?: JsonSchema;
  /**
   * Gives the answer. A thrown ActionError is told to the caller; whatever else is thrown is 500 and only in the
   * log. A method, so that its parameter may be narrowed: `run({ input }: ActionCall<{ text: string }>)`.
   */
  run(call: ActionCall): unknown;
}

/** What a job is run with. */
export interface JobCall<Data = Record<string, unknown>, Resources = ProjectResources> {
  jobId: string;
  data: Data;
  env: Readonly<Record<string, string | undefined>>;
  resources: Resources;
  /** Aborted when the attempt has taken too long, and when the server stops before it is done. */
  signal: AbortSignal;
  log: ActionLog;
}

/** Work that outlives a request. It is run until it has returned once, and so must bear being run again. */
export interface JobDefinition {
  /** Further attempts after a failed one; 2 when absent. */
  retries?: number;
  /** An attempt that takes longer is aborted and counts as failed; 900 when absent. */
  timeoutSeconds?: number;
  /** At once in one server; 1 when absent. */
  concurrency?: number;
  run(call: JobCall): unknown;
}

export interface ServiceRequirement {
  key: string;
  description: string;
  /** Whether no action can run without it; true when absent. */
  required?: boolean;
  /** False when the value may be shown and logged. */
  secret?: boolean;
}

export interface ServiceDefinition {
  /** The first part of its paths, `/v1/{id}/{action}`. */
  id: string;
  /** The name for people. */
  name: string;
  env?: readonly ServiceRequirement[];
  /** By id; an id may have two parts, such as `import/start`. */
  actions: Readonly<Record<string, ActionDefinition>>;
  /** By name; the project has to declare a queue. */
  jobs?: Readonly<Record<string, JobDefinition>>;
}

// Shared over copies of this module, where `instanceof` would not hold.
const serviceMark = Symbol.for('townhall.service');
const errorMark = Symbol.for('townhall.action-error');

/** A service for the `entry` of a project to export. */
export function defineService(definition: ServiceDefinition): ServiceDefinition {
  return Object.defineProperty({ ...definition }, serviceMark, { value: true });
}

export function isService(value: unknown): value is ServiceDefinition {
  return typeof value === 'object' && value !== null && serviceMark in value;
}

const kinds = {
  400: 'bad_request',
  403: 'forbidden',
  404: 'not_found',
  409: 'conflict',
  410: 'gone',
  422: 'impossible',
} as const;

/** The statuses with which an action may refuse. */
export type ActionStatus = keyof typeof kinds;

/** A refusal of an action, told to the caller as it is: its message is for them, its code for their program. */
export class ActionError extends Error {
  override readonly name = 'ActionError';
  readonly status: ActionStatus;
  readonly code: `service_${string}`;

  constructor(status: ActionStatus, code: `service_${string}`, message: string) {
    super(message);
    this.status = status;
    this.code = code;
    Object.defineProperty(this, errorMark, { value: true });
  }
}

/** The kind of problem and the code of a refusal, or null when it is none that may be told. */
export function readActionError(
  thrown: unknown,
): { kind: (typeof kinds)[ActionStatus]; code: string; message: string } | null {
  if (!(thrown instanceof Error) || !(errorMark in thrown)) return null;
  const { status, code, message } = thrown as unknown as ActionError;
  const kind = Object.hasOwn(kinds, status) ? kinds[status] : undefined;
  return kind !== undefined && /^service_[a-z0-9_]{1,64}$/.test(code) ? { kind, code, message } : null;
}
