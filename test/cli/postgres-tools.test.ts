// How pg_dump and pg_restore are found, and the environment variables with which they find a database.
import { chmod, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { connectionVariables, findTool } from '../../src/cli/data/postgres-tools.ts';

describe('connectionVariables', () => {
  test.each([
    ['', undefined, undefined],
    ['?sslmode=require', 'require', undefined],
    ['?ssl=require', 'require', undefined],
    ['?ssl=true', 'verify-full', 'system'],
    ['?ssl=on', 'verify-full', 'system'],
    ['?ssl=false', 'disable', undefined],
    ['?sslmode=verify-full&sslrootcert=/etc/ca.pem', 'verify-full', '/etc/ca.pem'],
    ['?sslrootcert=system', 'verify-full', 'system'],
  ])('uses TLS as the gateway does with %j', (query, mode, root) => {
    const variables = connectionVariables(`postgres://user:p%40ss@db.example/town${query}`);
    expect(variables).toMatchObject({
      PGHOST: 'db.example',
      PGUSER: 'user',
      PGPASSWORD: 'p@ss',
      PGDATABASE: 'town',
    });
    expect([variables['PGSSLMODE'], variables['PGSSLROOTCERT']]).toEqual([mode, root]);
  });
});

describe('findTool', () => {
  let folder: string;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'townhall-tools-'));
    await installPgDump(join(folder, 'old'), '9.6');
    await installPgDump(join(folder, 'versions/17/bin'), '17.2');
  });
  afterAll(async () => rm(folder, { recursive: true }));

  test('says what to install for a newer server', async () => {
    const env = { PATH: join(folder, 'old') };
    const tool = findTool('pg_dump', env, { serverMajor: 99, versions: join(folder, 'none') });
    await expect(tool).rejects.toThrow(
      /pg_dump has version 9, and the server has 99\. Install the client programs of PostgreSQL 99 or newer/,
    );
  });

  test('says what to install when no tool is installed', async () => {
    const tool = findTool('pg_dump', { PATH: join(folder, 'none') }, { serverMajor: 15, versions: folder });
    await expect(tool).rejects.toThrow(
      'pg_dump is not installed. Install the client programs of PostgreSQL 15',
    );
  });

  test('prefers the newest installed version', async () => {
    const versions = join(folder, 'versions');
    const tool = await findTool('pg_dump', { PATH: join(folder, 'old') }, { serverMajor: 15, versions });
    expect(tool).toEqual({ path: join(versions, '17/bin/pg_dump'), major: 17 });
  });
});

/** A program that prints the version as pg_dump does. */
async function installPgDump(folder: string, version: string): Promise<void> {
  await mkdir(folder, { recursive: true });
  const path = join(folder, 'pg_dump');
  await writeFile(path, `#!/bin/sh\necho "pg_dump (PostgreSQL) ${version}"\n`);
  await chmod(path, 0o755);
}
