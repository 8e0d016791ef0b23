// SQL of idempotency keys: the running call of a key, and the answer that the key replays.
import type { Background } from '../background.ts';
import { createLruCache } from '../cache.ts';
import type { Clock } from '../clock.ts';
import type { Database, Sql } from './database.ts';
import { digest } from './digest.ts';

/** One run of a call under its key. */
export interface KeyClaim {
  /** The key with its operation and caller, hashed. */
  scope: Buffer;
  run: string;
  caller: string;
}

export interface StoredRow {
  request: Buffer;
  run: string;
  requestId: string | null;
  /** Running, but its process has stopped renewing the lease. */
  isAbandoned: boolean;
  /** `opaque`: the call was executed and its answer is not stored. */
  state: 'running' | 'done' | 'opaque';
  status: number | null;
  body: string | null;
  headers: Record<string, string> | null;
}

export interface StoredAnswer {
  status: number;
  /** JSON; null makes the row opaque. */
  body: string | null;
  headers: Record<string, string> | null;
}

export interface IdempotencyStore {
  /** Null when the claim holds the key now, otherwise the row that holds it. */
  claim(claim: KeyClaim, request: { digest: Buffer; requestId: string }): Promise<StoredRow | null>;
  renewLease(claim: KeyClaim): Promise<unknown>;
  /**
   * Stores the answer; a null body makes the row opaque. `tx` is the transaction that the answer belongs to.
   * Returns false and changes nothing if another call has taken over the key.
   */
  save(tx: Sql, claim: KeyClaim, answer: StoredAnswer): Promise<boolean>;
  release(claim: KeyClaim): Promise<void>;
  /** Ends the leases of the caller's running calls. */
  endLeases(caller: string): Promise<void>;
  /** Counts an answer of the caller by its bytes, and drops the oldest ones beyond the quotas. */
  countBytes(caller: string, bytes: number): void;
  deleteExpired(): void;
}

export interface IdempotencyStoreOptions {
  database: Pick<Database, 'sql'>;
  schema: string;
  background: Background;
  clock: Pick<Clock, 'monotonicMs'>;
  leaseMs: number;
  keepSeconds: number;
  maxBytesPerCaller: number;
  maxKeysPerCaller: number;
}

const deleteEveryMs = 60_000;
const maxCallers = 10_000;

export function createIdempotencyStore(options: IdempotencyStoreOptions): IdempotencyStore {
  const { background, clock } = options;
  const { sql } = options.database;
  const fragments = createFragments(options);
  const { table, now, leaseEnd } = fragments;
  const quota = createQuota(options, fragments);
  let lastDeletionMs = Number.NEGATIVE_INFINITY;

  return {
    claim: (claim, request) => claimKey(claim, request, { sql, fragments, keepSeconds: options.keepSeconds }),
    renewLease: async ({ scope, run }) => sql`
      update ${sql(table)} set lease_until = ${leaseEnd()}
      where scope = ${scope} and run = ${run} and state = 'running'`,
    async save(tx, { scope, run }, { status, body, headers }) {
      const rows = await tx`
        update ${tx(table)}
        set state = ${body === null ? 'opaque' : 'done'}, status = ${status}, body = ${body},
          headers = ${headers === null ? null : tx.json(headers)}
        where scope = ${scope} and run = ${run} and state = 'running' returning 1`;
      return rows.length > 0;
    },
    async release({ scope, run }) {
      await sql`delete from ${sql(table)} where scope = ${scope} and run = ${run} and state = 'running'`;
    },
    async endLeases(caller) {
      await sql`
        update ${sql(table)} set lease_until = ${now()}
        where caller = ${digest(caller)} and state = 'running'`;
    },
    countBytes: quota.countBytes,
    deleteExpired() {
      if (clock.monotonicMs() - lastDeletionMs < deleteEveryMs) return;
      lastDeletionMs = clock.monotonicMs();
      background.run('delete expired answers', () => deleteExpired(sql, fragments));
    },
  };
}

type Fragments = ReturnType<typeof createFragments>;

