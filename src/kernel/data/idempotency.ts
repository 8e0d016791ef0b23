// Calls that may be repeated without being done twice: the first answer under an Idempotency-Key is kept for a
// day and given again. A call that runs holds its key by a lease, so that a crash frees it after a while.
import { createHash, randomUUID, webcrypto } from 'node:crypto';
import { createBackground } from '../background.ts';
import type { Clock } from '../clock.ts';
import type { Database, Tx } from './database.ts';
import type { Log } from '../log.ts';
import { asProblem, Problem, renderProblem } from '../problem.ts';

export interface IdempotentCall {
  operationId: string;
  /** Who repeats: a user or an administrator, whatever their token; null for a guest, whose key means nothing. */
  caller: string | null;
  key: string | undefined;
  /** Everything that makes two calls the same one. */
  request: { path: unknown; query: unknown; body: unknown; rawBody: Uint8Array };
  requestId: string;
  /** The answer holds a secret and is not kept. */
  isSecret: boolean;
  signal: AbortSignal;
}

interface Answer {
  status: number;
  body?: unknown;
  headers?: Record<string, string>;
}

/** Keeps the answer in the transaction that it tells of, so that no crash can come between the two. */
export interface Remember {
  (tx: Tx, answer: { status: number; body?: unknown }): Promise<void>;
  /**
   * For a paid call: its settlement writes the answer, after a loss of the database too. Null is a call that is charged
   * and has no answer; it is not done again. Undefined without a key. From the call of the result on, the key belongs
   * to the settlement.
   */
  inSettlement(answer: { status: number; body?: unknown } | null): (() => SettlementAnswer) | undefined;
}

/** An answer as JSON, for the SQL function `idempotency_settle` of the surface. */
export interface SettlementAnswer {
  /** In hexadecimal. */
  scope: string;
  run: string;
  status: number | null;
  /** JSON; null when it is not kept. */
  body: string | null;
}

export interface Idempotency {
  /**
   * Runs the work, or gives the answer that it had. Throws 409 while it still runs or when its answer was not
   * kept, and 422 when the key was used for something else.
   */
  runOnce<Reply extends Answer>(
    call: IdempotentCall,
    work: (remember: Remember) => Promise<Reply>,
  ): Promise<Reply | Answer>;
  close(): Promise<void>;
}

export interface IdempotencyOptions {
  database: Database;
  /** The surface's schema; it has the table `idempotency` and the function `idempotency_is_pending`. */
  schema: string;
  clock: Pick<Clock, 'monotonicMs'>;
  log: Log;
  /** How long a call that fell silent keeps its key. */
  leaseMs?: number;
  keepSeconds?: number;
  /** Of one caller's kept answers. Beyond it the oldest are dropped: their keys answer 409 `result_not_replayable`. */
  mostBytes?: number;
}

interface Row {
  request: Buffer;
  state: 'running' | 'done' | 'opaque';
  status: number | null;
  body: string | null;
  leaseSeconds: number;
}

const maximumBodyBytes = 64 * 1024;
const forgetEveryMs = 60_000;
const mostCallers = 10_000;
/** For work without a key, whose answers are kept nowhere. */
export const rememberNothing: Remember = Object.assign(async () => {}, { inSettlement: () => undefined });

