// Finds and runs pg_dump and pg_restore. They get the database's address in their environment,
// because every user of a machine can read the arguments of a process.
import { spawn } from 'node:child_process';
import { constants } from 'node:fs';
import { access, readdir } from 'node:fs/promises';
import { delimiter, join } from 'node:path';

export type ToolName = 'pg_dump' | 'pg_restore';

export interface Tool {
  path: string;
  /** The major version of PostgreSQL, such as 18. */
  major: number;
}

type Environment = Readonly<Record<string, string | undefined>>;

// Debian keeps the tools of each version here; the tool on the PATH is often older.
const versionedFolders = '/usr/lib/postgresql';

/**
 * Finds the newest tool on the PATH and in the versioned folders. Throws with what to install when no tool
 * is at least as new as the server.
 */
export async function findTool(
  name: ToolName,
  env: Environment,
  { serverMajor, versions = versionedFolders }: { serverMajor: number; versions?: string },
): Promise<Tool> {
  const folders = [
    ...(env['PATH'] ?? '').split(delimiter),
    ...(await readdir(versions).catch(() => [])).map((version) => join(versions, version, 'bin')),
  ].filter((folder) => folder !== '');
  const tools: Tool[] = [];
  for (const folder of new Set(folders)) {
    const path = join(folder, name);
    const isExecutable = await access(path, constants.X_OK).then(
      () => true,
      () => false,
    );
    const major = isExecutable ? await readMajor(path, env) : undefined;
    if (major !== undefined) tools.push({ path, major });
  }
  const newestTool = tools.sort((a, b) => b.major - a.major)[0];
  const advice = `Install the client programs of PostgreSQL ${serverMajor} or newer (on Debian and Ubuntu: postgresql-client-${serverMajor}; on macOS: brew install libpq).`;
  if (newestTool === undefined) throw new Error(`${name} is not installed. ${advice}`);
  if (newestTool.major < serverMajor)
    throw new Error(`${name} has version ${newestTool.major}, and the server has ${serverMajor}. ${advice}`);
  return newestTool;
}

async function readMajor(path: string, env: Environment): Promise<number | undefined> {
  let text = '';
  await runTool(path, ['--version'], { env, onOutput: (chunk) => (text += chunk.toString('utf8')) }).catch(
    () => {},
  );
  const major = /\(PostgreSQL\) (\d+)/.exec(text)?.[1];
  return major === undefined ? undefined : Number(major);
}

/** The major version in the result of `select version()`. */
export function majorVersion(version: string): number {
  return Number(/PostgreSQL (\d+)/.exec(version)?.[1] ?? 0);
}

/** The libpq environment variables of a database address, including the password. */
export function connectionVariables(databaseUrl: string): Record<string, string> {
  const url = new URL(databaseUrl);
  const variables = {
    PGHOST: url.searchParams.get('host') ?? url.hostname.replace(/^\[|\]$/g, ''),
    PGPORT: url.port || '5432',
    PGUSER: decodeURIComponent(url.username),
    PGPASSWORD: decodeURIComponent(url.password),
    PGDATABASE: decodeURIComponent(url.pathname.slice(1)),
    ...tlsVariables(url.searchParams),
    PGCONNECT_TIMEOUT: '10',
  };
  return Object.fromEntries(Object.entries(variables).filter(([, text]) => text !== ''));
}

const libpqModes = ['disable', 'allow', 'prefer', 'require', 'verify-ca', 'verify-full'];

// postgres.js also accepts `ssl` in an address: `false` for no TLS, libpq's names, and any other value for
// verify-full (kernel/data/connection.ts). The setting must be passed on: by default the tools use `prefer`,
// which falls back to an unencrypted connection.
function tlsVariables(query: URLSearchParams): { PGSSLMODE: string; PGSSLROOTCERT: string } {
  const root = query.get('sslrootcert') ?? '';
  const sslSetting = query.get('sslmode') ?? query.get('ssl') ?? '';
  if (root === 'system') return { PGSSLMODE: 'verify-full', PGSSLROOTCERT: root };
  if (sslSetting === 'false') return { PGSSLMODE: 'disable', PGSSLROOTCERT: root };
  if (sslSetting === '' || libpqModes.includes(sslSetting))
    return { PGSSLMODE: sslSetting, PGSSLROOTCERT: root };
  // libpq verifies against the system's certificates, as Node verifies against its own.
  return { PGSSLMODE: 'verify-full', PGSSLROOTCERT: root === '' ? 'system' : root };
}

export interface RunToolOptions {
  env: Environment;
  onOutput?: (chunk: Buffer) => void;
  /** Each line of standard error, such as those of `--verbose`. */
  onLine?: (line: string) => void;
}

/** Resolves when the tool exits with 0; otherwise throws with its last error lines. */
export async function runTool(
  path: string,
  args: readonly string[],
  { env, onOutput, onLine }: RunToolOptions,
): Promise<void> {
  const child = spawn(path, args, { env: { ...env, LC_ALL: 'C' }, stdio: ['ignore', 'pipe', 'pipe'] });
  const lastLines: string[] = [];
  let partialLine = '';
  child.stdout.on('data', (chunk: Buffer) => onOutput?.(chunk));
  child.stderr.on('data', (chunk: Buffer) => {
    const lines = (partialLine + chunk.toString('utf8')).split('\n');
    partialLine = lines.pop() ?? '';
    for (const line of lines) {
      onLine?.(line);
      lastLines.push(line);
      if (lastLines.length > 20) lastLines.shift();
    }
  });
  const code = await new Promise<number>((resolve, reject) => {
    child.on('error', reject);
    child.on('close', (exitCode) => resolve(exitCode ?? 1));
  });
  if (code === 0) return;
  const errors = [...lastLines, partialLine].filter((line) => /error|fatal/i.test(line)).slice(-3);
  throw new Error(`${path} failed: ${errors.join(' ') || `it exited with ${code}`}`);
}
