// SQL of stored responses. All texts are sealed; all times are by the clock of the database.
import type { Database, Sql, Tx } from '../../../../kernel/data/database.ts';
import type { Owner } from '../../calls/owner.ts';

/** The table of the sealed texts. Each seal contains this name, so a text opens in this table only. */
export const sealedTable = 'gateway.ai_responses';

export interface ResponseAddress {
  responseId: string;
  /** The only caller that may read the response. */
  owner: Owner;
}

export interface StoredResponseRow extends ResponseAddress {
  previousId: string | null;
  input: string;
  response: string;
  bytes: number;
  /** The lease of the process that runs the response; absent for a final one. */
  leaseSeconds?: number;
}

/** A response as it is stored. */
export interface SealedResponse extends SealedTexts {
  previousId: string | null;
  /** `abandoned`: the response is not final, but its process no longer renews the lease. */
  state: 'final' | 'running' | 'abandoned';
}

/** One response of a conversation. */
export interface ChainLink {
  responseId: string;
  previousId: string | null;
  bytes: number;
}

export interface SealedTexts {
  responseId: string;
  input: string;
  response: string;
}

export interface StoredResponsesStore extends ResponseQueries, LeaseQueries {}

/** Queries of responses that run, in this process or another one. */
interface LeaseQueries {
  /** Replaces a running response with its final version. False when it is already final, or deleted. */
  finish(row: Pick<StoredResponseRow, 'responseId' | 'response'>): Promise<boolean>;
  requestCancel(address: ResponseAddress): Promise<void>;
  renewLeases(responseIds: readonly string[], leaseSeconds: number): Promise<void>;
  /** The responses among these that run and are neither canceled nor deleted. */
  findUncanceled(responseIds: readonly string[]): Promise<string[]>;
  /** Running responses with an expired lease, or with `all` every running response; never `runningIds`. */
  findAbandoned(options: {
    all: boolean;
    runningIds: ReadonlySet<string>;
    limit: number;
  }): Promise<SealedTexts[]>;
}

interface ResponseQueries {
  /** Stores the response, and extends the retention of all responses that it continues to its own. */
  insert(
    row: StoredResponseRow,
    keepSeconds: number,
    alongside?: (tx: Tx) => Promise<unknown>,
  ): Promise<void>;
  find(address: ResponseAddress): Promise<SealedResponse | null>;
  /** The response and all responses that it continues, newest first; at most `limit` of them. */
  chain(address: ResponseAddress, limit: number): Promise<ChainLink[]>;
  read(owner: Owner, responseIds: readonly string[]): Promise<SealedTexts[]>;
  /** False when there is no such response. */
  remove(address: ResponseAddress): Promise<boolean>;
  /** Deletes the owner's oldest responses beyond `maxBytes`, but neither running ones nor the newest one. */
  deleteBeyond(owner: Owner, maxBytes: number): Promise<void>;
  /** Returns the number of deleted responses. */
  deleteExpired(limit: number): Promise<number>;
}

// The quota counts this flat amount for each row in addition to its texts.
const rowBytes = 1_024;
// The object id of PostgreSQL's type `text`.
const textType = 25;

export function storedResponsesStore(database: Database): StoredResponsesStore {
  return { ...responseQueries(database), ...leaseQueries(database) };
}

function responseQueries({ sql, tx: transaction }: Database): ResponseQueries {
  return {
    insert: (row, keepSeconds, alongside) =>
      transaction(async (tx) => {
        await insertRow(tx, row, keepSeconds);
        await alongside?.(tx);
        if (row.previousId !== null) await extendChain(tx, row);
      }),
    async find({ responseId, owner }) {
      const [row] = await sql<SealedResponse[]>`
        select response_id as "responseId", previous_id as "previousId", input, response,
          case
            when run_lease is null then 'final'
            when run_lease > gateway.townhall_now() then 'running'
            else 'abandoned'
          end as state
        from gateway.ai_responses
        where response_id = ${responseId} and ${isOf(sql, owner)} and keep_until > gateway.townhall_now()`;
      return row ?? null;
    },
    async chain(address, limit) {
      const rows = await sql<(Omit<ChainLink, 'bytes'> & { bytes: bigint })[]>`
        ${chainOf(sql, address)}
        select response_id as "responseId", previous_id as "previousId", bytes
        from chain order by depth limit ${limit}`;
      return rows.map((row) => ({ ...row, bytes: Number(row.bytes) }));
    },
    async read(owner, responseIds) {
      const rows = await sql<SealedTexts[]>`
        select response_id as "responseId", input, response from gateway.ai_responses
        where response_id = any(${sql.array([...responseIds], textType)}) and ${isOf(sql, owner)}
          and keep_until > gateway.townhall_now()`;
      return [...rows];
    },
    async remove({ responseId, owner }) {
      const rows = await sql`
        delete from gateway.ai_responses
        where response_id = ${responseId} and ${isOf(sql, owner)} and keep_until > gateway.townhall_now()
        returning 1`;
      return rows.length > 0;
    },
    async deleteBeyond(owner, maxBytes) {
      await sql`
        delete from gateway.ai_responses where response_id in (
          select response_id from (
            select response_id, sum(bytes) over newest as total, row_number() over newest as place
            from gateway.ai_responses where ${isOf(sql, owner)}
            window newest as (order by keep_until desc, created_at desc, response_id desc)
          ) ranked where total > ${maxBytes} and place > 1) and run_lease is null`;
    },
    async deleteExpired(limit) {
      const rows = await sql`
        delete from gateway.ai_responses where response_id in (
          select response_id from gateway.ai_responses where keep_until <= gateway.townhall_now()
          order by keep_until limit ${limit} for update skip locked) returning 1`;
      return rows.length;
    },
  };
}