/** The table, and pieces of SQL that the statements share. */
function createFragments({ database: { sql }, schema, leaseMs }: IdempotencyStoreOptions) {
  const now = () => sql.unsafe(`${schema}.townhall_now()`);
  return {
    table: `${schema}.idempotency`,
    now,
    isPending: () => sql.unsafe(`${schema}.idempotency_is_pending`),
    leaseEnd: () => sql`${now()} + make_interval(secs => ${leaseMs / 1_000})`,
  };
}

interface ClaimOptions {
  sql: Sql;
  fragments: Fragments;
  keepSeconds: number;
}

async function claimKey(
  { scope, run, caller }: KeyClaim,
  request: { digest: Buffer; requestId: string },
  { sql, fragments, keepSeconds }: ClaimOptions,
): Promise<StoredRow | null> {
  const { table, now, isPending, leaseEnd } = fragments;
  // One statement decides among concurrent calls. It takes over an expired row, and the row of a
  // running call whose lease has expired, unless that call is still to be charged.
  const [claimedRow] = await sql`
    insert into ${sql(table)} as i (scope, caller, request, run, request_id, state, lease_until, expires_at)
    values (
      ${scope}, ${digest(caller)}, ${request.digest}, ${run}, ${request.requestId}, 'running', ${leaseEnd()},
      ${now()} + make_interval(secs => ${keepSeconds}))
    on conflict (scope) do update
    set caller = excluded.caller, request = excluded.request, run = excluded.run,
      request_id = excluded.request_id, state = 'running', status = null, body = null, headers = null,
      lease_until = excluded.lease_until, expires_at = excluded.expires_at
    where i.expires_at <= ${now()}
      or (i.state = 'running' and i.lease_until <= ${now()} and not ${isPending()}(i.request_id))
    returning 1`;
  if (claimedRow) return null;
  const [row] = await sql<StoredRow[]>`
    select request, run, request_id as "requestId",
      state = 'running' and lease_until <= ${now()} as "isAbandoned", state, status, body, headers
    from ${sql(table)} where scope = ${scope}`;
  // Another call released the key between the two statements: try again.
  return row ?? claimKey({ scope, run, caller }, request, { sql, fragments, keepSeconds });
}

function deleteExpired(sql: Sql, { table, now }: Fragments): Promise<unknown> {
  return sql`
    delete from ${sql(table)} where scope in (
      select scope from ${sql(table)} where expires_at <= ${now()}
      order by expires_at limit 1000 for update skip locked)`;
}

/** Drops a caller's oldest answers beyond the limits of bytes and keys. */
function createQuota(options: IdempotencyStoreOptions, { table }: Fragments) {
  const { background, maxBytesPerCaller, maxKeysPerCaller } = options;
  const { sql } = options.database;
  // Bytes that this process stored for a caller since it last compared the caller's rows with the quota.
  const addedBytes = createLruCache<string, number>({ capacity: maxCallers });

  async function dropBeyondQuota(caller: string): Promise<void> {
    await sql`
      update ${sql(table)} set state = 'opaque', body = null, headers = null
      where state = 'done' and scope in (
        select scope from (
          select scope, sum(octet_length(body)) over (order by expires_at desc, scope) as total
          from ${sql(table)} where caller = ${digest(caller)} and state = 'done') as answers
        where total > ${maxBytesPerCaller})`;
    if (!Number.isFinite(maxKeysPerCaller)) return;
    await sql`
      delete from ${sql(table)} where scope in (
        select scope from ${sql(table)} where caller = ${digest(caller)} and state <> 'running'
        order by expires_at desc, scope offset ${maxKeysPerCaller})`;
  }

  return {
    countBytes(caller: string, bytes: number): void {
      // A short answer counts as one key's share of the bytes, so that many short answers reach the
      // comparison too.
      const total = (addedBytes.peek(caller) ?? 0) + Math.max(bytes, maxBytesPerCaller / maxKeysPerCaller);
      // Compare with the quota after every sixteenth of it: the sum over all rows is too expensive
      // for each call.
      if (total * 16 < maxBytesPerCaller) return addedBytes.set(caller, total);
      addedBytes.delete(caller);
      background.run(`drop answers beyond the quota of ${caller}`, () => dropBeyondQuota(caller));
    },
  };
}
