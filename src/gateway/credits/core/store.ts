// Queries on accounts, keys, holds and history of the ledger; allotments/sql-store.ts has the
// queries on allotments and journals. Balances change only in database functions (see the
// migrations), so that each change is one statement.
import type { Database, Sql, Tx } from '../../../kernel/data/database.ts';
import type { SettlementAnswer } from '../../../kernel/data/idempotency.ts';
import type { UsageFacts } from '../../usage/index.ts';
import type { PaidCall } from './ports.ts';
import type { LedgerFault, LedgerReader, ReadChunk } from './verify.ts';

/** An operation of a batch. `credits_apply` identifies it by its index in the batch, `op`. */
export type Operation =
  | { kind: 'hold'; holdId: string; accountId: string; call: PaidCall; amount: bigint; isSent: boolean }
  | { kind: 'raise'; holdId: string; accountId: string; amount: bigint }
  | {
      kind: 'settle';
      holdId: string;
      accountId: string;
      credits: bigint;
      facts: UsageFacts;
      answer: SettlementAnswer | null;
      /** Charges nothing when the hold is already resolved: another process may do the work again. */
      isHeldOnly: boolean;
    }
  /** Resolves the hold of a dead process; with `isForced` even if its lease is valid. */
  | { kind: 'recover'; holdId: string; accountId: string; isForced: boolean };

/** Result of an operation. The migration of `credits_apply` documents each verdict. */
export interface Verdict {
  verdict:
    | 'held'
    | 'short'
    | 'raised'
    | 'gone'
    | 'settled'
    | 'repeated'
    | 'late'
    | 'unknown'
    | 'recovered'
    | 'voided'
    | 'alive';
  amount: bigint;
  overrun: bigint;
  /** Credits that the token may spend afterwards; null where the function did not compute them. */
  available: bigint | null;
}

export interface Account {
  accountId: string;
  bureauId: string;
  posted: bigint;
  held: bigint;
  owed: bigint;
  createdAt: Date;
}

/**
 * One change of a user's balance. A transaction that charged several calls has a change for each.
 */
export interface Change {
  txId: bigint;
  /** The usage id of a call that was charged in a batch, else empty. */
  line: string;
  kind: string;
  ref: string;
  credits: bigint;
  reason: string;
  createdAt: Date;
}

/** Identifies the last change of the previous page. */
export type ChangeCursor = [txId: string, line: string];

/** An API key's limit, null for none, and what has been charged to it. */
export interface KeyBudget {
  tokenId: string;
  cap: bigint | null;
  spent: bigint;
}

/** Renewal of a hold's lease, with its latest checkpoint if there is a new one. */
export interface LeaseRenewal {
  holdId: string;
  checkpoint?: { credits: bigint; facts: Partial<UsageFacts> };
}

/** An open hold, of this process or of one that ended. */
export interface ResumedHold {
  amount: bigint;
  accountId: string;
  tokenId: string;
  action: string;
}

export type PostKind = 'starting' | 'grant' | 'payment';
export type TakeKind = 'deduct' | 'refund' | 'dispute';

// Timeout of one chunk of the verification, which may contain an account with millions of entries.
const verifyMs = 10 * 60_000;

