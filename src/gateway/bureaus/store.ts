// The table of Bureaus, and the only file that names it.
import type { Database, Sql, Tx } from '../../kernel/data/database.ts';
import type { BureauState } from './lifecycle.ts';

export interface BureauLimits {
  requests_per_minute?: number;
}

/** A tenant of the gateway. `models`, `limits` and `startingCredits` are null where the server's own apply. */
export interface Bureau {
  bureauId: string;
  name: string;
  state: BureauState;
  serverUrl: string;
  redirectOrigins: string[];
  models: string[] | null;
  limits: BureauLimits | null;
  startingCredits: bigint | null;
  metadata: Record<string, unknown>;
  createdAt: Date;
  updatedAt: Date;
  archivedAt: Date | null;
}

/** What an administrator may set. */
export type BureauSettings = Pick<
  Bureau,
  'name' | 'serverUrl' | 'redirectOrigins' | 'models' | 'limits' | 'startingCredits' | 'metadata'
>;

/** A piece of SQL that goes into another query. */
export type SqlFragment = ReturnType<Sql['unsafe']>;

/** Where a page begins: the time, to the microsecond, and the id of the last Bureau before it. */
export type BureauCursor = [createdAt: string, bureauId: string];

export interface BureausStore {
  /** Without effect when the Bureau exists, whatever its members are; says whether it was made. */
  insertIfAbsent(bureau: Pick<Bureau, 'bureauId' | 'name' | 'serverUrl'>): Promise<boolean>;
  find(bureauId: string): Promise<Bureau | null>;
  list(after: BureauCursor | null, count: number): Promise<(Bureau & { createdAtText: string })[]>;
  stateOf(sql: Sql, column: string): SqlFragment;
  modelsOf(sql: Sql, column: string): SqlFragment;
  startingCreditsOf(sql: Sql, column: string): SqlFragment;
  /** The Bureaus with limits of their own. */
  /** Of the Bureaus that are served. */
  listServed(): Promise<Pick<Bureau, 'bureauId' | 'limits' | 'redirectOrigins' | 'serverUrl'>[]>;
  tx<T>(work: (tx: Tx) => Promise<T>): Promise<T>;
  /** Null when the id is taken. */
  insert(tx: Tx, bureauId: string, settings: BureauSettings): Promise<Bureau | null>;
  /** Nobody else can change the Bureau until the transaction ends. */
  lock(tx: Tx, bureauId: string): Promise<Bureau | null>;
  update(tx: Tx, bureauId: string, settings: BureauSettings): Promise<Bureau>;
  setState(tx: Tx, bureauId: string, state: BureauState): Promise<Bureau>;
}

export function bureausStore(database: Database): BureausStore {
  const { sql } = database;
  return {
    async insertIfAbsent({ bureauId, name, serverUrl }) {
      const made = await sql`
        insert into gateway.bureaus_records (bureau_id, name, server_url) values (${bureauId}, ${name}, ${serverUrl})
        on conflict (bureau_id) do nothing
        returning 1`;
      return made.length > 0;
    },
    async find(bureauId) {
      const [found] = await sql<
        Bureau[]
      >`select ${columns(sql)} from gateway.bureaus_records where bureau_id = ${bureauId}`;
      return found ?? null;
    },
    async list(after, count) {
      const rows = await sql<(Bureau & { createdAtText: string })[]>`
        select ${columns(sql)}, created_at::text as place from gateway.bureaus_records
        -- By way of text: a parameter that is a time itself would come with milliseconds only.
        where ${after === null ? sql`true` : sql`(created_at, bureau_id) > (${after[0]}::text::timestamptz, ${after[1]})`}
        order by created_at, bureau_id limit ${count}`;
      return [...rows];
    },
    stateOf: (own, column) =>
      own`(select state from gateway.bureaus_records where bureau_id = ${own(column)})`,
    modelsOf: (own, column) =>
      own`(select models from gateway.bureaus_records where bureau_id = ${own(column)})`,
    startingCreditsOf: (own, column) =>
      own`(select starting_credits from gateway.bureaus_records where bureau_id = ${own(column)})`,
    async listServed() {
      return [
        ...(await sql<Pick<Bureau, 'bureauId' | 'limits' | 'redirectOrigins' | 'serverUrl'>[]>`
        select bureau_id as "bureauId", limits, redirect_origins as "redirectOrigins", server_url as "serverUrl"
        from gateway.bureaus_records where state = 'active'`),
      ];
    },
    tx: (work) => database.tx(work),
    async insert(tx, bureauId, settings) {
      const [made] = await tx<Bureau[]>`
        insert into gateway.bureaus_records (bureau_id, name, server_url, redirect_origins, models, limits, starting_credits, metadata)
        values (${bureauId}, ${settings.name}, ${settings.serverUrl}, ${settings.redirectOrigins}::text[],
          ${settings.models}::text[], ${json(tx, settings.limits)}, ${settings.startingCredits}, ${json(tx, settings.metadata)})
        on conflict (bureau_id) do nothing
        returning ${columns(tx)}`;
      return made ?? null;
    },
    async lock(tx, bureauId) {
      const [found] = await tx<Bureau[]>`
        select ${columns(tx)} from gateway.bureaus_records where bureau_id = ${bureauId} for update`;
      return found ?? null;
    },
    async update(tx, bureauId, settings) {
      const [changed] = await tx<Bureau[]>`
        update gateway.bureaus_records set name = ${settings.name}, server_url = ${settings.serverUrl},
          redirect_origins = ${settings.redirectOrigins}::text[], models = ${settings.models}::text[],
          limits = ${json(tx, settings.limits)}, starting_credits = ${settings.startingCredits},
          metadata = ${json(tx, settings.metadata)}, updated_at = gateway.townhall_now()
        where bureau_id = ${bureauId} returning ${columns(tx)}`;
      return present(changed);
    },
    async setState(tx, bureauId, state) {
      const [moved] = await tx<Bureau[]>`
        update gateway.bureaus_records set state = ${state}, updated_at = gateway.townhall_now(),
          archived_at = case when ${state} = 'archived' then gateway.townhall_now() end
        where bureau_id = ${bureauId} returning ${columns(tx)}`;
      return present(moved);
    },
  };
}

function columns(sql: Sql) {
  return sql`bureau_id as "bureauId", name, state, server_url as "serverUrl", redirect_origins as "redirectOrigins", models,
    limits, starting_credits as "startingCredits", metadata, created_at as "createdAt", updated_at as "updatedAt",
    archived_at as "archivedAt"`;
}

function json(sql: Sql, value: object | null) {
  return value === null ? null : sql.json(value as Parameters<Sql['json']>[0]);
}

function present(bureau: Bureau | undefined): Bureau {
  if (!bureau) throw new Error('A Bureau that was locked is gone.');
  return bureau;
}
