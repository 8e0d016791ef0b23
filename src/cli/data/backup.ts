// Backup and restore of a database in one file: a packed copy of the folder of an embedded
// database, or the output of pg_dump. A restore needs an empty target of the same surface and the
// master key that opens the backup; otherwise nothing is changed.
import { existsSync } from 'node:fs';
import { mkdtemp, open, rename, rm, stat } from 'node:fs/promises';
import { basename, dirname, join, resolve } from 'node:path';
import { askAllReports, startNewGeneration } from '../../gateway/credits/index.ts';
import { envStore } from '../../gateway/env/index.ts';
import { systemClock } from '../../kernel/clock.ts';
import { connect, type Database } from '../../kernel/data/database.ts';
import { makeFolder, syncFolder } from '../../kernel/folder.ts';
import { SettingError } from '../../kernel/settings.ts';
import type { CommandContext } from '../command-line/command.ts';
import { stderrLog } from '../command-line/stderr-log.ts';
import { askServer, requireDatabase, withDatabase, type DatabaseLocation } from './database-location.ts';
import type { MasterKeyVerdict, SealSurvey } from './gateway-data.ts';
import { connectionVariables, findTool, majorVersion, runTool, type Tool } from './postgres-tools.ts';

type Engine = 'embedded' | 'postgres';
type Progress = (step: string) => void;
type PostgresLocation = DatabaseLocation & { databaseUrl: string };

export interface BackupResult {
  file: string;
  bytes: number;
  engine: Engine;
}

interface BackupOptions {
  env: CommandContext['env'];
  progress: Progress;
}

/** Writes the backup to a new file, readable by its owner only. A failed backup removes its file. */
export async function backUp(
  location: DatabaseLocation,
  path: string,
  options: BackupOptions,
): Promise<BackupResult> {
  const file = resolve(path);
  requireDatabase(location);
  const handle = await open(file, 'wx', 0o600).catch((error: unknown) => {
    throw codeOf(error) === 'EEXIST'
      ? new Error(`${file} already exists; a backup needs a new file.`)
      : error;
  });
  try {
    if (isPostgres(location)) await dumpPostgres(location, file, options);
    else {
      const bytes = await copyEmbedded(location, file, options);
      if (bytes !== undefined) await handle.writeFile(bytes);
    }
    await handle.sync();
  } catch (error) {
    await rm(file, { force: true });
    throw error;
  } finally {
    await handle.close();
  }
  await syncFolder(dirname(file));
  return { file, bytes: (await stat(file)).size, engine: isPostgres(location) ? 'postgres' : 'embedded' };
}

/**
 * Returns the packed copy. Undefined when the server that holds the database has written the file itself.
 */
async function copyEmbedded(
  location: DatabaseLocation,
  file: string,
  { progress }: BackupOptions,
): Promise<Uint8Array | undefined> {
  progress('asking the server that holds the database');
  let bytes: Uint8Array | undefined;
  await askServer(location, { name: 'db.backup', input: { file } }, async () => {
    progress('no server runs; copying the database here');
    bytes = await withDatabase(location, async ({ dump }) => {
      if (dump === undefined) throw new Error('An embedded database was expected.');
      return dump();
    });
  });
  return bytes;
}

async function dumpPostgres(
  location: PostgresLocation,
  file: string,
  { env, progress }: BackupOptions,
): Promise<void> {
  const version = await withDatabase(location, async (database) => {
    // Running gateways first write their latest charges to the database, so that the backup contains them.
    if (location.surface === 'gateway') await askAllReports(database, systemClock);
    return database.version;
  });
  const tool = await findTool('pg_dump', env, { serverMajor: majorVersion(version) });
  progress(`running pg_dump ${tool.major}`);
  await runTool(
    tool.path,
    ['--format=custom', '--no-owner', '--no-privileges', '--verbose', `--file=${file}`],
    {
      env: { ...env, ...connectionVariables(location.databaseUrl) },
      onLine: tableCounter(/dumping contents of table "([^"]+)"/, progress),
    },
  );
}

