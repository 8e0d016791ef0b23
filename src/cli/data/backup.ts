// A backup of a database in one file, and back: of an embedded database a packed copy of its folder, of PostgreSQL what
// pg_dump writes. The rule of a restore: into an empty target alone, only what the database is for, and only when the
// master key that is given opens what the backup holds; otherwise nothing is changed.
import { existsSync } from 'node:fs';
import { mkdtemp, open, rename, rm, stat } from 'node:fs/promises';
import { basename, dirname, join, resolve } from 'node:path';
import { envStore } from '../../gateway/env/index.ts';
import { connect, type Database } from '../../kernel/data/database.ts';
import { makeFolder } from '../../kernel/folder.ts';
import { SettingError } from '../../kernel/settings.ts';
import type { CommandInput } from '../command-line/command.ts';
import type { Survey } from './gateway-data.ts';
import {
  askServer,
  commandLog,
  requireDatabase,
  withDatabase,
  type DatabasePlace,
} from './database-location.ts';
import { addressOf, findTool, majorWithin, run } from './postgres-tools.ts';

export interface BackedUp {
  file: string;
  bytes: number;
  engine: 'embedded' | 'postgres';
}

type Progress = (step: string) => void;

/** Writes the backup to a file that is not there yet, readable by its owner alone. What was begun is removed when it fails. */
export async function backUp(
  place: DatabasePlace,
  given: string,
  { env, progress }: { env: CommandInput['env']; progress: Progress },
): Promise<BackedUp> {
  const file = resolve(given);
  requireDatabase(place);
  const handle = await open(file, 'wx', 0o600).catch((error: unknown) => {
    throw codeIn(error) === 'EEXIST'
      ? new Error(`${file} is there already; a backup goes into a new file.`)
      : error;
  });
  try {
    if (place.databaseUrl === undefined) {
      progress('asking the server that holds the database');
      const answered = (await askServer(place, 'db.backup', { file })) as { bytes: number } | undefined;
      if (answered === undefined) {
        progress('no server runs; copying the database here');
        const bytes = await withDatabase(
          place,
          async (database) => (await database.dump?.()) ?? new Uint8Array(),
        );
        await handle.writeFile(bytes);
      }
    } else {
      await dumpPostgres(place.databaseUrl, file, {
        env,
        progress,
        version: await withDatabase(place, async ({ version }) => version),
      });
    }
    await handle.sync();
  } catch (error) {
    await rm(file, { force: true });
    throw error;
  } finally {
    await handle.close();
  }
  await syncFolder(dirname(file));
  return {
    file,
    bytes: (await stat(file)).size,
    engine: place.databaseUrl === undefined ? 'embedded' : 'postgres',
  };
}

async function dumpPostgres(
  databaseUrl: string,
  file: string,
  { env, progress, version }: { env: CommandInput['env']; progress: Progress; version: string },
): Promise<void> {
  const tool = await findTool('pg_dump', env, majorWithin(version));
  let tables = 0;
  progress(`running pg_dump ${tool.major}`);
  await run(tool.path, ['--format=custom', '--no-owner', '--no-privileges', '--verbose', `--file=${file}`], {
    env: { ...env, ...addressOf(databaseUrl) },
    onLine: (line) => {
      const table = /dumping contents of table "([^"]+)"/.exec(line)?.[1];
      if (table === undefined) return;
      tables += 1;
      if (tables % 10 === 0) progress(`${tables} tables, now ${table}`);
    },
  });
}

export interface Restored {
  file: string;
  engine: 'embedded' | 'postgres';
  /** Whether the master key was held against what is sealed; a backup may hold nothing that is. */
  masterKey: 'fits' | 'nothing sealed';
}

export interface RestoreNeeds {
  env: CommandInput['env'];
  progress: Progress;
  /** Throws unless the master key that is given opens what is sealed. */
  checkKey(survey: Survey): Promise<Restored['masterKey']>;
}

/** Throws, and has changed nothing, when the target is not empty, the file is no backup for it, or the master key is another one. */
export async function restore(place: DatabasePlace, given: string, needs: RestoreNeeds): Promise<Restored> {
  const file = resolve(given);
  const kind = await kindOf(file);
  const { databaseUrl } = place;
  const wanted = databaseUrl === undefined ? 'embedded' : 'postgres';
  if (kind !== wanted) {
    throw new SettingError(
      kind === 'embedded'
        ? `this is a backup of an embedded database, which is restored into a folder; leave ${addressKeys[place.surface]} unset.`
        : `this is a backup of a PostgreSQL, which is restored into one; set ${addressKeys[place.surface]}.`,
    );
  }
  const masterKey =
    databaseUrl === undefined
      ? await restoreFolder(place, file, needs)
      : await restorePostgres({ ...place, databaseUrl }, file, needs);
  return { file, engine: kind, masterKey };
}

const addressKeys = { gateway: 'DATABASE_URL', agent: 'AGENT_DATABASE_URL' };

function wrongSurface(file: string, { surface }: DatabasePlace): Error {
  return new Error(
    `${file} is a backup, but of no ${surface}'s database; ${surface === 'agent' ? 'leave --agent out for the gateway' : 'say --agent for an agent'}.`,
  );
}