export function createIdempotency(options: IdempotencyOptions): Idempotency {
  const {
    database,
    clock,
    log,
    leaseMs = 60_000,
    keepSeconds = 24 * 3600,
    mostBytes = 16 * 2 ** 20,
  } = options;
  const { sql } = database;
  const table = `${options.schema}.idempotency`;
  const now = () => sql.unsafe(`${options.schema}.townhall_now()`);
  const isPending = () => sql.unsafe(`${options.schema}.idempotency_is_pending`);
  const background = createBackground(log);
  let forgottenAtMs = Number.NEGATIVE_INFINITY;
  // Bytes that this process has kept for a caller since it looked at all that are kept.
  const added = new Map<string, number>();

  /** Null when the key is ours now, otherwise what is known of it. */
  async function claim(
    scope: Buffer,
    request: Buffer,
    owner: { run: string; requestId: string; caller: string },
  ): Promise<Row | null> {
    const { run, requestId, caller } = owner;
    // One statement decides among any number at once; a row that is over is taken over, unless its call is still to be
    // charged.
    const [ours] = await sql`
      insert into ${sql(table)} as i (scope, caller, request, run, request_id, state, lease_until, expires_at)
      values (${scope}, ${digest(caller)}, ${request}, ${run}, ${requestId}, 'running', ${now()} + make_interval(secs => ${leaseMs / 1_000}),
        ${now()} + make_interval(secs => ${keepSeconds}))
      on conflict (scope) do update set caller = excluded.caller, request = excluded.request, run = excluded.run, request_id = excluded.request_id,
        state = 'running', status = null, body = null, lease_until = excluded.lease_until, expires_at = excluded.expires_at
      where i.expires_at <= ${now()} or (i.state = 'running' and i.lease_until <= ${now()} and not ${isPending()}(i.request_id))
      returning 1`;
    if (ours) return null;
    const [row] = await sql<Row[]>`
      select request, state, status, body, extract(epoch from lease_until - ${now()})::float8 as "leaseSeconds"
      from ${sql(table)} where scope = ${scope}`;
    // Freed between the two statements: whoever had it is done with it.
    return row ?? claim(scope, request, owner);
  }

  async function keep(
    own: Tx | typeof sql,
    { scope, run, caller }: { scope: Buffer; run: string; caller: string },
    answer: { status: number; body?: unknown },
    isSecret: boolean,
  ): Promise<void> {
    const body = keptBody(answer.body, isSecret);
    countKept(caller, body);
    await own`
      update ${own(table)} set state = ${body === null ? 'opaque' : 'done'}, status = ${answer.status}, body = ${body}
      where scope = ${scope} and run = ${run} and state = 'running'`;
  }

  /** Each process looks when it has added a sixteenth of the quota, so that a call does not pay for a sum of all rows. */
  function countKept(caller: string, body: string | null): void {
    const bytes = (added.get(caller) ?? 0) + (body === null ? 0 : Buffer.byteLength(body));
    added.delete(caller);
    if (bytes * 16 < mostBytes) added.set(caller, bytes);
    else background.run('drop answers beyond a quota', () => dropBeyond(caller));
    if (added.size > mostCallers) added.delete(added.keys().next().value as string);
  }

  async function dropBeyond(caller: string): Promise<void> {
    await sql`
      update ${sql(table)} set state = 'opaque', body = null
      where state = 'done' and scope in (
        select scope from (
          select scope, sum(octet_length(body)) over (order by expires_at desc, scope) as total
          from ${sql(table)} where caller = ${digest(caller)} and state = 'done') as kept
        where total > ${mostBytes})`;
  }

  async function release(scope: Buffer, run: string): Promise<void> {
    await sql`delete from ${sql(table)} where scope = ${scope} and run = ${run} and state = 'running'`;
  }

  function forgetOld(): void {
    if (clock.monotonicMs() - forgottenAtMs < forgetEveryMs) return;
    forgottenAtMs = clock.monotonicMs();
    background.run(
      'forget old answers',
      () => sql`
      delete from ${sql(table)} where scope in (
        select scope from ${sql(table)} where expires_at <= ${now()} order by expires_at limit 1000 for update skip locked)`,
    );
  }

  /** Never throws: the caller has its answer, and the lease frees a key that could not be settled. */
  async function settle(what: string, work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (error) {
      log.warn({ err: error }, what);
    }
  }

  return {
    async runOnce(call, work) {
      const { caller, key } = call;
      if (caller === null || key === undefined) return work(rememberNothing);
      const scope = digest(JSON.stringify([caller, call.operationId, key]));
      const request = await requestDigest(call.request);
      const run = randomUUID();
      const existing = await claim(scope, request, { run, requestId: call.requestId, caller });
      if (existing !== null) return again(existing, request);
      forgetOld();
      const renewal = setInterval(() => {
        background.run(
          `lease ${run}`,
          () => sql`
          update ${sql(table)} set lease_until = ${now()} + make_interval(secs => ${leaseMs / 1_000})
          where scope = ${scope} and run = ${run} and state = 'running'`,
        );
      }, leaseMs / 3);
      let isKept = false;
      let isInSettlement = false;
      const remember: Remember = Object.assign(
        async (tx: Tx, answer: { status: number; body?: unknown }) => {
          await keep(tx, { scope, run, caller }, answer, call.isSecret);
          isKept = true;
        },
        {
          inSettlement: (answer: { status: number; body?: unknown } | null) => () => {
            isInSettlement = true;
            const body = keptBody(answer?.body, call.isSecret);
            countKept(caller, body);
            return { scope: scope.toString('hex'), run, status: answer?.status ?? null, body };
          },
        },
      );
      try {
        const reply = await work(remember);
        if (!isKept && !isInSettlement)
          await settle('an answer could not be kept', () =>
            keep(sql, { scope, run, caller }, reply, call.isSecret),
          );
        return reply;
      } catch (error) {
        const problem = asProblem(error);
        if (isRefusal(problem) || call.signal.aborted) {
          // What is charged, or is yet to be, must not be done again.
          if (!isInSettlement) await settle('a key could not be freed', () => release(scope, run));
        } else
          await settle('a failure could not be kept', () =>
            keep(
              sql,
              { scope, run, caller },
              { status: problem.status, body: renderProblem(problem, call.requestId) },
              false,
            ),
          );
        throw error;
      } finally {
        clearInterval(renewal);
      }
    },
    close: () => background.settled(),
  };
}