/** Reports every tenth table of a tool's output on standard error. */
function tableCounter(pattern: RegExp, progress: Progress): (line: string) => void {
  let tables = 0;
  return (line) => {
    const table = pattern.exec(line)?.[1];
    if (table === undefined) return;
    tables += 1;
    if (tables % 10 === 0) progress(`${tables} tables, now ${table}`);
  };
}

export interface RestoreResult {
  file: string;
  engine: Engine;
  /** `nothing sealed` when the backup contains no secrets, so that no key was needed. */
  masterKey: MasterKeyVerdict;
}

export interface RestoreOptions extends BackupOptions {
  /** Throws unless the given master key opens the sealed values. */
  checkKey(survey: SealSurvey): Promise<MasterKeyVerdict>;
}

/**
 * Throws without a change when the target is not empty, the file is not a backup for this target, or the
 * key is wrong.
 */
export async function restore(
  location: DatabaseLocation,
  path: string,
  options: RestoreOptions,
): Promise<RestoreResult> {
  const file = resolve(path);
  const engine = await engineOf(file);
  if (engine !== (isPostgres(location) ? 'postgres' : 'embedded')) {
    const key = { gateway: 'DATABASE_URL', agent: 'AGENT_DATABASE_URL' }[location.surface];
    throw new SettingError(
      engine === 'embedded'
        ? `this is a backup of an embedded database, which is restored into a folder; leave ${key} unset.`
        : `this is a backup of a PostgreSQL, which is restored into a PostgreSQL; set ${key}.`,
    );
  }
  const masterKey = isPostgres(location)
    ? await restorePostgres(location, file, options)
    : await restoreFolder(location, file, options);
  return { file, engine, masterKey };
}

/** Detects the engine by the file's first bytes: pg_dump's custom format, or a gzip. */
async function engineOf(file: string): Promise<Engine> {
  const handle = await open(file, 'r').catch((error: unknown) => {
    throw new Error(`${file} cannot be read: ${codeOf(error)}.`);
  });
  const start = Buffer.alloc(5);
  try {
    await handle.read(start, 0, 5, 0);
  } finally {
    await handle.close();
  }
  if (start.toString('latin1') === 'PGDMP') return 'postgres';
  if (start[0] === 0x1f && start[1] === 0x8b) return 'embedded';
  throw new Error(`${file} is not a backup of Townhall.`);
}

// Unpacks into a folder beside the target, checks it there, and renames it into place at the end.
async function restoreFolder(
  location: DatabaseLocation,
  file: string,
  { progress, checkKey }: RestoreOptions,
): Promise<MasterKeyVerdict> {
  const target = resolve(location.databasePath);
  if (existsSync(join(target, 'pg')))
    throw new Error(`${target} already holds a database; restore into a folder without one.`);
  const parent = dirname(target);
  await makeFolder(parent);
  const staging = await mkdtemp(join(parent, `.${basename(target)}-restoring-`));
  try {
    progress('unpacking the backup');
    const survey = await unpackAndSurvey(location, file, staging);
    if (survey.canary !== null) progress('checking the master key');
    const masterKey = await checkKey(survey);
    await makeFolder(target);
    await rename(join(staging, 'pg'), join(target, 'pg'));
    await syncFolder(target);
    return masterKey;
  } finally {
    await rm(staging, { recursive: true, force: true });
  }
}

async function unpackAndSurvey(
  location: DatabaseLocation,
  file: string,
  staging: string,
): Promise<SealSurvey> {
  const database = await connect({ path: staging, seed: file }, { log: stderrLog().log });
  try {
    if (!(await hasSchema(database, location))) throw wrongSurface(file, location);
    if (location.surface === 'gateway') await startNewGeneration(database);
    return await envStore(database).survey();
  } finally {
    await database.close();
  }
}

