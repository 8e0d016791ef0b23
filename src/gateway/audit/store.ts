// SQL of the audit log: entries and their list, the hash chain over them, and the deletion of old days.
import type { Database, Sql, Tx } from '../../kernel/data/database.ts';
import type { Origin } from '../identity.ts';

/** One recorded change or event. */
export interface AuditEntry extends Origin {
  /** An operationId such as `bureaus.pauseBureau`, or the name of a command or an event. */
  action: string;
  target: { kind: string; id: string } | null;
  outcome: 'ok' | 'failed';
  /** The changed members by the contract's names. A secret appears as a fingerprint or not at all. */
  diff?: Record<string, unknown>;
}

/** A stored entry. */
export interface AuditRow {
  entryId: string;
  actorKind: Origin['actor']['kind'];
  actorId: string | null;
  tokenId: string | null;
  address: string | null;
  requestId: string | null;
  action: string;
  targetKind: string | null;
  targetId: string | null;
  outcome: AuditEntry['outcome'];
  diff: Record<string, unknown> | null;
  at: Date;
}

/** An undefined member does not filter. */
export interface AuditFilter {
  action?: string | undefined;
  actorId?: string | undefined;
  targetId?: string | undefined;
  requestId?: string | undefined;
  outcome?: AuditEntry['outcome'] | undefined;
  from?: Date | undefined;
  /** Exclusive. */
  to?: Date | undefined;
}

/** The hashed form of an entry: every member in PostgreSQL's text form. */
export type EntryText = (string | null)[];

export interface Batch {
  batch: bigint;
  previous: Buffer;
  hash: Buffer;
  entries: number;
}

/** A link of the chain with its entry. `entry` is null when the entry is missing in the database. */
export interface LinkedEntry {
  entryId: string;
  digest: Buffer;
  entry: EntryText | null;
}

export interface AuditStore {
  insert(tx: Tx, entry: AuditEntry, entryId: string): Promise<void>;
  /**
   * Lists entries by descending ID, which is newest first. `before` is the last ID of the previous page.
   * Returns one row more than `limit` if another page follows.
   */
  list(filter: AuditFilter, page: { before: string | null; limit: number }): Promise<AuditRow[]>;
  tx<T>(work: (tx: Tx) => Promise<T>): Promise<T>;
  /** Whether there are entries that are not in the chain yet. */
  hasPending(): Promise<boolean>;
  /** Tries to lock the chain until the transaction ends; false when another replica holds the lock. */
  lockChain(tx: Tx): Promise<boolean>;
  dequeuePending(tx: Tx, limit: number): Promise<{ entryId: string; entry: EntryText }[]>;
  findLastBatch(sql?: Sql): Promise<Batch | null>;
  insertBatch(tx: Tx, batch: Batch, links: readonly { entryId: string; digest: Buffer }[]): Promise<void>;
  /** The number of the oldest batch; null for an empty chain. */
  findFirstBatch(): Promise<bigint | null>;
  listBatchesAfter(batch: bigint, limit: number): Promise<Batch[]>;
  listLinkedEntries(batch: bigint): Promise<LinkedEntry[]>;
  /** IDs of entries that are neither in the chain nor pending. */
  listUnlinkedEntries(limit: number): Promise<string[]>;
  countPending(): Promise<number>;
  /** The number of the last batch whose day ended more than `days` days ago. */
  findLastBatchOlderThan(tx: Tx, days: number): Promise<bigint | null>;
  deleteThrough(tx: Tx, batch: bigint): Promise<number>;
  /** Whether a retention entry records that all batches through this one were deleted. */
  hasRetentionEntry(batch: bigint): Promise<boolean>;
}

export const retentionAction = 'audit.dropDays';

export function auditStore(database: Database): AuditStore {
  return {
    tx: (work) => database.tx(work),
    ...pendingQueries(database.sql),
    ...listQueries(database.sql),
    ...chainQueries(database.sql),
    ...verificationQueries(database.sql),
    ...retentionQueries(),
  };
}

