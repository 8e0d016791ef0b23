// SQL of stored responses. All texts are sealed; all times are by the clock of the database.
import type { Database, Sql } from '../../../kernel/data/database.ts';

/** The table of the sealed texts, which their seal names. */
export const sealedTable = 'gateway.ai_responses';

/** The only caller that may read a response. */
export interface ResponseOwner {
  kind: 'user' | 'admin';
  id: string;
}

export interface ResponseAddress {
  responseId: string;
  owner: ResponseOwner;
}

export interface StoredResponseRow extends ResponseAddress {
  previousId: string | null;
  input: string;
  response: string;
  bytes: number;
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

export interface StoredResponsesStore {
  /** Stores the response, and keeps those that it continues for as long. */
  insert(row: StoredResponseRow, keepSeconds: number): Promise<void>;
  find(address: ResponseAddress): Promise<(SealedTexts & { previousId: string | null }) | null>;
  /** The response and those that it continues, the newest first; at most `limit` of them. */
  chain(address: ResponseAddress, limit: number): Promise<ChainLink[]>;
  read(owner: ResponseOwner, responseIds: readonly string[]): Promise<SealedTexts[]>;
  /** False when there is no such response. */
  remove(address: ResponseAddress): Promise<boolean>;
  /** Deletes the owner's oldest responses beyond `maxBytes`, never the newest one. */
  deleteBeyond(owner: ResponseOwner, maxBytes: number): Promise<void>;
  /** Returns the number of deleted responses. */
  deleteExpired(limit: number): Promise<number>;
}

// A row needs more than its texts; the quota counts a flat sum for it.
const rowBytes = 1_024;

export function storedResponsesStore({ sql, tx: transaction }: Database): StoredResponsesStore {
  return {
    insert: (row, keepSeconds) =>
      transaction(async (tx) => {
        const { responseId, owner, previousId, input, response, bytes } = row;
        await tx`
          insert into gateway.ai_responses (response_id, owner_kind, owner_id, previous_id, input, response, bytes, keep_until)
          values (${responseId}, ${owner.kind}, ${owner.id}, ${previousId}, ${input}, ${response}, ${bytes + rowBytes},
            gateway.townhall_now() + make_interval(secs => ${keepSeconds}))`;
        if (previousId === null) return;
        await tx`
          ${chainOf(tx, { responseId, owner })}
          update gateway.ai_responses r set keep_until = newest.keep_until
          from chain, (select keep_until from gateway.ai_responses where response_id = ${responseId}) newest
          where r.response_id = chain.response_id and r.keep_until < newest.keep_until`;
      }),
    async find({ responseId, owner }) {
      const [row] = await sql<(SealedTexts & { previousId: string | null })[]>`
        select response_id as "responseId", previous_id as "previousId", input, response from gateway.ai_responses
        where response_id = ${responseId} and owner_kind = ${owner.kind} and owner_id = ${owner.id}
          and keep_until > gateway.townhall_now()`;
      return row ?? null;
    },
    async chain(address, limit) {
      const rows = await sql<(Omit<ChainLink, 'bytes'> & { bytes: bigint })[]>`
        ${chainOf(sql, address)}
        select response_id as "responseId", previous_id as "previousId", bytes from chain order by depth limit ${limit}`;
      return rows.map((row) => ({ ...row, bytes: Number(row.bytes) }));
    },
    async read(owner, responseIds) {
      const rows = await sql<SealedTexts[]>`
        select response_id as "responseId", input, response from gateway.ai_responses
        where response_id = any(${sql.array([...responseIds], 25)}) and owner_kind = ${owner.kind} and owner_id = ${owner.id}
          and keep_until > gateway.townhall_now()`;
      return [...rows];
    },
    async remove({ responseId, owner }) {
      const rows = await sql`
        delete from gateway.ai_responses
        where response_id = ${responseId} and owner_kind = ${owner.kind} and owner_id = ${owner.id}
          and keep_until > gateway.townhall_now() returning 1`;
      return rows.length > 0;
    },
    async deleteBeyond(owner, maxBytes) {
      await sql`
        delete from gateway.ai_responses where response_id in (
          select response_id from (
            select response_id, sum(bytes) over newest as total, row_number() over newest as place
            from gateway.ai_responses where owner_kind = ${owner.kind} and owner_id = ${owner.id}
            window newest as (order by keep_until desc, created_at desc, response_id desc)
          ) kept where total > ${maxBytes} and place > 1)`;
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

// An id is given by the gateway, so a chain has no cycle; the depth is a bound all the same.
const maxDepth = 10_000;

/** `with` clause of the response and those that it continues, as `chain`. */
function chainOf(sql: Sql, { responseId, owner }: ResponseAddress) {
  return sql`
    with recursive chain as (
      select response_id, previous_id, bytes, 1 as depth from gateway.ai_responses
      where response_id = ${responseId} and owner_kind = ${owner.kind} and owner_id = ${owner.id}
        and keep_until > gateway.townhall_now()
      union all
      select r.response_id, r.previous_id, r.bytes, chain.depth + 1
      from gateway.ai_responses r join chain on r.response_id = chain.previous_id
      where r.owner_kind = ${owner.kind} and r.owner_id = ${owner.id}
        and r.keep_until > gateway.townhall_now() and chain.depth < ${maxDepth})`;
}
