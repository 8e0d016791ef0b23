// Calls with an Idempotency-Key: for a day, a repeated call gets the first answer instead of a second
// execution. A running call holds its key by a lease, so after a crash the key is free again when the
// lease expires.
import { randomUUID } from 'node:crypto';
import { createBackground } from '../background.ts';
import type { Clock } from '../clock.ts';
import type { Database, Tx } from './database.ts';
import { digest } from './digest.ts';
import {
  createIdempotencyStore,
  type IdempotencyStore,
  type KeyClaim,
  type StoredRow,
} from './idempotency-store.ts';
import { type DigestedRequest, digestRequest } from './request-digest.ts';
import { type ErrorDialect, toErrorDialect } from '../error-dialects.ts';
import type { Log } from '../log.ts';
import { asProblem, forSurface, Problem, type ProblemBody, renderProblem, type Surface } from '../problem.ts';

export interface IdempotentCall {
  operationId: string;
  /** A user or an administrator, whatever their token; null for a guest, whose key has no effect. */
  caller: string | null;
  key: string | undefined;
  request: DigestedRequest;
  requestId: string;
  /** The answer contains a secret and is not stored. */
  isSecret: boolean;
  /**
   * Error dialect of the operation's API. Failures are stored in our own error shape and translated when they
   * are replayed.
   */
  errorDialect?: ErrorDialect | undefined;
  signal: AbortSignal;
}

/**
 * Stores the answer in the transaction whose result it reports, so that no crash can come between the two.
 */
export interface Remember {
  (tx: Tx, answer: KeptAnswer): Promise<void>;
  /**
   * Hands the answer of a paid call to its settlement, which writes it even after an outage of the
   * database. Pass null for a call that is charged but has no answer; it is not executed again. Returns
   * undefined without a key. Once the returned function is called, the key belongs to the settlement.
   */
  inSettlement(answer: KeptAnswer | null): (() => SettlementAnswer) | undefined;
  /**
   * Stores a reference to work that continues after the call, such as a job, in the transaction
   * that starts the work. A repetition then executes the handler again, with the reference in
   * `started`, and nothing frees the key. False without a key.
   */
  bind(tx: Tx, reference: unknown): Promise<boolean>;
  /** The reference that an earlier call with this key has bound; undefined when there is none. */
  readonly started?: unknown;
}

/** A call that may have started work which continues after the call. */
export interface StartedCall {
  operationId: string;
  requestId: string;
}

export interface KeptAnswer {
  status: number;
  body?: unknown;
  /** The handler's own headers, which a replay repeats. */
  headers?: Record<string, string>;
}

/** An answer as JSON, for the SQL function `idempotency_settle` of the surface. */
export interface SettlementAnswer {
  /** The key with its operation and caller: a hash in hexadecimal. */
  scope: string;
  run: string;
  status: number | null;
  /** JSON; null when it is not kept. */
  body: string | null;
  /** Absent in the journals of older releases. */
  headers?: Record<string, string> | null;
}

export interface Idempotency {
  /**
   * Executes the work, or returns the answer of its first execution. Executes it again for a key that is
   * bound to earlier work. Throws 409 while the first execution runs or when its answer was not kept, and
   * 422 when the key was used for another request.
   */
  runOnce<Reply extends KeptAnswer>(
    call: IdempotentCall,
    work: (remember: Remember) => Promise<Reply>,
  ): Promise<Reply | KeptAnswer>;
  /**
   * Ends the leases of the caller's calls at a start: their processes are gone, so no call needs to
   * wait for the leases.
   */
  endLeases(caller: string): Promise<void>;
  close(): Promise<void>;
}

