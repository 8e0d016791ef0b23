// The exit code of a test run, with the server of DATABASE_URL and with its own server.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { describe, expect, inject, test } from 'vitest';
import { packageFolder } from './package-folder.ts';

const root = join(import.meta.dirname, '..', '..');

async function runTests(
  outcome: 'pass' | 'fail',
  databaseUrl: string | undefined,
): Promise<{ code: number; screen: string }> {
  const { DATABASE_URL: _url, ...env } = process.env;
  const child = spawn(
    process.execPath,
    [join(packageFolder('vitest'), 'vitest.mjs'), 'run', '--config', 'test/support/exit-code-config.mjs'],
    {
      cwd: root,
      env: {
        ...env,
        EXIT_CODE_CASE: outcome,
        ...(databaseUrl === undefined ? {} : { DATABASE_URL: databaseUrl }),
      },
      stdio: ['ignore', 'pipe', 'pipe'],
    },
  );
  let screen = '';
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (piece: Buffer) => (screen += piece.toString('utf8')));
  const [code] = (await once(child, 'close')) as [number];
  return { code, screen };
}

describe('a test run', () => {
  const source = inject('databaseSource');
  const url = source?.engine === 'postgres' ? source.url : undefined;

  test.each([
    ['the server of DATABASE_URL', url],
    ['a server of its own', undefined],
  ])('on %s exits with 1 only when a test fails', async (_title, databaseUrl) => {
    const result = await runTests('fail', databaseUrl);
    expect(result.screen).toMatch(/1 failed/);
    expect(result.code, result.screen).toBe(1);
    const passingRun = await runTests('pass', databaseUrl);
    expect(passingRun.screen).toMatch(/1 passed/);
    expect(passingRun.code, passingRun.screen).toBe(0);
  });
});