/** Entries, and the queue of entries that are not in the chain yet. */
function pendingQueries(
  sql: Sql,
): Pick<AuditStore, 'insert' | 'hasPending' | 'countPending' | 'dequeuePending'> {
  return {
    async insert(tx, entry, entryId) {
      const { actor, target } = entry;
      // One statement inserts both rows, so every entry is queued for the chain.
      await tx`
        with inserted as (
          insert into gateway.audit_entries
            (entry_id, actor_kind, actor_id, token_id, address, request_id, action, target_kind, target_id,
              outcome, diff)
          values (${entryId}, ${actor.kind}, ${actor.id}, ${actor.tokenId}, ${entry.address},
            ${entry.requestId}, ${entry.action}, ${target?.kind ?? null}, ${target?.id ?? null},
            ${entry.outcome},
            ${entry.diff === undefined ? null : tx.json(entry.diff as Parameters<Tx['json']>[0])})
          returning entry_id)
        insert into gateway.audit_pending select entry_id from inserted`;
    },
    async hasPending() {
      const [row] = await sql`select 1 from gateway.audit_pending limit 1`;
      return row !== undefined;
    },
    async countPending() {
      const [row] = await sql<{ count: number }[]>`
        select count(*)::integer as count from gateway.audit_pending`;
      return row?.count ?? 0;
    },
    async dequeuePending(tx, limit) {
      const rows = await tx<{ entryId: string; entry: EntryText }[]>`
        with dequeued as (
          delete from gateway.audit_pending where entry_id in (
            select entry_id from gateway.audit_pending order by entry_id limit ${limit} for update skip locked)
          returning entry_id)
        select e.entry_id as "entryId", ${entryText(tx)} as entry
        from dequeued join gateway.audit_entries e using (entry_id) order by e.entry_id`;
      return [...rows];
    },
  };
}

function listQueries(sql: Sql): Pick<AuditStore, 'list'> {
  return {
    async list(filter, { before, limit }) {
      const rows = await sql<AuditRow[]>`
        select entry_id as "entryId", actor_kind as "actorKind", actor_id as "actorId",
          token_id as "tokenId", address, request_id as "requestId", action,
          target_kind as "targetKind", target_id as "targetId", outcome, diff, at
        from gateway.audit_entries
        where ${matches(sql, filter)} ${before === null ? sql`` : sql`and entry_id < ${before}`}
        order by entry_id desc limit ${limit + 1}`;
      return [...rows];
    },
  };
}

function matches(sql: Sql, { action, actorId, targetId, requestId, outcome, from, to }: AuditFilter) {
  return sql`true
    ${action === undefined ? sql`` : sql`and action = ${action}`}
    ${actorId === undefined ? sql`` : sql`and actor_id = ${actorId}`}
    ${targetId === undefined ? sql`` : sql`and target_id = ${targetId}`}
    ${requestId === undefined ? sql`` : sql`and request_id = ${requestId}`}
    ${outcome === undefined ? sql`` : sql`and outcome = ${outcome}`}
    ${from === undefined ? sql`` : sql`and at >= ${from}`}
    ${to === undefined ? sql`` : sql`and at < ${to}`}`;
}

