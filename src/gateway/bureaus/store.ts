// SQL of the Bureaus table, and subqueries on it for queries of other services.
import type { Database, Sql, Tx } from '../../kernel/data/database.ts';
import type { BureauState } from './lifecycle.ts';

export interface BureauLimits {
  requests_per_minute?: number;
}

/**
 * A tenant of the gateway. Where `models`, `limits` and `startingCredits` are null,
 * the server's settings apply.
 */
export interface Bureau {
  bureauId: string;
  name: string;
  state: BureauState;
  serverUrl: string;
  redirectOrigins: string[];
  /** The addresses to which the login page may return, as the URL parser writes them. */
  redirectUris: string[];
  /** Six hexadecimal digits in lower case; null means the login page's own colour. */
  color: string | null;
  models: string[] | null;
  limits: BureauLimits | null;
  startingCredits: bigint | null;
  metadata: Record<string, unknown>;
  createdAt: Date;
  updatedAt: Date;
  archivedAt: Date | null;
}

/** The members that an administrator can set. */
export type BureauSettings = Pick<
  Bureau,
  | 'name'
  | 'serverUrl'
  | 'redirectOrigins'
  | 'redirectUris'
  | 'color'
  | 'models'
  | 'limits'
  | 'startingCredits'
  | 'metadata'
>;

/** A piece of SQL within another query. */
export type SqlFragment = ReturnType<Sql['unsafe']>;

/** Creation time in microseconds and ID of the last Bureau of the previous page. */
export type BureauCursor = [createdAt: string, bureauId: string];

/** The members of a Bureau that the in-memory cache of active Bureaus keeps. */
export type ActiveBureau = Pick<
  Bureau,
  'bureauId' | 'limits' | 'redirectOrigins' | 'redirectUris' | 'serverUrl'
>;

export interface BureausStore {
  /** Returns false, and changes nothing, when the ID exists. */
  insertIfAbsent(bureau: Pick<Bureau, 'bureauId' | 'name' | 'serverUrl'>): Promise<boolean>;
  find(bureauId: string): Promise<Bureau | null>;
  list(after: BureauCursor | null, count: number): Promise<(Bureau & { createdAtText: string })[]>;
  /** This and the next two are subqueries for queries of other tables; `column` there has the Bureau's ID. */
  stateOf(sql: Sql, column: string): SqlFragment;
  modelsOf(sql: Sql, column: string): SqlFragment;
  startingCreditsOf(sql: Sql, column: string): SqlFragment;
  listActive(): Promise<ActiveBureau[]>;
  tx<T>(work: (tx: Tx) => Promise<T>): Promise<T>;
  /** Null when the ID exists. */
  insert(tx: Tx, bureauId: string, settings: BureauSettings): Promise<Bureau | null>;
  /** Locks the row until the transaction ends. */
  lock(tx: Tx, bureauId: string): Promise<Bureau | null>;
  update(tx: Tx, bureauId: string, settings: BureauSettings): Promise<Bureau>;
  setState(tx: Tx, bureauId: string, state: BureauState): Promise<Bureau>;
}

export function bureausStore(database: Database): BureausStore {
  return {
    tx: (work) => database.tx(work),
    ...readQueries(database.sql),
    ...writeQueries(database.sql),
    ...subqueries,
  };
}

function readQueries(sql: Sql): Pick<BureausStore, 'find' | 'list' | 'listActive'> {
  return {
    async find(bureauId) {
      const [bureau] = await sql<Bureau[]>`
        select ${columns(sql)} from gateway.bureaus_records where bureau_id = ${bureauId}`;
      return bureau ?? null;
    },
    async list(after, count) {
      const rows = await sql<(Bureau & { createdAtText: string })[]>`
        select ${columns(sql)}, created_at::text as "createdAtText" from gateway.bureaus_records
        -- Cast from text: a timestamp parameter would lose its microseconds.
        where ${
          after === null
            ? sql`true`
            : sql`(created_at, bureau_id) > (${after[0]}::text::timestamptz, ${after[1]})`
        }
        order by created_at, bureau_id limit ${count}`;
      return [...rows];
    },
    async listActive() {
      const rows = await sql<ActiveBureau[]>`
        select bureau_id as "bureauId", limits, redirect_origins as "redirectOrigins",
          redirect_uris as "redirectUris", server_url as "serverUrl"
        from gateway.bureaus_records where state = 'active'`;
      return [...rows];
    },
  };
}

