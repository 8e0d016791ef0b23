// Migrates one schema to the newest of its ordered `NNNN_name.sql` files. All pending files are applied
// in one transaction under an advisory lock: two processes that start at once cannot both apply a file,
// and a killed process leaves no file half applied.
import { createHash } from 'node:crypto';
import { listFiles, readText } from '../assets.ts';
import { errorText } from '../error-text.ts';
import type { Log } from '../log.ts';

/** The part of a database that a migration needs. */
export interface Migratable {
  session(options: { deadlineMs: number }): {
    tx<T>(work: (tx: MigrationTx) => Promise<T>): Promise<T>;
    close(): Promise<void>;
  };
}

interface MigrationTx {
  (template: TemplateStringsArray, ...values: string[]): PromiseLike<Record<string, unknown>[]>;
  unsafe(text: string): PromiseLike<readonly Record<string, unknown>[]>;
}

export interface MigrateOptions {
  /**
   * The schema. The migration creates it when it is absent, with `<schema>.townhall_now()` and the
   * ledger `<schema>.migrations`.
   */
  schema: string;
  directory: string;
  log: Log;
}

interface Migration {
  name: string;
  text: string;
  checksum: string;
}

// Long, because a migration may rewrite a table or wait for another process that migrates. No statement
// timeout applies.
const deadlineMs = 10 * 60_000;

/**
 * Returns the names of the files that this call applied. Throws when a file changed after it was
 * applied, or when a pending file precedes an applied file. Ledger entries without a file belong to a
 * newer release and are ignored.
 */
export async function migrate(database: Migratable, options: MigrateOptions): Promise<{ applied: string[] }> {
  const { schema, log } = options;
  if (!/^[a-z][a-z0-9_]*$/.test(schema)) throw new Error(`"${schema}" is not a valid name for a schema.`);
  const migrations = await readMigrations(options.directory);
  const session = database.session({ deadlineMs });
  try {
    const appliedNames = await session.tx(async (tx) => {
      await tx.unsafe(
        `set local statement_timeout = 0;
        set local lock_timeout = 0;
        set local idle_in_transaction_session_timeout = 0`,
      );
      await tx`select pg_advisory_xact_lock(hashtextextended(${`townhall.migrate.${schema}`}, 0))`;
      await prepareSchema(tx, schema);
      return applyPending(tx, schema, migrations);
    });
    if (appliedNames.length > 0) log.info({ schema, applied: appliedNames }, 'migrated the database');
    return { applied: appliedNames };
  } finally {
    await session.close();
  }
}

/** A schema compared with the files of this installation. */
export interface MigrationState {
  applied: number;
  /** Files that are not applied yet; all of them where the schema does not exist. */
  pending: string[];
  /** Files whose content has changed since they were applied. */
  altered: string[];
  /** Applied migrations without a file: they belong to a newer release. */
  unknown: string[];
}

/** Read-only. */
export async function readMigrationState(
  database: { sql: MigrationTx },
  { schema, directory }: { schema: string; directory: string },
): Promise<MigrationState> {
  const migrations = await readMigrations(directory);
  const [row] = await database.sql`select to_regclass(${`${schema}.migrations`})::text as ledger`;
  const rows = row?.['ledger']
    ? await database.sql.unsafe(`select name, checksum from ${schema}.migrations order by name`)
    : [];
  const checksums = new Map(rows.map(({ name, checksum }) => [String(name), String(checksum)]));
  const names = new Set(migrations.map(({ name }) => name));
  return {
    applied: checksums.size,
    pending: migrations.flatMap(({ name }) => (checksums.has(name) ? [] : [name])),
    altered: migrations.flatMap(({ name, checksum }) =>
      checksums.has(name) && checksums.get(name) !== checksum ? [name] : [],
    ),
    unknown: [...checksums.keys()].filter((name) => !names.has(name)),
  };
}

async function readMigrations(directory: string): Promise<Migration[]> {
  const names = (await listFiles(directory)).filter((name) => name.endsWith('.sql'));
  const misnamedFile = names.find((name) => !/^\d{4}_[a-z0-9_]+\.sql$/.test(name));
  if (misnamedFile) throw new Error(`The migration "${misnamedFile}" is not named NNNN_name.sql.`);
  for (const [index, name] of names.entries()) {
    const previousName = names[index - 1];
    if (previousName?.slice(0, 4) === name.slice(0, 4))
      throw new Error(`The migrations "${previousName}" and "${name}" have the same number.`);
  }
  return Promise.all(
    names.map(async (name) => {
      const text = await readText(`${directory}/${name}`);
      return { name, text, checksum: createHash('sha256').update(text).digest('hex') };
    }),
  );
}

async function prepareSchema(tx: MigrationTx, schema: string): Promise<void> {
  const [row] = await tx`select to_regclass(${`${schema}.migrations`}) as ledger`;
  if (row?.['ledger']) return;
  // townhall_now() is constant within a transaction, like now(). The setting is for tests, which
  // shift the time of their own connection; unset it costs one comparison.
  await tx.unsafe(`
    create schema if not exists ${schema};
    create table ${schema}.migrations (
      name text primary key,
      checksum text not null,
      applied_at timestamptz not null default now()
    );
    create function ${schema}.townhall_now() returns timestamptz language sql stable parallel safe as $$
      select now() + coalesce(nullif(current_setting('townhall.clock_shift', true), ''), '0')::interval
    $$;
  `);
}

async function applyPending(tx: MigrationTx, schema: string, migrations: Migration[]): Promise<string[]> {
  const ledger = await tx.unsafe(`select name, checksum from ${schema}.migrations`);
  const checksums = new Map(ledger.map(({ name, checksum }) => [String(name), String(checksum)]));
  const newestName = migrations.findLast(({ name }) => checksums.has(name))?.name ?? '';
  const appliedNames: string[] = [];
  for (const { name, text, checksum } of migrations) {
    const appliedChecksum = checksums.get(name);
    if (appliedChecksum === checksum) continue;
    if (appliedChecksum)
      throw new Error(
        `The migration "${name}" was changed after it had been applied to the schema ${schema}.`,
      );
    if (name < newestName)
      throw new Error(`The migration "${name}" precedes "${newestName}", which is applied already.`);
    try {
      await tx.unsafe(text);
    } catch (cause) {
      throw new Error(`The migration "${name}" failed: ${errorText(cause)}`, { cause });
    }
    // Both are safe to interpolate: the name matches its pattern and the checksum is hexadecimal.
    await tx.unsafe(`insert into ${schema}.migrations (name, checksum) values ('${name}', '${checksum}')`);
    appliedNames.push(name);
  }
  return appliedNames;
}