export interface CreditsStore extends LedgerReader {
  tx<T>(work: (tx: Tx) => Promise<T>): Promise<T>;
  /** Throws when the database is unavailable. */
  ping(): Promise<void>;
  /** One transaction; the answers are in the order of the operations. */
  apply(operations: readonly Operation[], leaseMs: number, within?: Tx): Promise<Verdict[]>;
  /**
   * Renews leases and writes checkpoints. Returns the ids of the renewed holds, and of those that are already
   * resolved; a hold whose row is locked is in neither list.
   */
  renewLeases(
    renewals: readonly LeaseRenewal[],
    leaseMs: number,
  ): Promise<{ renewed: string[]; resolved: string[] }>;
  /**
   * Resolves up to `limit` holds with an expired lease, or any open ones if forced.
   * An advisory lock lets only one replica recover holds at a time; the others return none.
   */
  recover(options: { isForced: boolean; limit: number }): Promise<Verdict[]>;
  /** Marks an open hold as sent and renews its lease; null when it is resolved. */
  resume(holdId: string, leaseMs: number): Promise<ResumedHold | null>;
  available(userId: string, tokenId: string): Promise<bigint>;
  /** Null when there is no such user. */
  post(
    tx: Tx,
    entry: { userId: string; kind: PostKind; ref: string; credits: bigint; reason: string },
  ): Promise<boolean | null>;
  /** Null when there is no such user. */
  takeBack(
    tx: Tx,
    entry: { userId: string; kind: TakeKind; ref: string; credits: bigint; reason: string; partial: boolean },
  ): Promise<{ taken: bigint; owed: bigint; lacking: bigint } | null>;
  openAccount(tx: Tx, userId: string, bureauId: string): Promise<void>;
  openKey(tx: Tx, key: { tokenId: string; userId: string; cap: bigint | null }): Promise<void>;
  keys(tokenIds: readonly string[]): Promise<KeyBudget[]>;
  findAccount(userId: string, within?: Sql): Promise<Account | null>;
  listAccounts(
    filter: { bureauId: string | undefined },
    page: { after: string | null; limit: number },
  ): Promise<Account[]>;
  listChanges(userId: string, page: { before: ChangeCursor | null; limit: number }): Promise<Change[]>;
  /** Deletes up to `limit` resolved holds older than `days`. Returns the number of deleted rows. */
  dropOldHolds(days: number, limit: number): Promise<number>;
}

export function creditsStore(database: Database): CreditsStore {
  return {
    tx: (work) => database.tx(work),
    ping: () => database.ping(),
    ...holdQueries(database),
    ...balanceQueries(database),
    ...accountQueries(database),
    withVerification: (work) => withVerification(database, work),
  };
}

type HoldQueries = Pick<CreditsStore, 'apply' | 'renewLeases' | 'recover' | 'resume' | 'dropOldHolds'>;

function holdQueries(database: Database): HoldQueries {
  const { sql } = database;
  return {
    apply: (operations, leaseMs, within) => applyOperations(within ?? sql, operations, leaseMs),
    renewLeases: (renewals, leaseMs) => renewLeases(sql, renewals, leaseMs),
    recover: (options) => database.tx((tx) => recoverHolds(tx, options)),
    async resume(holdId, leaseMs) {
      const [row] = await sql<ResumedHold[]>`
        update gateway.credits_holds
        set phase = 'sent', lease_until = gateway.townhall_now() + make_interval(secs => ${leaseMs / 1_000})
        where hold_id = ${holdId} and state = 'held'
        returning amount, account_id as "accountId", token_id as "tokenId", action`;
      return row ?? null;
    },
    async dropOldHolds(days, limit) {
      const result = await sql`
        delete from gateway.credits_holds where hold_id in (
          select hold_id from gateway.credits_holds
          where state <> 'held' and resolved_at < gateway.townhall_now() - make_interval(days => ${days})
          order by resolved_at limit ${limit} for update skip locked)`;
      return result.count;
    },
  };
}

async function applyOperations(
  sql: Sql,
  operations: readonly Operation[],
  leaseMs: number,
): Promise<Verdict[]> {
  const operationsJson = JSON.stringify(operations.map(serializeOperation), bigintToText);
  const rows = await sql<(Verdict & { op: number })[]>`
    select op, verdict, amount, overrun, available
    from gateway.credits_apply(${operationsJson}::text::jsonb, ${leaseMs / 1_000})`;
  const verdicts = new Map(rows.map(({ op, ...verdict }) => [op, verdict]));
  return operations.map((_, op) => {
    const verdict = verdicts.get(op);
    if (verdict === undefined)
      throw new Error('The function credits_apply returned no row for an operation.');
    return verdict;
  });
}

