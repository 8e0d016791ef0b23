// Common behaviour of every command: help, exit code 2 for usage errors and 1 for failures, and the
// listening line.
import { execFile } from 'node:child_process';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { optionsOf } from '../../src/cli/command-line/command.ts';
import { commands } from '../../src/cli/commands.ts';
import { databaseEnv, makeDatabase, type DatabasePlace } from '../support/databases.ts';
import { testMasterKey } from '../support/gateway.ts';
import { runCommandLine } from './in-process.ts';
import { entry, runTownhall, townhall, type Run } from './townhall.ts';

const shell = promisify(execFile);

let folder: string;
let place: DatabasePlace;
let databaseSettings: Record<string, string>;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'townhall-cli-'));
  place = await makeDatabase();
  databaseSettings = { ...databaseEnv(place.options), TOWNHALL_MASTER_KEY: testMasterKey };
});
afterAll(async () => {
  await place?.remove();
  await rm(folder, { recursive: true, force: true });
});

describe('the command line', () => {
  test.each(commands.map(({ name }) => name))('explains %s with --help', async (name) => {
    const { code, screen } = await runCommandLine([name, '--help']);
    expect(code).toBe(0);
    expect(screen).toContain(`townhall ${name}`);
  });

  test('lists every command with its summary', async () => {
    const { code, screen } = await runCommandLine(['--help']);
    expect(code).toBe(0);
    for (const { name, summary } of commands) {
      expect(summary).toMatch(/^[A-Z].{10,100}\.$/);
      expect(screen).toMatch(
        new RegExp(`^  ${name} +${summary.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')}$`, 'm'),
      );
    }
  });

  // Servers always log JSON, and a completion script has no form as JSON.
  test.each(commands.filter(({ name }) => !['start', 'gateway', 'completions'].includes(name)))(
    'prints the result of $name as JSON on request',
    async ({ load }) => {
      const { command } = await load();
      expect(command.actions.flatMap((entry) => [...optionsOf(entry).keys()])).toContain('json');
    },
  );

  test.each([
    [['gatway'], 'Did you mean "townhall gateway"?'],
    [['gateway', '--prot', '1'], 'Did you mean --port?'],
    [['doctor', '--jsn'], 'Did you mean --json?'],
    [['admin', 'setpu'], 'Did you mean "townhall admin setup"?'],
    [['agent', 'token', 'crate'], 'Did you mean "townhall agent token create"?'],
    [['completions', 'bahs'], 'Did you mean "townhall completions bash"?'],
  ])('suggests the probable word for %j', async (words, sentence) => {
    const { code, screen } = await runCommandLine(words);
    expect(code).toBe(2);
    expect(screen).toContain(sentence);
  });

  test('suggests nothing for a word unlike any command', async () => {
    const { code, screen } = await runCommandLine(['frobnicate']);
    expect(code).toBe(2);
    expect(screen).not.toContain('Did you mean');
  });

  test.each([
    [['nonsense'], 'nonsense'],
    [['gateway', '--nonsense', '1'], '--nonsense'],
    [['gateway', '--port', 'many'], 'PORT'],
    [['gateway', '--admin-password', 'secret secret'], '--admin-password'],
    [['agent'], '--gateway-token-file'],
    [['agent', '--variant', 'ancient'], 'AGENT_VARIANT'],
    [['gateway', 'now'], '"now"'],
    [['start', 'now'], '"now"'],
    [['doctor', 'now'], '"now"'],
    [['gateway', '--port', '1', '--port', '2'], '--port is set twice'],
    [['admin', 'promote'], 'townhall admin setup'],
    [[], 'Usage'],
  ])('refuses %j with 2 and names the wrong part', async (words, sentence) => {
    const { code, screen } = await runCommandLine(words);
    expect(code).toBe(2);
    expect(screen).toContain(sentence);
    expect(screen).not.toContain('    at ');
  });

  test.each([
    [0, ['gateway', '--help'], 'townhall gateway'],
    [2, ['gateway', '--nonsense', '1'], '--nonsense'],
  ])('exits with the code %i for %j', async (code, words, sentence) => {
    const result = await runTownhall(words, { cwd: folder });
    expect(result).toMatchObject({ code, screen: expect.stringContaining(sentence) });
  });
});

describe('standard output', () => {
  /** Runs the command in a shell, with its output to the destination. */
  async function runInShell(words: string, destination: string): Promise<{ code: number; stderr: string }> {
    const script = `set -o pipefail; ${process.execPath} ${entry} ${words} ${destination}`;
    const result = await shell('bash', ['-c', script], { cwd: folder }).catch(
      (error: unknown) => error as { code: number; stderr: string },
    );
    return { code: 'code' in result ? result.code : 0, stderr: result.stderr };
  }

  test('may be closed by its reader', async () => {
    expect(await runInShell('doctor', '| true')).toEqual({ code: 0, stderr: '' });
  });

  test('fails the command when it cannot be written', async () => {
    const { code, stderr } = await runInShell('--help', '> /dev/full');
    expect(code).toBe(1);
    expect(stderr).toMatch(/^townhall: standard output cannot be written to: .*\n$/);
  });
});

