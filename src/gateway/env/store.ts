// SQL for environment variables. It stores and returns encrypted values only.
import type { Database, Sql, Tx } from '../../kernel/data/database.ts';

/** The table names to which sealed values are bound; see `SealContext`. */
export const variablesTable = 'gateway.env_variables';
export const canaryTable = 'gateway.env_canary';

export interface SealedVariable {
  key: string;
  sealed: string;
  version: number;
}

export interface StoredVariable extends SealedVariable {
  updatedAt: Date;
}

export interface EnvStore {
  /** Works before the migrations: reports nothing sealed when the tables do not exist. */
  survey(): Promise<{ canary: string | null; variableCount: number }>;
  /** Has no effect when there is a canary already. */
  insertCanary(sealed: string): Promise<void>;
  /** Sorted by key. */
  list(): Promise<StoredVariable[]>;
  tx<T>(work: (tx: Tx) => Promise<T>): Promise<T>;
  /**
   * Reads and locks the canary until the transaction ends. Writes of values run one after another: otherwise
   * two first writes of one key would both find no former value to record.
   */
  lockCanary(tx: Tx): Promise<string>;
  replaceCanary(tx: Tx, sealed: string): Promise<void>;
  /** Versions that are unique over all writes. */
  newVersions(tx: Tx, count: number): Promise<number[]>;
  /** The stored variables, or those of the keys, locked until the transaction ends. */
  listForUpdate(tx: Tx, keys?: readonly string[]): Promise<StoredVariable[]>;
  /** Returns the time of the write. Throws for an empty list. */
  upsert(tx: Tx, variables: readonly SealedVariable[]): Promise<Date>;
  /** Replaces sealed values and versions, and keeps the times of the last writes. */
  reseal(tx: Tx, variables: readonly SealedVariable[]): Promise<void>;
  remove(tx: Tx, key: string): Promise<boolean>;
}

interface Row {
  key: string;
  sealed: string;
  version: bigint;
  updatedAt: Date;
}

export function envStore({ sql, tx: transact }: Database): EnvStore {
  return {
    tx: transact,
    ...canaryQueries(sql),
    ...variableQueries(sql),
  };
}

function canaryQueries(sql: Sql): Pick<EnvStore, 'survey' | 'insertCanary' | 'lockCanary' | 'replaceCanary'> {
  return {
    async survey() {
      const [tables] = await sql<{ exists: boolean }[]>`
        select to_regclass(${canaryTable}) is not null and to_regclass(${variablesTable}) is not null as exists`;
      if (!tables?.exists) return { canary: null, variableCount: 0 };
      const [row] = await sql<{ canary: string | null; variableCount: bigint }[]>`
        select (select sealed from gateway.env_canary) as canary,
          (select count(*) from gateway.env_variables) as "variableCount"`;
      return { canary: row?.canary ?? null, variableCount: Number(row?.variableCount ?? 0n) };
    },
    async insertCanary(sealed) {
      await sql`insert into gateway.env_canary (sealed) values (${sealed}) on conflict do nothing`;
    },
    async lockCanary(tx) {
      const [row] = await tx<{ sealed: string }[]>`select sealed from gateway.env_canary for update`;
      if (row === undefined) throw new Error('The canary of the master key is missing.');
      return row.sealed;
    },
    async replaceCanary(tx, sealed) {
      await tx`update gateway.env_canary set sealed = ${sealed}`;
    },
  };
}

function variableQueries(
  sql: Sql,
): Pick<EnvStore, 'list' | 'newVersions' | 'listForUpdate' | 'upsert' | 'reseal' | 'remove'> {
  return {
    async list() {
      const rows = await sql<Row[]>`
        select key, sealed, version, updated_at as "updatedAt" from gateway.env_variables
        order by key collate "C"`;
      return rows.map(fromRow);
    },
    async newVersions(tx, count) {
      const rows = await tx<{ version: bigint }[]>`
        select nextval('gateway.env_versions') as version from generate_series(1, ${count}::int)`;
      return rows.map(({ version }) => Number(version));
    },
    async listForUpdate(tx, keys) {
      const rows = await tx<Row[]>`
        select key, sealed, version, updated_at as "updatedAt" from gateway.env_variables
        ${keys === undefined ? tx`` : tx`where key = any(${[...keys]}::text[])`}
        order by key collate "C" for update`;
      return rows.map(fromRow);
    },
    async upsert(tx, variables) {
      // Sort by key, as `listForUpdate` does, so that two imports with common keys cannot deadlock.
      const rows = [...variables].sort((a, b) => (a.key < b.key ? -1 : 1));
      const [row] = await tx<{ updatedAt: Date }[]>`
        insert into gateway.env_variables (key, sealed, version)
        select * from unnest(
          ${rows.map(({ key }) => key)}::text[], ${rows.map(({ sealed }) => sealed)}::text[],
          ${rows.map(({ version }) => version)}::bigint[])
        on conflict (key) do update
          set sealed = excluded.sealed, version = excluded.version, updated_at = gateway.townhall_now()
        returning updated_at as "updatedAt"`;
      if (row === undefined) throw new Error('No variables were passed to the write.');
      return row.updatedAt;
    },
    async reseal(tx, variables) {
      await tx`
        update gateway.env_variables as v set sealed = r.sealed, version = r.version
        from unnest(
          ${variables.map(({ key }) => key)}::text[], ${variables.map(({ sealed }) => sealed)}::text[],
          ${variables.map(({ version }) => version)}::bigint[]) as r (key, sealed, version)
        where v.key = r.key`;
    },
    async remove(tx, key) {
      const rows = await tx`delete from gateway.env_variables where key = ${key} returning 1`;
      return rows.length > 0;
    },
  };
}

function fromRow({ key, sealed, version, updatedAt }: Row): StoredVariable {
  return { key, sealed, version: Number(version), updatedAt };
}