function leaseQueries({ sql }: Database): LeaseQueries {
  return {
    async finish({ responseId, response }) {
      const rows = await sql`
        update gateway.ai_responses set response = ${response}, run_lease = null,
          bytes = octet_length(input) + ${response.length} + ${rowBytes}
        where response_id = ${responseId} and run_lease is not null returning 1`;
      return rows.length > 0;
    },
    async requestCancel({ responseId, owner }) {
      await sql`
        update gateway.ai_responses set cancel_requested = true
        where response_id = ${responseId} and ${isOf(sql, owner)} and run_lease is not null`;
    },
    async renewLeases(responseIds, leaseSeconds) {
      await sql`
        update gateway.ai_responses
        set run_lease = gateway.townhall_now() + make_interval(secs => ${leaseSeconds})
        where response_id = any(${sql.array([...responseIds], textType)}) and run_lease is not null`;
    },
    async findUncanceled(responseIds) {
      const rows = await sql<{ responseId: string }[]>`
        select response_id as "responseId" from gateway.ai_responses
        where response_id = any(${sql.array([...responseIds], textType)})
          and run_lease is not null and not cancel_requested`;
      return rows.map(({ responseId }) => responseId);
    },
    async findAbandoned({ all, runningIds, limit }) {
      const rows = await sql<SealedTexts[]>`
        select response_id as "responseId", input, response from gateway.ai_responses
        where run_lease is not null and (${all} or run_lease <= gateway.townhall_now())
          and response_id <> all(${sql.array([...runningIds], textType)}) limit ${limit}`;
      return [...rows];
    },
  };
}

async function insertRow(
  sql: Sql,
  { responseId, owner, previousId, input, response, bytes, leaseSeconds }: StoredResponseRow,
  keepSeconds: number,
): Promise<void> {
  await sql`
    insert into gateway.ai_responses
      (response_id, owner_kind, owner_id, previous_id, input, response, bytes, keep_until, run_lease)
    values (
      ${responseId}, ${owner.kind}, ${owner.id}, ${previousId}, ${input}, ${response}, ${bytes + rowBytes},
      gateway.townhall_now() + make_interval(secs => ${keepSeconds}),
      gateway.townhall_now() + make_interval(secs => ${leaseSeconds ?? null}::double precision))`;
}

/** Keeps all responses that this response continues until this response expires. */
async function extendChain(sql: Sql, address: ResponseAddress): Promise<void> {
  await sql`
    ${chainOf(sql, address)}
    update gateway.ai_responses r set keep_until = newest.keep_until
    from chain,
      (select keep_until from gateway.ai_responses where response_id = ${address.responseId}) newest
    where r.response_id = chain.response_id and r.keep_until < newest.keep_until`;
}

/** Condition of the rows of one owner. */
function isOf(sql: Sql, { kind, id }: Owner) {
  return sql`owner_kind = ${kind} and owner_id = ${id}`;
}

// The gateway assigns the ids, so a chain has no cycle; the depth is a bound all the same.
const maxDepth = 10_000;

/** A `with` clause named `chain`: the response and all responses that it continues. */
function chainOf(sql: Sql, { responseId, owner }: ResponseAddress) {
  return sql`
    with recursive chain as (
      select response_id, previous_id, bytes, 1 as depth from gateway.ai_responses
      where response_id = ${responseId} and ${isOf(sql, owner)} and keep_until > gateway.townhall_now()
      union all
      select r.response_id, r.previous_id, r.bytes, chain.depth + 1
      from gateway.ai_responses r join chain on r.response_id = chain.previous_id
      where ${isOf(sql, owner)} and r.keep_until > gateway.townhall_now() and chain.depth < ${maxDepth})`;
}