describe('a command on existing data', () => {
  let cwd: string;
  beforeEach(async () => {
    cwd = await mkdtemp(join(folder, 'empty-'));
  });

  test.each([
    ['admin', 'token', 'list'],
    ['env', 'rewrap'],
    ['env', 'keys'],
    ['audit', 'verify'],
    ['ledger', 'verify'],
    ['ledger', 'show', 'usr_x'],
    ['ledger', 'journal', 'apply', 'gwy_x'],
    ['db', 'migrate'],
    ['db', 'backup', 'file'],
  ])('creates no database: %s %s', async (...words) => {
    const { code, screen } = await runCommandLine(words, { cwd });
    expect(code).toBe(1);
    expect(screen).toContain('There is no database at ./data/townhall.db');
    expect(await readdir(cwd)).toEqual([]);
  });

  test('creates no database: admin reset', async () => {
    const { code, screen } = await runTownhall(['admin', 'reset', '--admin-id', 'ada', '--password-stdin'], {
      cwd,
      env: { HOME: folder },
      input: 'a long enough one',
    });
    expect(code).toBe(1);
    expect(screen).toContain('There is no database at ./data/townhall.db');
    expect(await readdir(cwd)).toEqual([]);
  });
});

/** Starts a gateway on the database of this file. */
function startGateway(...words: string[]): Run {
  return townhall(['gateway', '--port', '0', '--host', '127.0.0.1', ...words], {
    cwd: folder,
    env: databaseSettings,
  });
}

describe('townhall gateway', () => {
  test('logs one listening line and exits with 0 on SIGTERM', async () => {
    const run = startGateway();
    const [, url] = await run.waitFor(/"url":"(http:\/\/127\.0\.0\.1:\d+)"/);
    expect((await fetch(`${url}/ready`)).status).toBe(200);
    run.process.kill('SIGTERM');
    expect(await run.ended).toBe(0);
    const lines = run
      .screen()
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as { msg: string; url?: string });
    expect(lines.filter(({ msg }) => msg === 'listening')).toEqual([expect.objectContaining({ url })]);
  });

  test('names the setting of a port in use', async () => {
    const run = startGateway();
    const [, port = ''] = await run.waitFor(/"url":"http:\/\/127\.0\.0\.1:(\d+)"/);
    const commandLines = {
      PORT: ['gateway', '--port', port, '--host', '127.0.0.1'],
      METRICS_PORT: ['gateway', '--port', '0', '--metrics-port', port],
      AGENT_PORT: ['agent', '--port', port, '--gateway-token-file', 'token'],
    };
    for (const [setting, words] of Object.entries(commandLines)) {
      const cwd = await mkdtemp(join(folder, 'second-'));
      const { code, screen } = await runTownhall(words, { cwd });
      expect(code, setting).toBe(1);
      expect(screen).toMatch(new RegExp(`The port ${port} is taken.* with ${setting};`));
    }
    run.process.kill('SIGTERM');
    expect(await run.ended).toBe(0);
  });

  test('logs the listening line at any level', async () => {
    const run = startGateway('--log-level', 'error');
    await run.waitFor(/"url":"http/);
    run.process.kill('SIGTERM');
    expect(await run.ended).toBe(0);
    expect(run.screen().trim().split('\n')).toHaveLength(1);
  });
});

describe('townhall admin', () => {
  /** Types the password on standard input. */
  const runAdmin = (password: string, action: 'setup' | 'reset', adminId: string, ...words: string[]) =>
    runTownhall(['admin', action, '--admin-id', adminId, '--password-stdin', ...words], {
      cwd: folder,
      env: databaseSettings,
      input: password,
    });

  /** The status of a login as the administrator `root`. */
  async function login(url: string, password: string): Promise<number> {
    const { status } = await fetch(`${url}/v1/admin/login`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ admin_id: 'root', password }),
    });
    return status;
  }

  test('sets up an administrator, and resets it beside a running server', async () => {
    const setup = await runAdmin('twelve chars\n', 'setup', 'root', '--json');
    expect(setup.code, setup.screen).toBe(0);
    expect(setup.screen).toContain('{"action":"setup","admin_id":"root"}');
    const server = startGateway();
    const [, url = ''] = await server.waitFor(/"url":"(http:\/\/127\.0\.0\.1:\d+)"/);
    expect(await login(url, 'twelve chars')).toBe(200);
    const reset = await runAdmin('another twelve characters\n', 'reset', 'root');
    expect(reset.code, reset.screen).toBe(0);
    expect(await login(url, 'twelve chars')).toBe(401);
    expect(await login(url, 'another twelve characters')).toBe(200);
    server.process.kill('SIGTERM');
    expect(await server.ended).toBe(0);
  });

  test('refuses a short password', async () => {
    const { code, screen } = await runAdmin('eleven char', 'reset', 'root');
    expect(code).toBe(1);
    expect(screen).toContain('at least 12 characters');
  });

  test('refuses a second setup', async () => {
    const { code, screen } = await runAdmin('a long enough one', 'setup', 'other');
    expect(code).toBe(1);
    expect(screen).toContain('townhall admin reset');
    expect(screen).not.toContain('    at ');
  });
});