async function renewLeases(
  sql: Sql,
  renewals: readonly LeaseRenewal[],
  leaseMs: number,
): Promise<{ renewed: string[]; resolved: string[] }> {
  const renewalsJson = JSON.stringify(
    renewals.map(({ holdId, checkpoint }) => ({
      hold_id: holdId,
      credits: checkpoint?.credits ?? null,
      facts: checkpoint?.facts ?? null,
    })),
    bigintToText,
  );
  // Skip locked rows: another transaction settles or renews them, and waiting could deadlock.
  const rows = await sql<{ holdId: string; isRenewed: boolean }[]>`
    with renewals as (
      select * from jsonb_to_recordset(${renewalsJson}::text::jsonb)
        as b (hold_id text, credits bigint, facts jsonb)),
    open as (
      select h.hold_id from gateway.credits_holds h
      where h.hold_id = any(array(select hold_id from renewals)) and h.state = 'held'
      order by h.hold_id for update skip locked),
    renewed as (
      update gateway.credits_holds h
      set lease_until = gateway.townhall_now() + make_interval(secs => ${leaseMs / 1_000}),
        checkpoint = coalesce(b.credits, h.checkpoint),
        facts = h.facts || coalesce(nullif(b.facts, 'null'), '{}')
      from open join renewals b using (hold_id) where h.hold_id = open.hold_id
      returning h.hold_id)
    select hold_id as "holdId", true as "isRenewed" from renewed
    union all
    select h.hold_id, false from gateway.credits_holds h
    where h.hold_id = any(array(select hold_id from renewals)) and h.state <> 'held'`;
  const idsWhere = (isRenewed: boolean) =>
    rows.filter((row) => row.isRenewed === isRenewed).map(({ holdId }) => holdId);
  return { renewed: idsWhere(true), resolved: idsWhere(false) };
}

async function recoverHolds(
  tx: Tx,
  { isForced, limit }: { isForced: boolean; limit: number },
): Promise<Verdict[]> {
  const [lock] = await tx<{ isOurs: boolean }[]>`
    select pg_try_advisory_xact_lock(hashtextextended('townhall.credits.recover', 0)) as "isOurs"`;
  if (lock?.isOurs !== true) return [];
  const holds = await tx<{ holdId: string; accountId: string }[]>`
    select hold_id as "holdId", account_id as "accountId" from gateway.credits_holds
    where state = 'held' ${isForced ? tx`` : tx`and lease_until < gateway.townhall_now()`}
    order by lease_until limit ${limit}`;
  if (holds.length === 0) return [];
  const operations = holds.map((hold) => ({ kind: 'recover' as const, ...hold, isForced }));
  return applyOperations(tx, operations, 0);
}

type BalanceQueries = Pick<CreditsStore, 'available' | 'post' | 'takeBack'>;

function balanceQueries({ sql }: Database): BalanceQueries {
  return {
    async available(userId, tokenId) {
      const [row] = await sql<{ available: bigint }[]>`
        select least(a.posted - a.held + i.account, k.cap - k.spent - k.held + i.key) as available
        from gateway.credits_accounts a left join gateway.credits_keys k on k.token_id = ${tokenId},
          lateral (
            select coalesce(sum(o.amount - o.reserved - o.unapplied), 0)::bigint as account,
              coalesce(
                sum(o.amount - o.reserved - o.unapplied) filter (where o.token_id = ${tokenId}), 0
              )::bigint as key
            from gateway.credits_allotments o
            where o.account_id = a.account_id and o.ended_at is null and not o.is_closed) i
        where a.account_id = ${userId}`;
      return row?.available ?? 0n;
    },
    async post(tx, { userId, kind, ref, credits, reason }) {
      const [row] = await tx<{ isNew: boolean | null }[]>`
        select gateway.credits_post(${userId}, ${kind}, ${ref}, ${credits}, ${reason}) as "isNew"`;
      return row?.isNew ?? null;
    },
    async takeBack(tx, { userId, kind, ref, credits, reason, partial }) {
      const [row] = await tx<{ taken: bigint; owed: bigint; lacking: bigint }[]>`
        select taken, owed, lacking
        from gateway.credits_take_back(${userId}, ${kind}, ${ref}, ${credits}, ${reason}, ${partial})`;
      return row ?? null;
    },
  };
}

type AccountQueries = Pick<
  CreditsStore,
  'openAccount' | 'openKey' | 'keys' | 'findAccount' | 'listAccounts' | 'listChanges'
>;

