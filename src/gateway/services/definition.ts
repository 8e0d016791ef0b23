// The API with which a project defines a service: plain objects marked by a symbol.
// The server validates them at startup, when it knows the file for its error messages.
import type { Sql, Tx } from '../../kernel/data/database.ts';
import type { InputOf } from '../../kernel/contract/schema-type.ts';
import type { JsonSchema } from '../../kernel/contract/schema.ts';
import type { Storage } from '../../kernel/storage/storage.ts';
import type { Identity } from '../identity.ts';

/** The log of an action. Lines contain the request ID, the service and the action. */
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
 * The declared database: `sql` of postgres.js, a tagged template whose values are parameters. A
 * statement is canceled after five seconds. Create the project's tables in its own schema,
 * `project`.
 */
export type ProjectDatabase = Sql & {
  /** Commits when the work resolves and rolls back when it throws. Use only `tx` within. */
  begin<T>(work: (tx: Tx) => Promise<T>): Promise<T>;
};

export interface JobOptions {
  /** While a job with this name and key is queued or running, `enqueue` adds no other job with them. */
  key?: string;
  delaySeconds?: number;
  /** The job exists if and only if this transaction commits. */
  tx?: Tx;
}

/** The declared queue. */
export interface ProjectQueue {
  /**
   * Queues a job of this service. Resolves with its ID, or null while a job with the same key
   * exists.
   */
  enqueue(job: string, data: object, options?: JobOptions): Promise<string | null>;
}

/** The declared storage. A key has 1 to 128 characters of `[A-Za-z0-9_-]`. */
export interface ProjectStorage extends Storage {
  /** The public address of the file, below `public_url_prefix`. */
  url(key: string): string;
}

export type ProjectResource = ProjectDatabase | ProjectQueue | ProjectStorage;
type ProjectResources = Readonly<Record<string, ProjectResource>>;

/** The argument of an action's `run`. */
export interface ActionCall<Input = Record<string, unknown>, Resources = ProjectResources> {
  /** Valid against the action's `input` schema. */
  input: Input;
  /** The caller's identity, decided by the bearer token alone. */
  identity: Pick<Identity, 'kind'> & Identity;
  /** The user and its Bureau; null for guests and administrators. */
  user: ActionUser | null;
  bureau: ActionBureau | null;
  /** Current values of the declared keys; the value of an optional key may be undefined. */
  env: Readonly<Record<string, string | undefined>>;
  /** The declared database, queue and storage, each under its binding. */
  resources: Resources;
  /** Aborted when the client disconnects, at the timeout, and when the server stops. */
  signal: AbortSignal;
  log: ActionLog;
  /**
   * Charges the calling user. The credits are held at once and charged after the action has answered; a
   * failed action costs nothing. Rejects when the balance is too low; the caller gets 402 unless the
   * action catches the error. Administrators are not charged. The user sees the reason in the credit
   * history.
   */
  charge(credits: number | bigint, reason: string): Promise<void>;
}

export interface ActionDefinition {
  method: 'GET' | 'POST';
  /** The allowed callers: only users by default, anyone when the list is empty. */
  identities?: readonly ('guest' | 'user' | 'admin')[];
  /**
   * JSON Schema of an object. Without it the action accepts no input. A GET reads its input from the
   * query.
   */
  input?: JsonSchema;
  /** JSON Schema of the answer; without it the answer is any JSON value. */
  output?: JsonSchema;
  /**
   * Returns the answer. The caller sees a thrown ActionError. Any other error becomes a 500, and its details
   * appear only in the log. Declared as a method, so that an implementation may narrow its parameter's type.
   */
  run(call: ActionCall): unknown;
}

/** The argument of a job's `run`. */
export interface JobCall<Data = Record<string, unknown>, Resources = ProjectResources> {
  jobId: string;
  data: Data;
  env: Readonly<Record<string, string | undefined>>;
  resources: Resources;
  /** Aborted at the attempt's timeout and when the server stops. */
  signal: AbortSignal;
  log: ActionLog;
}

/** Background work. A job may run several times until one attempt succeeds, so it must be safe to repeat. */
export interface JobDefinition {
  /** Attempts after the first one has failed; 2 when absent. */
  retries?: number;
  /** An attempt that takes longer is aborted and counts as failed; 900 when absent. */
  timeoutSeconds?: number;
  /** Concurrent jobs in one server; 1 when absent. */
  concurrency?: number;
  run(call: JobCall): unknown;
}

export interface ServiceRequirement {
  key: string;
  description: string;
  /** Whether actions cannot run without it; true when absent. */
  required?: boolean;
  /** False when the value may be shown and logged. */
  secret?: boolean;
}

export interface ServiceDefinition {
  /** The first part of its paths, `/v1/{id}/{action}`. */
  id: string;
  /** Display name. */
  name: string;
  env?: readonly ServiceRequirement[];
  /** The actions by id; an id may have two parts, such as `import/start`. */
  actions: Readonly<Record<string, ActionDefinition>>;
  /** The jobs by name. Needs a declared queue. */
  jobs?: Readonly<Record<string, JobDefinition>>;
}

// Symbol.for also identifies values from another copy of this module, for which `instanceof` would fail.
const serviceMark = Symbol.for('townhall.service');
const errorMark = Symbol.for('townhall.action-error');

/** The input of an action without a schema has no known members. */
type TypedInput<Schema> = unknown extends Schema ? Record<string, unknown> : InputOf<Schema>;

type TypedAction<Schema> = Omit<ActionDefinition, 'input' | 'run'> & {
  input?: Schema & JsonSchema;
  run(call: ActionCall<TypedInput<Schema>>): unknown;
};

/**
 * Defines a service, which the `entry` of a project exports. The type of `input` in an action's `run` follows
 * from its `input` schema (`InputOf`); you may state another type, as in
 * `run({ input }: ActionCall<{ text: string }>)`.
 */
export function defineService<const Schemas extends Record<string, unknown>>(
  definition: Omit<ServiceDefinition, 'actions'> & {
    actions: { [Name in keyof Schemas]: TypedAction<Schemas[Name]> };
  },
): ServiceDefinition;
export function defineService(definition: ServiceDefinition): ServiceDefinition;
export function defineService(definition: ServiceDefinition): ServiceDefinition {
  return Object.defineProperty({ ...definition }, serviceMark, { value: true });
}

export function isService(value: unknown): value is ServiceDefinition {
  return typeof value === 'object' && value !== null && serviceMark in value;
}

const problemKinds = {
  400: 'bad_request',
  403: 'forbidden',
  404: 'not_found',
  409: 'conflict',
  410: 'gone',
  422: 'impossible',
} as const;

/** The statuses of an ActionError. */
export type ActionStatus = keyof typeof problemKinds;

/** An error that the caller sees: the message is for people, the code for programs. */
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

/**
 * The kind, code and message of an ActionError; null for any other error and for an invalid code.
 */
export function readActionError(
  error: unknown,
): { kind: (typeof problemKinds)[ActionStatus]; code: string; message: string } | null {
  if (!(error instanceof Error) || !(errorMark in error)) return null;
  const { status, code, message } = error as unknown as ActionError;
  const kind = Object.hasOwn(problemKinds, status) ? problemKinds[status] : undefined;
  return kind !== undefined && /^service_[a-z0-9_]{1,64}$/.test(code) ? { kind, code, message } : null;
}