export interface IdempotencyOptions {
  database: Database;
  /**
   * The surface and its schema, which has the table `idempotency` and the function `idempotency_is_pending`.
   */
  schema: Surface;
  clock: Pick<Clock, 'monotonicMs'>;
  log: Log;
  /** How long a call that stopped renewing its lease keeps its key. */
  leaseMs?: number;
  keepSeconds?: number;
  /**
   * Limit of one caller's stored answers. Beyond it the oldest are dropped: their keys answer 409
   * `result_not_replayable`.
   */
  maxBytesPerCaller?: number;
  /**
   * Maximum number of keys of a caller; the oldest ones beyond it are deleted. Without it only age
   * limits their number.
   */
  maxKeysPerCaller?: number;
  /**
   * The receipt of work that the call has started and that continues after it; null when there is no
   * such work. The key of such a call stays taken: a failure is stored whatever its status, and the
   * receipt is stored if the caller disconnects or the process dies before the answer.
   */
  receiptOf?: (call: StartedCall) => Promise<KeptAnswer | null>;
}

const maxBodyBytes = 64 * 1024;

/** Stores nothing; for calls without a key. */
export const rememberNothing: Remember = rememberStarted(undefined);

function rememberStarted(started: unknown): Remember {
  return Object.assign(async () => {}, { inSettlement: () => undefined, bind: async () => false, started });
}

// Marks a row whose body is a reference to work; no operation answers with this status. A replica of an older
// release does not know the mark and replays the reference as an answer, so it must be a final HTTP status.
const boundStatus = 208;

/** Executes a call that holds its key, and stores its answer or its failure. */
class Execution {
  readonly #store: IdempotencyStore;
  readonly #options: IdempotencyOptions;

  constructor(store: IdempotencyStore, options: IdempotencyOptions) {
    this.#store = store;
    this.#options = options;
  }