/** The answer as JSON; null when it is not kept. */
function keptBody(body: unknown, isSecret: boolean): string | null {
  if (isSecret || body === undefined || shortestJson(body, maximumBodyBytes) > maximumBodyBytes) return null;
  const text = JSON.stringify(body);
  return text === undefined || Buffer.byteLength(text) > maximumBodyBytes ? null : text;
}

/**
 * A lower bound of the value's length as JSON. Stops counting beyond `most`, so that an answer of many megabytes is not
 * serialized only to be dropped.
 */
function shortestJson(value: unknown, most: number): number {
  if (typeof value === 'string') return value.length + 2;
  if (typeof value !== 'object' || value === null) return 1;
  let length = 2;
  if (Array.isArray(value)) {
    for (let index = 0; index < value.length && length <= most; index += 1)
      length += 1 + shortestJson(value[index], most - length);
    return length - Math.min(value.length, 1);
  }
  for (const name in value) {
    if (length > most) break;
    const member = (value as Record<string, unknown>)[name];
    // JSON leaves members without a value out.
    if (member !== undefined && typeof member !== 'function')
      length += name.length + 3 + shortestJson(member, most - length);
  }
  return length;
}

/** What is refused has done nothing, so it may be tried again; a failure in the midst of it may not. */
function isRefusal({ status }: Problem): boolean {
  return status < 500 || status === 503;
}

function again(known: Row, request: Buffer): Answer {
  if (!known.request.equals(request)) {
    throw new Problem(
      'impossible',
      'idempotency_key_reused',
      'This Idempotency-Key was used for another request; use a new one.',
      { param: 'Idempotency-Key' },
    );
  }
  if (known.state === 'running') {
    throw new Problem(
      'conflict',
      'idempotency_key_in_use',
      'The first call with this Idempotency-Key still runs.',
      { param: 'Idempotency-Key', headers: { 'retry-after': '1' } },
    );
  }
  if (known.state === 'opaque' || known.body === null || known.status === null) {
    throw new Problem(
      'conflict',
      'result_not_replayable',
      'This call was made already; its answer is not kept.',
      { param: 'Idempotency-Key' },
    );
  }
  const headers = {
    'idempotent-replayed': 'true',
    ...(known.status >= 400 ? { 'x-should-retry': 'false' } : {}),
  };
  return { status: known.status, body: JSON.parse(known.body), headers };
}

// Sorting the members of a larger body would hold the event loop; its repetition has to have the same bytes.
const comparedAsValue = 256 * 1024;

async function requestDigest({ path, query, body, rawBody }: IdempotentCall['request']): Promise<Buffer> {
  const parts = JSON.stringify([canonical(path), canonical(query)]);
  if (rawBody.byteLength > comparedAsValue) return digest(parts, await digestInPool(rawBody));
  // A JSON body is the same one whatever the order and spacing of its members are.
  return digest(parts, body !== undefined && isPlain(body) ? JSON.stringify(canonical(body)) : rawBody);
}

async function digestInPool(bytes: Uint8Array): Promise<Buffer> {
  return Buffer.from(await webcrypto.subtle.digest('SHA-256', bytes as Uint8Array<ArrayBuffer>));
}

function digest(...parts: (string | Uint8Array)[]): Buffer {
  const hash = createHash('sha256');
  for (const part of parts) hash.update(part).update('\0');
  return hash.digest();
}

/** Whether it came from JSON, and not from a form with files. */
function isPlain(value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return true;
  return !(value instanceof Uint8Array) && Object.values(value).every(isPlain);
}

function canonical(value: unknown): unknown {
  // The first item tells a list from an object, which becomes the list of its members in order.
  if (Array.isArray(value)) return ['list', ...value.map(canonical)];
  if (typeof value !== 'object' || value === null) return value;
  const members = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
  return ['object', ...members.map(([name, member]) => [name, canonical(member)])];
}