async function kindOf(file: string): Promise<Restored['engine']> {
  const handle = await open(file, 'r').catch((error: unknown) => {
    throw new Error(`${file} cannot be read: ${codeIn(error)}.`);
  });
  const start = Buffer.alloc(5);
  try {
    await handle.read(start, 0, 5, 0);
  } finally {
    await handle.close();
  }
  if (start.toString('latin1') === 'PGDMP') return 'postgres';
  if (start[0] === 0x1f && start[1] === 0x8b) return 'embedded';
  throw new Error(`${file} is no backup of this program.`);
}

// The cluster grows beside its place, is opened and asked there, and is moved to its place when all is well.
async function restoreFolder(
  place: DatabasePlace,
  file: string,
  { progress, checkKey }: RestoreNeeds,
): Promise<Restored['masterKey']> {
  const target = resolve(place.databasePath);
  if (existsSync(join(target, 'pg')))
    throw new Error(`${target} holds a database already; a restore goes into a folder without one.`);
  const parent = dirname(target);
  await makeFolder(parent);
  const growing = await mkdtemp(join(parent, `.${basename(target)}-restoring-`));
  try {
    progress('unpacking the backup');
    const database = await connect({ path: growing, seed: file }, { log: commandLog().log });
    let survey: Survey;
    try {
      if (!(await holds(database, place))) throw wrongSurface(file, place);
      survey = await envStore(database).survey();
    } finally {
      await database.close();
    }
    if (survey.canary !== null) progress('trying the master key');
    const masterKey = await checkKey(survey);
    await makeFolder(target);
    await rename(join(growing, 'pg'), join(target, 'pg'));
    await syncFolder(target);
    return masterKey;
  } finally {
    await rm(growing, { recursive: true, force: true });
  }
}

async function holds({ sql }: Database, { migrations: { schema } }: DatabasePlace): Promise<boolean> {
  const [row] = await sql<
    { found: boolean }[]
  >`select to_regclass(${`${schema}.migrations`}) is not null as found`;
  return row?.found ?? false;
}

async function restorePostgres(
  place: DatabasePlace & { databaseUrl: string },
  file: string,
  { env, progress, checkKey }: RestoreNeeds,
): Promise<Restored['masterKey']> {
  const version = await withDatabase(place, async (database) => {
    const taken = await database.sql<{ name: string }[]>`
      select nspname as name from pg_namespace where nspname in ('gateway', 'agent', 'pgboss', 'project') order by nspname`;
    if (taken.length > 0)
      throw new Error(
        `The database holds ${taken.map(({ name }) => name).join(', ')} already; a restore goes into an empty one.`,
      );
    return database.version;
  });
  const tool = await findTool('pg_restore', env, majorWithin(version));
  let content = '';
  await run(tool.path, ['--list', file], { env, onOutput: (piece) => (content += piece.toString('utf8')) });
  if (!new RegExp(` SCHEMA - ${place.migrations.schema} `).test(content)) throw wrongSurface(file, place);
  const survey = await surveyOf(file, tool.path, env);
  if (survey.canary !== null) progress('trying the master key');
  const masterKey = await checkKey(survey);
  let items = 0;
  progress(`running pg_restore ${tool.major}`);
  // In one transaction: a restore that breaks off leaves the target empty.
  await run(
    tool.path,
    [
      '--exit-on-error',
      '--single-transaction',
      '--no-owner',
      '--no-privileges',
      '--verbose',
      `--dbname=${addressOf(place.databaseUrl)['PGDATABASE'] ?? ''}`,
      file,
    ],
    {
      env: { ...env, ...addressOf(place.databaseUrl) },
      onLine: (line) => {
        const table = /processing data for table "([^"]+)"/.exec(line)?.[1];
        if (table === undefined) return;
        items += 1;
        if (items % 10 === 0) progress(`${items} tables, now ${table}`);
      },
    },
  );
  return masterKey;
}

// Read from the file itself, before the target is touched.
async function surveyOf(file: string, tool: string, env: CommandInput['env']): Promise<Survey> {
  const rows = async (table: string): Promise<Record<string, string>[]> => {
    let text = '';
    await run(tool, ['--data-only', '--schema=gateway', `--table=${table}`, '--file=-', file], {
      env,
      onOutput: (piece) => (text += piece.toString('utf8')),
    });
    const [, columns = '', body = ''] =
      /^COPY [^(]+\(([^)]*)\) FROM stdin;\n([\s\S]*?)^\\\.$/m.exec(text) ?? [];
    const names = columns.split(', ');
    return body
      .split('\n')
      .filter((line) => line !== '')
      .map((line) => Object.fromEntries(line.split('\t').map((value, index) => [names[index] ?? '', value])));
  };
  const [canary] = await rows('env_canary');
  return { canary: canary?.['sealed'] ?? null, variables: (await rows('env_variables')).length };
}

function codeIn(error: unknown): string {
  const { code } = error as { code?: unknown };
  return typeof code === 'string' ? code : 'unknown';
}

async function syncFolder(path: string): Promise<void> {
  const folder = await open(path, 'r');
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}
