// The commands of docs/guides/first-plugin.md, in their order, on a machine where `townhall` is on
// the PATH.
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { chmod, mkdir, mkdtemp, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { until } from '../support/until.ts';
import { entry, townhall, type Run } from './townhall.ts';

const runFile = promisify(execFile);
const repository = join(import.meta.dirname, '../..');
const guide = readFileSync(join(repository, 'docs/guides/first-plugin.md'), 'utf8');
const commands = [...guide.matchAll(/```sh\n([^`]*)```/g)].flatMap(([, text = '']) =>
  text.trim().split('\n'),
);
const [initPlugin = '', , testPlugin = '', startEdition = '', callRoll = ''] = commands;
let root: string;
let plugin: string;

beforeAll(async () => {
  root = await mkdtemp(join(tmpdir(), 'townhall-first-plugin-'));
  plugin = join(root, 'dice');
  await mkdir(join(root, 'bin'));
  await writeFile(join(root, 'bin/townhall'), `#!/bin/sh\nexec "${process.execPath}" "${entry}" "$@"\n`);
  await chmod(join(root, 'bin/townhall'), 0o755);
});
afterAll(() => rm(root, { recursive: true, force: true }));

async function shell(line: string, cwd: string): Promise<string> {
  const PATH = [join(root, 'bin'), dirname(process.execPath), process.env['PATH']].join(':');
  const { stdout } = await runFile('sh', ['-c', line], { cwd, env: { PATH, HOME: root }, timeout: 60_000 });
  return stdout;
}

/** Runs the TypeScript compiler on the folder; resolves with its errors. */
function typeErrors(folder = plugin): Promise<string> {
  const compiler = join(repository, 'node_modules/typescript/bin/tsc');
  return runFile(process.execPath, [compiler, '-p', folder]).then(
    () => '',
    (error: unknown) => {
      const { stdout } = error as { stdout: string };
      // A compiler that could not run prints no errors either.
      if (stdout === '') throw error;
      return stdout;
    },
  );
}

/** The source of the plugin with the text replaced. */
async function replaceInSource(text: string, replacement: string): Promise<string> {
  const source = await readFile(join(plugin, 'src/index.ts'), 'utf8');
  expect(source).toContain(text);
  return source.replace(text, replacement);
}

async function edit(text: string, replacement: string): Promise<void> {
  await writeFile(join(plugin, 'src/index.ts'), await replaceInSource(text, replacement));
}

/** Calls the action of the plugin in the running local edition. */
async function rollDice(): Promise<unknown> {
  return JSON.parse(await shell(callRoll, plugin));
}

describe('your first plugin', { timeout: 120_000 }, () => {
  test('the guide has the commands of this test', () => {
    expect(commands).toEqual([
      'townhall init dice --plugin',
      'cd dice',
      'npm test',
      'townhall start --plugin src/index.ts --watch',
      `townhall agent call dice roll '{"sides": 20}'`,
    ]);
  });

  test('a new plugin passes its test', async () => {
    expect(await shell(initPlugin, root)).toContain('src/index.test.ts');
    expect(await shell(testPlugin, plugin)).toContain('pass 2');
  });

  test('a new plugin compiles', async () => {
    expect(await typeErrors()).toBe('');
  });

  test('the compiler reports a wrong use of an input member', async () => {
    await edit('const rolls', 'sides satisfies string;\n        const rolls');
    expect(await typeErrors()).toContain(`src/index.ts`);
    await edit('sides satisfies string;\n        ', '');
  });

  describe('beside a local edition', () => {
    let edition: Run;
    beforeAll(async () => {
      const words = startEdition.split(' ').slice(1);
      const env = { HOST: '127.0.0.1', PORT: '0', AGENT_PORT: '0', CONSOLE_PORT: '0' };
      edition = townhall(words, { cwd: plugin, env });
      await edition.waitFor(/is running\./);
    }, 120_000);
    afterAll(async () => {
      edition.process.kill('SIGTERM');
      await edition.ended;
    });

    const countStarts = () => [...edition.screen().matchAll(/is running\./g)].length;

    test('the action answers a call of the command line', async () => {
      expect(await rollDice()).toMatchObject({ rolls: [expect.any(Number)] });
    });

    test('a changed file is loaded again', async () => {
      await edit('sum: rolls', 'total: rolls');
      await edition.waitFor(/is running\.[^]*is running\./);
      expect(await rollDice()).toMatchObject({ total: expect.any(Number) });
    });

    test('the agent starts again after the repair of a syntax error', async () => {
      await edit('const rolls', 'const const rolls');
      await edition.waitFor(
        /index\.ts cannot be loaded: .+ \(line \d+\)[^]*restarts when one of its files changes/,
      );
      await edit('const const rolls', 'const rolls');
      await edition.waitFor(/restarts when one of its files changes[^]*is running\./);
      expect(await rollDice()).toMatchObject({ total: expect.any(Number) });
    });

    test('a file that an editor replaces is loaded again each time', async () => {
      for (const [from, to] of [
        ['total', 'points'],
        ['points', 'sum'],
      ] as const) {
        const file = join(plugin, 'src/index.ts');
        const startsBefore = countStarts();
        await writeFile(`${file}~`, await replaceInSource(`${from}: rolls`, `${to}: rolls`));
        await rename(`${file}~`, file);
        await until(() => countStarts() > startsBefore, 'the agent has restarted');
        expect(await rollDice()).toMatchObject({ [to]: expect.any(Number) });
      }
    });
  });
});

describe('a project', () => {
  test('gets its files by townhall link after a clone', async () => {
    await shell('townhall init demo', root);
    const project = join(root, 'demo');
    await rm(join(project, '.townhall'), { recursive: true });
    expect(await shell('townhall link', project)).toBe(
      'Wrote .townhall/tsconfig.json\nWrote .townhall/register.js\n',
    );
    expect(await typeErrors(project)).toBe('');
  });

  test('has the types of its inputs', { timeout: 120_000 }, async () => {
    await shell('townhall init shop', root);
    const entryFile = join(root, 'shop/src/index.ts');
    const source = await readFile(entryFile, 'utf8');
    await writeFile(entryFile, source.replace('message: `${input.greeting', 'wrong: input.greting, $&'));
    expect(await typeErrors(join(root, 'shop'))).toMatch(/src\/index\.ts.+Property 'greting' does not exist/);
  });
});

describe('townhall init', () => {
  test('refuses an invalid name of a plugin', async () => {
    await expect(shell('townhall init Dice --plugin', root)).rejects.toMatchObject({
      stderr: expect.stringContaining('"Dice" is not a valid plugin name: lower-case letters'),
    });
  });
});