async function hasSchema({ sql }: Database, { migrations: { schema } }: DatabaseLocation): Promise<boolean> {
  const [row] = await sql<{ exists: boolean }[]>`
    select to_regclass(${`${schema}.migrations`}) is not null as exists`;
  return row?.exists ?? false;
}

function wrongSurface(file: string, { surface }: DatabaseLocation): Error {
  const remedy = surface === 'agent' ? 'leave out --agent for the gateway' : 'set --agent for an agent';
  return new Error(`${file} is a backup, but not of the ${surface}'s database; ${remedy}.`);
}

async function restorePostgres(
  location: PostgresLocation,
  file: string,
  { env, progress, checkKey }: RestoreOptions,
): Promise<MasterKeyVerdict> {
  const version = await requireEmpty(location);
  const tool = await findTool('pg_restore', env, { serverMajor: majorVersion(version) });
  let contents = '';
  await runTool(tool.path, ['--list', file], {
    env,
    onOutput: (chunk) => (contents += chunk.toString('utf8')),
  });
  if (!new RegExp(` SCHEMA - ${location.migrations.schema} `).test(contents))
    throw wrongSurface(file, location);
  const survey = await surveyBackup(file, tool, env);
  if (survey.canary !== null) progress('checking the master key');
  const masterKey = await checkKey(survey);
  progress(`running pg_restore ${tool.major}`);
  const variables = connectionVariables(location.databaseUrl);
  await runTool(
    tool.path,
    [
      '--exit-on-error',
      // An interrupted restore leaves the target empty.
      '--single-transaction',
      '--no-owner',
      '--no-privileges',
      '--verbose',
      `--dbname=${variables['PGDATABASE'] ?? ''}`,
      file,
    ],
    {
      env: { ...env, ...variables },
      onLine: tableCounter(/processing data for table "([^"]+)"/, progress),
    },
  );
  if (location.surface === 'gateway') await withDatabase(location, startNewGeneration);
  return masterKey;
}

/** Returns the server's version. Throws when the database already has schemas of Townhall. */
function requireEmpty(location: DatabaseLocation): Promise<string> {
  return withDatabase(location, async (database) => {
    const schemas = await database.sql<{ name: string }[]>`
      select nspname as name from pg_namespace
      where nspname in ('gateway', 'agent', 'pgboss', 'project')
      order by nspname`;
    if (schemas.length > 0)
      throw new Error(
        `The database already holds ${schemas.map(({ name }) => name).join(', ')}; restore into an empty database.`,
      );
    return database.version;
  });
}

/**
 * Reads the sealed values from the backup file itself, so that the key is checked before the target
 * changes.
 */
async function surveyBackup(file: string, tool: Tool, env: CommandContext['env']): Promise<SealSurvey> {
  const rowsOf = async (table: string): Promise<Record<string, string>[]> => {
    let text = '';
    await runTool(tool.path, ['--data-only', '--schema=gateway', `--table=${table}`, '--file=-', file], {
      env,
      onOutput: (chunk) => (text += chunk.toString('utf8')),
    });
    return parseCopyStatement(text);
  };
  const [canary] = await rowsOf('env_canary');
  return { canary: canary?.['sealed'] ?? null, variableCount: (await rowsOf('env_variables')).length };
}

/** The rows of the only `COPY … FROM stdin` in a dump: tab-separated columns; the line `\.` ends them. */
function parseCopyStatement(text: string): Record<string, string>[] {
  const [, columns = '', body = ''] =
    /^COPY [^(]+\(([^)]*)\) FROM stdin;\n([\s\S]*?)^\\\.$/m.exec(text) ?? [];
  const names = columns.split(', ');
  return body
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => Object.fromEntries(line.split('\t').map((cell, index) => [names[index] ?? '', cell])));
}

function isPostgres(location: DatabaseLocation): location is PostgresLocation {
  return location.databaseUrl !== undefined;
}

function codeOf(error: unknown): string {
  const { code } = error as { code?: unknown };
  return typeof code === 'string' ? code : 'unknown';
}
