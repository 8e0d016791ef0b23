// The tables of the environment variables, and the only file that names them. Sealed texts go in and out;
// nothing in here can open one.
import type { Database, Tx } from '../../kernel/data/database.ts';

/** Where the seals of this store belong; see SealPlace. */
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
  /** What a server must know before it migrates; of a database without our tables it says that nothing is sealed. */
  survey(): Promise<{ canary: string | null; variables: number }>;
  /** Without effect when there is one. */
  insertCanary(sealed: string): Promise<void>;
  list(): Promise<StoredVariable[]>;
  tx<T>(work: (tx: Tx) => Promise<T>): Promise<T>;
  /** The canary, held until the transaction's end: as it is for writers, for one alone to change the keys. */
  lockCanary(tx: Tx, mode: 'share' | 'update'): Promise<string>;
  replaceCanary(tx: Tx, sealed: string): Promise<void>;
  /** Versions that no other write has or will have. */
  newVersions(tx: Tx, count: number): Promise<number[]>;
  listForUpdate(tx: Tx): Promise<StoredVariable[]>;
  /** Gives the time of the write. */
  upsert(tx: Tx, variables: readonly SealedVariable[]): Promise<Date>;
  /** Replaces seals and versions and leaves the dates. */
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
    async survey() {
      const [tables] = await sql<{ found: boolean }[]>`
        select to_regclass(${canaryTable}) is not null and to_regclass(${variablesTable}) is not null as found`;
      if (!tables?.found) return { canary: null, variables: 0 };
      const [row] = await sql<{ canary: string | null; variables: bigint }[]>`
        select (select sealed from gateway.env_canary) as canary, (select count(*) from gateway.env_variables) as variables`;
      return { canary: row?.canary ?? null, variables: Number(row?.variables ?? 0n) };
    },
    async insertCanary(sealed) {
      await sql`insert into gateway.env_canary (sealed) values (${sealed}) on conflict do nothing`;
    },
    async list() {
      const rows = await sql<Row[]>`
        select key, sealed, version, updated_at as "updatedAt" from gateway.env_variables order by key collate "C"`;
      return rows.map(stored);
    },
    tx: transact,
    async lockCanary(tx, mode) {
      const [row] = await (mode === 'share'
        ? tx<{ sealed: string }[]>`select sealed from gateway.env_canary for share`
        : tx<{ sealed: string }[]>`select sealed from gateway.env_canary for update`);
      if (row === undefined) throw new Error('The canary of the master key is gone.');
      return row.sealed;
    },
    async replaceCanary(tx, sealed) {
      await tx`update gateway.env_canary set sealed = ${sealed}`;
    },
    async newVersions(tx, count) {
      const rows = await tx<{ version: bigint }[]>`
        select nextval('gateway.env_versions') as version from generate_series(1, ${count}::int)`;
      return rows.map(({ version }) => Number(version));
    },
    async listForUpdate(tx) {
      const rows = await tx<Row[]>`
        select key, sealed, version, updated_at as "updatedAt" from gateway.env_variables order by key for update`;
      return rows.map(stored);
    },
    async upsert(tx, variables) {
      // In the order of the keys, so that two imports that share keys wait for each other and do not lock.
      const rows = [...variables].sort((a, b) => (a.key < b.key ? -1 : 1));
      const [written] = await tx<{ updatedAt: Date }[]>`
        insert into gateway.env_variables (key, sealed, version)
        select * from unnest(
          ${rows.map(({ key }) => key)}::text[], ${rows.map(({ sealed }) => sealed)}::text[],
          ${rows.map(({ version }) => version)}::bigint[])
        on conflict (key) do update
          set sealed = excluded.sealed, version = excluded.version, updated_at = gateway.townhall_now()
        returning updated_at as "updatedAt"`;
      return written?.updatedAt as Date;
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
      const gone = await tx`delete from gateway.env_variables where key = ${key} returning 1`;
      return gone.length > 0;
    },
  };
}

function stored({ key, sealed, version, updatedAt }: Row): StoredVariable {
  return { key, sealed, version: Number(version), updatedAt };
}