function chainQueries(sql: Sql): Pick<AuditStore, 'lockChain' | 'findLastBatch' | 'insertBatch'> {
  return {
    async lockChain(tx) {
      const [row] = await tx<{ isOurs: boolean }[]>`
        select pg_try_advisory_xact_lock(hashtextextended('townhall.audit.chain', 0)) as "isOurs"`;
      return row?.isOurs === true;
    },
    async findLastBatch(querySql = sql) {
      const [batch] = await querySql<Batch[]>`
        select batch, previous, hash, entries from gateway.audit_batches order by batch desc limit 1`;
      return batch ?? null;
    },
    async insertBatch(tx, { batch, previous, hash, entries }, links) {
      // greatest(): days must never decrease along the chain, even if the clock goes backwards, because
      // old days are deleted as one prefix of the chain.
      await tx`
        insert into gateway.audit_batches (batch, day, entries, previous, hash)
        select ${batch}, greatest((gateway.townhall_now() at time zone 'UTC')::date,
          (select max(day) from gateway.audit_batches)), ${entries}, ${previous}, ${hash}`;
      await tx`
        insert into gateway.audit_links (batch, position, entry_id, digest)
        select ${batch}, position, entry_id, digest
        from unnest(${links.map(({ entryId }) => entryId)}::text[], ${links.map(({ digest }) => digest)}::bytea[])
          with ordinality as link (entry_id, digest, position)`;
    },
  };
}

function verificationQueries(
  sql: Sql,
): Pick<
  AuditStore,
  'findFirstBatch' | 'listBatchesAfter' | 'listLinkedEntries' | 'listUnlinkedEntries' | 'hasRetentionEntry'
> {
  return {
    async findFirstBatch() {
      const [row] = await sql<{ batch: bigint | null }[]>`
        select min(batch) as batch from gateway.audit_batches`;
      return row?.batch ?? null;
    },
    async listBatchesAfter(batch, limit) {
      const rows = await sql<Batch[]>`
        select batch, previous, hash, entries from gateway.audit_batches
        where batch > ${batch} order by batch limit ${limit}`;
      return [...rows];
    },
    async listLinkedEntries(batch) {
      const rows = await sql<LinkedEntry[]>`
        select l.entry_id as "entryId", l.digest,
          case when e.entry_id is null then null else ${entryText(sql)} end as entry
        from gateway.audit_links l left join gateway.audit_entries e using (entry_id)
        where l.batch = ${batch} order by l.position`;
      return [...rows];
    },
    async listUnlinkedEntries(limit) {
      const rows = await sql<{ entryId: string }[]>`
        select e.entry_id as "entryId" from gateway.audit_entries e
        where not exists (select 1 from gateway.audit_links l where l.entry_id = e.entry_id)
          and not exists (select 1 from gateway.audit_pending p where p.entry_id = e.entry_id)
        order by e.entry_id limit ${limit}`;
      return rows.map(({ entryId }) => entryId);
    },
    async hasRetentionEntry(batch) {
      const [row] = await sql`
        select 1 from gateway.audit_entries
        where action = ${retentionAction} and diff ->> 'through_batch' = ${String(batch)} limit 1`;
      return row !== undefined;
    },
  };
}

function retentionQueries(): Pick<AuditStore, 'findLastBatchOlderThan' | 'deleteThrough'> {
  return {
    async findLastBatchOlderThan(tx, days) {
      const [row] = await tx<{ batch: bigint | null }[]>`
        select max(batch) as batch from gateway.audit_batches
        where day < (gateway.townhall_now() at time zone 'UTC')::date - ${days}::integer`;
      return row?.batch ?? null;
    },
    async deleteThrough(tx, batch) {
      // The table's trigger refuses any delete unless the transaction has this setting.
      await tx`select set_config('townhall.audit_retention', 'on', true)`;
      const deletedRows = await tx`
        delete from gateway.audit_entries
        where entry_id in (select entry_id from gateway.audit_links where batch <= ${batch})`;
      await tx`delete from gateway.audit_links where batch <= ${batch}`;
      await tx`delete from gateway.audit_batches where batch <= ${batch}`;
      await tx`select set_config('townhall.audit_retention', '', true)`;
      return deletedRows.count;
    },
  };
}

// The order and format of the members do not depend on the connection's settings: anyone must be able to
// compute the same hashes again later.
function entryText(sql: Sql) {
  return sql`array[e.entry_id, to_char(e.at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), e.actor_kind, e.actor_id,
    e.token_id, e.address, e.request_id, e.action, e.target_kind, e.target_id, e.outcome, e.diff::text]`;
}