function accountQueries({ sql }: Database): AccountQueries {
  return {
    async openAccount(tx, userId, bureauId) {
      await tx`
        insert into gateway.credits_accounts (account_id, bureau_id)
        values (${userId}, ${bureauId}) on conflict do nothing`;
    },
    async openKey(tx, { tokenId, userId, cap }) {
      await tx`
        insert into gateway.credits_keys (token_id, account_id, cap)
        values (${tokenId}, ${userId}, ${cap})`;
    },
    async keys(tokenIds) {
      if (tokenIds.length === 0) return [];
      const rows = await sql<KeyBudget[]>`
        select token_id as "tokenId", cap, spent from gateway.credits_keys
        where token_id = any(${sql.array([...tokenIds], 25)})`;
      return [...rows];
    },
    async findAccount(userId, within = sql) {
      const [row] = await within<Account[]>`
        select ${accountColumns(within)} from gateway.credits_accounts a where account_id = ${userId}`;
      return row ?? null;
    },
    async listAccounts({ bureauId }, { after, limit }) {
      const rows = await sql<Account[]>`
        select ${accountColumns(sql)} from gateway.credits_accounts a
        where true ${bureauId === undefined ? sql`` : sql`and bureau_id = ${bureauId}`}
          ${after === null ? sql`` : sql`and account_id > ${after}`}
        order by account_id limit ${limit + 1}`;
      return [...rows];
    },
    async listChanges(userId, { before, limit }) {
      // tx_id grows in commit order within an account, as it is assigned under the account's lock.
      const [beforeTx, beforeLine] = before ?? [null, null];
      const rows = await sql<Change[]>`
        select tx_id as "txId", line, kind, ref, credits, reason, created_at as "createdAt"
        from gateway.credits_history(${userId}, ${beforeTx}::text::bigint, ${beforeLine}, ${limit + 1})`;
      return [...rows];
    },
  };
}

async function withVerification<Result>(
  database: Database,
  work: (readChunk: ReadChunk) => Promise<Result>,
): Promise<Result> {
  const session = database.session({ deadlineMs: verifyMs });
  const readChunk =
    (chunkSql: Sql): ReadChunk =>
    async (part, { after, size, days }) => {
      const rows: LedgerFault[] = await chunkSql<LedgerFault[]>`
        select finding as fault, subject as row, expected, found
        from ${chunkSql.unsafe(`gateway.credits_verify_${part}`)}(${after}, ${size}, ${days})`;
      // The last row is no fault: it has the number of checked rows, and the key of the next chunk or null.
      const last: { row: string | null; expected: string | null } | undefined = rows.pop();
      return { faults: rows, rowCount: Number(last?.expected ?? 0), next: last?.row ?? null };
    };
  try {
    // The embedded engine has one session: a transaction over all chunks would
    // block every call. Each chunk is one statement, which sees one moment.
    if (database.engine === 'embedded') return await work(readChunk(session.sql));
    return await session.tx(async (tx) => {
      await tx`set transaction isolation level repeatable read, read only`;
      return work(readChunk(tx));
    });
  } finally {
    await session.close();
  }
}

// The held credits of an account are its holds plus the reserved and unapplied credits of its
// allotments. Idle credits of an allotment count as available, unless the account has a debt.
function accountColumns(sql: Sql) {
  return sql`account_id as "accountId", bureau_id as "bureauId", posted, owed, created_at as "createdAt",
    held - (
      select coalesce(sum(o.amount - o.reserved - o.unapplied), 0)::bigint from gateway.credits_allotments o
      where o.account_id = a.account_id and o.ended_at is null and a.owed = 0) as held`;
}

/** The JSON that `credits_apply` reads. */
function serializeOperation(operation: Operation, op: number): object {
  switch (operation.kind) {
    case 'hold': {
      const { holdId, accountId, call, amount, isSent } = operation;
      return {
        op,
        kind: 'hold',
        hold_id: holdId,
        account_id: accountId,
        bureau_id: call.bureauId,
        ...callMembers(call),
        amount,
        is_sent: isSent,
      };
    }
    case 'raise':
      return {
        op,
        kind: 'raise',
        hold_id: operation.holdId,
        account_id: operation.accountId,
        amount: operation.amount,
      };
    case 'settle':
      return {
        op,
        kind: 'settle',
        hold_id: operation.holdId,
        account_id: operation.accountId,
        credits: operation.credits,
        facts: operation.facts,
        answer: operation.answer,
        is_held_only: operation.isHeldOnly,
      };
    case 'recover':
      return {
        op,
        kind: 'recover',
        hold_id: operation.holdId,
        account_id: operation.accountId,
        is_forced: operation.isForced,
      };
  }
}

function callMembers({ tokenId, requestId, action, model, provider }: PaidCall): object {
  return { token_id: tokenId, request_id: requestId, action, model, provider };
}

// JSON numbers are exact up to 2^53 only; the database casts from text.
function bigintToText(_key: string, value: unknown): unknown {
  return typeof value === 'bigint' ? String(value) : value;
}
