// pg_dump and pg_restore: found, asked for their version, and run with the address of the database in their environment,
// since every user of a machine can read the arguments of a program.
import { spawn } from 'node:child_process';
import { constants } from 'node:fs';
import { access, readdir } from 'node:fs/promises';
import { delimiter, join } from 'node:path';

export type ToolName = 'pg_dump' | 'pg_restore';

export interface Tool {
  path: string;
  /** Of PostgreSQL, such as 18. */
  major: number;
}

type Environment = Readonly<Record<string, string | undefined>>;

// Where Debian keeps the tools of each version; what is on the path is often an older one.
const versionedFolders = '/usr/lib/postgresql';

/** The tool for a server of that version: the newest there is, which is at least as new. Throws saying what to install. */
export async function findTool(name: ToolName, env: Environment, serverMajor: number): Promise<Tool> {
  const versions = await readdir(versionedFolders).catch(() => []);
  const folders = [
    ...(env['PATH'] ?? '').split(delimiter),
    ...versions.map((version) => join(versionedFolders, version, 'bin')),
  ].filter((folder) => folder !== '');
  const found: Tool[] = [];
  for (const folder of new Set(folders)) {
    const path = join(folder, name);
    const isThere = await access(path, constants.X_OK).then(
      () => true,
      () => false,
    );
    const major = isThere ? await majorOf(path, env) : undefined;
    if (major !== undefined) found.push({ path, major });
  }
  const best = found.sort((one, other) => other.major - one.major)[0];
  const advice = `Install the client programs of PostgreSQL ${serverMajor} or newer (on Debian and Ubuntu: postgresql-client-${serverMajor}; on macOS: brew install libpq).`;
  if (best === undefined) throw new Error(`${name} is not here. ${advice}`);
  if (best.major < serverMajor)
    throw new Error(`${name} is of version ${best.major}, and the server of ${serverMajor}. ${advice}`);
  return best;
}

async function majorOf(path: string, env: Environment): Promise<number | undefined> {
  let text = '';
  await run(path, ['--version'], { env, onOutput: (piece) => (text += piece.toString('utf8')) }).catch(
    () => {},
  );
  const major = /\(PostgreSQL\) (\d+)/.exec(text)?.[1];
  return major === undefined ? undefined : Number(major);
}

/** The major version within what `select version()` says. */
export function majorWithin(version: string): number {
  return Number(/PostgreSQL (\d+)/.exec(version)?.[1] ?? 0);
}

/** The variables by which the tools find a database; its password stands in none of their arguments. */
export function addressOf(databaseUrl: string): Record<string, string> {
  const url = new URL(databaseUrl);
  const given = {
    PGHOST: url.searchParams.get('host') ?? url.hostname.replace(/^\[|\]$/g, ''),
    PGPORT: url.port || '5432',
    PGUSER: decodeURIComponent(url.username),
    PGPASSWORD: decodeURIComponent(url.password),
    PGDATABASE: decodeURIComponent(url.pathname.slice(1)),
    ...encryptionOf(url.searchParams),
    PGCONNECT_TIMEOUT: '10',
  };
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== ''));
}

// postgres.js also takes `ssl`, and refuses a connection without TLS for most of its values. The tools would fall back to
// a plain one: their default is `prefer`.
function encryptionOf(query: URLSearchParams): { PGSSLMODE: string; PGSSLROOTCERT: string } {
  const root = query.get('sslrootcert') ?? '';
  const sslSetting = query.get('sslmode') ?? query.get('ssl') ?? '';
  const mode = root === 'system' || sslSetting === 'true' ? 'verify-full' : sslSetting;
  // Certificates are held against those of the system, as Node holds them against its own.
  return { PGSSLMODE: mode, PGSSLROOTCERT: root === '' && sslSetting === 'true' ? 'system' : root };
}

export interface RunOptions {
  env: Environment;
  onOutput?: (piece: Buffer) => void;
  /** Each line of standard error, such as what `--verbose` tells. */
  onLine?: (line: string) => void;
}

/** Runs to the end. Throws with what the program said last when it fails. */
export async function run(
  path: string,
  given: readonly string[],
  { env, onOutput, onLine }: RunOptions,
): Promise<void> {
  const child = spawn(path, given, { env: { ...env, LC_ALL: 'C' }, stdio: ['ignore', 'pipe', 'pipe'] });
  const last: string[] = [];
  let rest = '';
  child.stdout.on('data', (piece: Buffer) => onOutput?.(piece));
  child.stderr.on('data', (piece: Buffer) => {
    const lines = (rest + piece.toString('utf8')).split('\n');
    rest = lines.pop() ?? '';
    for (const line of lines) {
      onLine?.(line);
      last.push(line);
      if (last.length > 20) last.shift();
    }
  });
  const code = await new Promise<number>((resolve, reject) => {
    child.on('error', reject);
    child.on('close', (ended) => resolve(ended ?? 1));
  });
  if (code === 0) return;
  const said =
    [...last, rest]
      .filter((line) => /error|fatal/i.test(line))
      .slice(-3)
      .join(' ') || `it ended with ${code}`;
  throw new Error(`${path} failed: ${said}`);
}