  async execute<Reply extends KeptAnswer>(
    call: IdempotentCall,
    claim: KeyClaim,
    work: (remember: Remember) => Promise<Reply>,
  ): Promise<Reply> {
    const { remember, state } = createRemember(this.#store, claim, call);
    try {
      const reply = await work(remember);
      if (state.answer === 'unsaved')
        await this.#settle('an answer could not be kept', () => this.#save(claim, call, reply));
      return reply;
    } catch (error) {
      await this.#settleFailure(call, claim, { error, isInSettlement: state.answer === 'in_settlement' });
      throw error;
    }
  }

  /** A call whose process died may have started work that continues: then its receipt becomes the answer. */
  async completeAbandoned(row: StoredRow, call: IdempotentCall, claim: KeyClaim): Promise<StoredRow> {
    const { requestId, run } = row;
    if (!row.isAbandoned || requestId === null) return row;
    const receipt = await readReceipt({ operationId: call.operationId, requestId }, this.#options);
    if (receipt === null) return row;
    await this.#save({ ...claim, run }, call, receipt);
    const { status, body, headers = null } = receipt;
    return { ...row, state: 'done', status, body: JSON.stringify(body), headers };
  }

  /** Stores the failure, or frees the key so that the call may be tried again. */
  async #settleFailure(
    call: IdempotentCall,
    claim: KeyClaim,
    { error, isInSettlement }: { error: unknown; isInSettlement: boolean },
  ): Promise<void> {
    const answer = answerOfFailure(asProblem(error), call, await readReceipt(call, this.#options));
    if (answer !== null)
      await this.#settle('a failure could not be kept', () => this.#save(claim, { isSecret: false }, answer));
    // A call that was or will be charged keeps its key: it must not be executed again.
    else if (!isInSettlement)
      await this.#settle('a key could not be freed', () => this.#store.release(claim));
  }

  #save(claim: KeyClaim, call: Pick<IdempotentCall, 'isSecret'>, answer: KeptAnswer): Promise<void> {
    return saveAnswer(this.#store, this.#options.database.sql, { claim, call }, answer);
  }

  /**
   * Never throws: the caller has its answer, and the end of the lease frees a key that could not be
   * settled.
   */
  async #settle(failure: string, work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (error) {
      this.#options.log.warn({ err: error }, failure);
    }
  }
}

/** Null for a call without a receipt, and when the receipt cannot be read. */
async function readReceipt(
  call: StartedCall,
  { receiptOf, log }: Pick<IdempotencyOptions, 'receiptOf' | 'log'>,
): Promise<KeptAnswer | null> {
  try {
    return (await receiptOf?.(call)) ?? null;
  } catch (error) {
    log.warn({ err: error }, 'a receipt could not be read');
    return null;
  }
}

export function createIdempotency(options: IdempotencyOptions): Idempotency {
  const {
    leaseMs = 60_000,
    keepSeconds = 24 * 3600,
    maxBytesPerCaller = 16 * 2 ** 20,
    maxKeysPerCaller = Number.POSITIVE_INFINITY,
  } = options;
  const background = createBackground(options.log);
  const limits = { leaseMs, keepSeconds, maxBytesPerCaller, maxKeysPerCaller };
  const store = createIdempotencyStore({ ...options, ...limits, background });
  const execution = new Execution(store, options);

  return {
    async runOnce(call, work) {
      const { caller, key, operationId, requestId } = call;
      if (caller === null || key === undefined) return work(rememberNothing);
      const claim: KeyClaim = {
        scope: digest(JSON.stringify([caller, operationId, key])),
        run: randomUUID(),
        caller,
      };
      const request = await digestRequest(call.request);
      const existing = await store.claim(claim, { digest: request, requestId });
      if (existing !== null) {
        const startedReference = boundReference(existing, request);
        if (startedReference !== undefined)
          return withReplayHeader(await work(rememberStarted(startedReference)));
        return replay(await execution.completeAbandoned(existing, call, claim), request, {
          dialect: call.errorDialect,
          surface: options.schema,
        });
      }
      store.deleteExpired();
      const renewal = setInterval(
        () => background.run(`lease ${claim.run}`, () => store.renewLease(claim)),
        leaseMs / 3,
      );
      try {
        return await execution.execute(call, claim, work);
      } finally {
        clearInterval(renewal);
      }
    },
    endLeases: (caller) => store.endLeases(caller),
    close: () => background.untilSettled(),
  };
}

/** The stored answer of a failed call; null frees the key. */
function answerOfFailure(
  problem: Problem,
  { signal, requestId }: IdempotentCall,
  receipt: KeptAnswer | null,
): KeptAnswer | null {
  const isCutOff = signal.aborted || problem.code === 'draining';
  if (isCutOff || (receipt === null && isRefusal(problem))) return receipt;
  return { status: problem.status, body: renderProblem(problem, requestId), headers: problem.headers };
}

async function saveAnswer(
  store: IdempotencyStore,
  sql: Tx | Database['sql'],
  { claim, call }: { claim: KeyClaim; call: Pick<IdempotentCall, 'isSecret'> },
  answer: KeptAnswer,
): Promise<void> {
  const body = replayableBody(answer.body, call.isSecret);
  store.countBytes(claim.caller, byteLength(body));
  await store.save(sql, claim, { status: answer.status, body, headers: replayableHeaders(answer) });
}

/**
 * The function for the handler, and whether it has stored the answer or left it to the settlement.
 */
function createRemember(store: IdempotencyStore, claim: KeyClaim, call: IdempotentCall) {
  const state: { answer: 'unsaved' | 'saved' | 'in_settlement' } = { answer: 'unsaved' };
  const remember: Remember = Object.assign(
    async (tx: Tx, answer: KeptAnswer) => {
      await saveAnswer(store, tx, { claim, call }, answer);
      if (state.answer === 'unsaved') state.answer = 'saved';
    },
    {
      bind: async (tx: Tx, reference: unknown) => {
        const answer = { status: boundStatus, body: JSON.stringify(reference), headers: null };
        // False if another call has taken over the key because this call stopped renewing its lease.
        if (!(await store.save(tx, claim, answer))) throw keyInUse();
        state.answer = 'saved';
        return true;
      },
      inSettlement: (answer: KeptAnswer | null) => (): SettlementAnswer => {
        state.answer = 'in_settlement';
        const body = replayableBody(answer?.body, call.isSecret);
        store.countBytes(claim.caller, byteLength(body));
        return {
          scope: claim.scope.toString('hex'),
          run: claim.run,
          status: answer?.status ?? null,
          body,
          headers: answer === null ? null : replayableHeaders(answer),
        };
      },
    },
  );
  return { remember, state };
}

/** The answer as JSON; null when it is not kept. */
function replayableBody(body: unknown, isSecret: boolean): string | null {
  if (isSecret || body === undefined || minJsonLength(body, maxBodyBytes) > maxBodyBytes) return null;
  const text = JSON.stringify(body);
  return text === undefined || Buffer.byteLength(text) > maxBodyBytes ? null : text;
}

/**
 * The headers of the stored answer; null without any. A replay never changes, so it must not promise that a
 * later call succeeds.
 */
function replayableHeaders({ headers = {} }: KeptAnswer): Record<string, string> | null {
  const replayableEntries = Object.entries(headers).filter(([name]) => name !== 'retry-after');
  return replayableEntries.length === 0 ? null : Object.fromEntries(replayableEntries);
}

function byteLength(body: string | null): number {
  return body === null ? 0 : Buffer.byteLength(body);
}

/**
 * A lower bound of the value's length as JSON. Stops counting beyond `max`, so that
 * an answer of many megabytes is not serialized only to be dropped.
 */
function minJsonLength(value: unknown, max: number): number {
  if (typeof value === 'string') return value.length + 2;
  if (typeof value !== 'object' || value === null) return 1;
  let length = 2;
  if (Array.isArray(value)) {
    for (let index = 0; index < value.length && length <= max; index += 1)
      length += 1 + minJsonLength(value[index], max - length);
    return length - Math.min(value.length, 1);
  }
  for (const name in value) {
    if (length > max) break;
    const member = (value as Record<string, unknown>)[name];
    // JSON leaves out members without a value.
    if (member !== undefined && typeof member !== 'function')
      length += name.length + 3 + minJsonLength(member, max - length);
  }
  return length;
}

/** A refused call has had no effect, so it may be tried again; a call that failed midway may have had one. */
function isRefusal({ status }: Problem): boolean {
  return status < 500 || status === 503;
}

interface ErrorShape {
  dialect: ErrorDialect | undefined;
  surface: IdempotencyOptions['schema'];
}

const param = 'Idempotency-Key';

/** 409 for a call that was executed and whose answer is no longer kept. */
export function notReplayable(): Problem {
  const message = 'This call was already made, and its answer was not stored.';
  return new Problem('conflict', 'result_not_replayable', message, { param });
}

function keyInUse(): Problem {
  const message = 'The first call with this Idempotency-Key is still running.';
  return new Problem('conflict', 'idempotency_key_in_use', message, {
    param,
    headers: { 'retry-after': '1' },
  });
}

function requireSameRequest(row: StoredRow, request: Buffer): void {
  if (row.request.equals(request)) return;
  const message = 'This Idempotency-Key was used for another request; use a new one.';
  throw new Problem('impossible', 'idempotency_key_reused', message, { param });
}

/** The work that the key is bound to. Throws 422 when the key was used for another request. */
function boundReference(row: StoredRow, request: Buffer): unknown {
  if (row.status !== boundStatus || row.body === null) return undefined;
  requireSameRequest(row, request);
  return JSON.parse(row.body);
}

function withReplayHeader<Reply extends KeptAnswer>(reply: Reply): Reply {
  return { ...reply, headers: { ...reply.headers, ...replayHeader } };
}

const replayHeader = { 'idempotent-replayed': 'true' };

function replay(row: StoredRow, request: Buffer, shape: ErrorShape): KeptAnswer {
  requireSameRequest(row, request);
  if (row.state === 'running') throw keyInUse();
  if (row.state === 'opaque' || row.body === null || row.status === null) throw notReplayable();
  const headers = { ...row.headers, ...replayHeader };
  const body: unknown = JSON.parse(row.body);
  if (row.status < 400) return { status: row.status, body, headers };
  return {
    status: row.status,
    body: translateFailure(body as ProblemBody, row.status, shape),
    headers: { ...headers, 'x-should-retry': 'false' },
  };
}

function translateFailure(body: ProblemBody, status: number, { dialect, surface }: ErrorShape): object {
  const problem = { status, code: body.error.code as Problem['code'] };
  return forSurface(toErrorDialect(body, problem, dialect), surface);
}