function writeQueries(
  sql: Sql,
): Pick<BureausStore, 'insertIfAbsent' | 'insert' | 'lock' | 'update' | 'setState'> {
  return {
    async insertIfAbsent({ bureauId, name, serverUrl }) {
      const rows = await sql`
        insert into gateway.bureaus_records (bureau_id, name, server_url)
        values (${bureauId}, ${name}, ${serverUrl})
        on conflict (bureau_id) do nothing
        returning 1`;
      return rows.length > 0;
    },
    async insert(tx, bureauId, settings) {
      const [bureau] = await tx<Bureau[]>`
        insert into gateway.bureaus_records (bureau_id, name, server_url, redirect_origins,
          redirect_uris, color, models, limits, starting_credits, metadata)
        values (${bureauId}, ${settings.name}, ${settings.serverUrl}, ${settings.redirectOrigins}::text[],
          ${settings.redirectUris}::text[], ${settings.color}, ${settings.models}::text[],
          ${json(tx, settings.limits)}, ${settings.startingCredits}, ${json(tx, settings.metadata)})
        on conflict (bureau_id) do nothing
        returning ${columns(tx)}`;
      return bureau ?? null;
    },
    async lock(tx, bureauId) {
      const [bureau] = await tx<Bureau[]>`
        select ${columns(tx)} from gateway.bureaus_records where bureau_id = ${bureauId} for update`;
      return bureau ?? null;
    },
    async update(tx, bureauId, settings) {
      const [bureau] = await tx<Bureau[]>`
        update gateway.bureaus_records set name = ${settings.name}, server_url = ${settings.serverUrl},
          redirect_origins = ${settings.redirectOrigins}::text[],
          redirect_uris = ${settings.redirectUris}::text[], color = ${settings.color},
          models = ${settings.models}::text[], limits = ${json(tx, settings.limits)},
          starting_credits = ${settings.startingCredits}, metadata = ${json(tx, settings.metadata)},
          updated_at = gateway.townhall_now()
        where bureau_id = ${bureauId} returning ${columns(tx)}`;
      return requireBureau(bureau);
    },
    async setState(tx, bureauId, state) {
      const [bureau] = await tx<Bureau[]>`
        update gateway.bureaus_records set state = ${state}, updated_at = gateway.townhall_now(),
          archived_at = case when ${state} = 'archived' then gateway.townhall_now() end
        where bureau_id = ${bureauId} returning ${columns(tx)}`;
      return requireBureau(bureau);
    },
  };
}

const subqueries: Pick<BureausStore, 'stateOf' | 'modelsOf' | 'startingCreditsOf'> = {
  stateOf: (sql, column) => sql`(select state from gateway.bureaus_records where bureau_id = ${sql(column)})`,
  modelsOf: (sql, column) =>
    sql`(select models from gateway.bureaus_records where bureau_id = ${sql(column)})`,
  startingCreditsOf: (sql, column) =>
    sql`(select starting_credits from gateway.bureaus_records where bureau_id = ${sql(column)})`,
};

function columns(sql: Sql) {
  return sql`bureau_id as "bureauId", name, state, server_url as "serverUrl",
    redirect_origins as "redirectOrigins", redirect_uris as "redirectUris", color, models, limits,
    starting_credits as "startingCredits", metadata, created_at as "createdAt",
    updated_at as "updatedAt", archived_at as "archivedAt"`;
}

function json(sql: Sql, value: object | null) {
  return value === null ? null : sql.json(value as Parameters<Sql['json']>[0]);
}

function requireBureau(bureau: Bureau | undefined): Bureau {
  if (!bureau) throw new Error('The Bureau of this transaction does not exist.');
  return bureau;
}
