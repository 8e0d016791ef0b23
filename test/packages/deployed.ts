// The life of a project with the published command only: created in an empty folder, deployed,
// broken, mended, rolled back and stopped.
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import { createGatewayClient } from '@townhall/gateway';
import { expect } from 'vitest';
import { root } from './installation.ts';

const run = promisify(execFile);

export interface Operator {
  /** The command with its leading arguments. */
  command: readonly [string, ...string[]];
  /** An empty folder. */
  home: string;
  /** The whole environment of the command. */
  env: Record<string, string>;
}

interface Ended {
  code: number;
  screen: string;
}

/** The files of a project without the data and the log of its server. */
function treeOf(directory: string): string[] {
  return readdirSync(directory, { recursive: true, encoding: 'utf8' })
    .filter((name) => !/^\.townhall\/(?:data\/|city\.log$)/.test(name))
    .map((name) => {
      const stats = statSync(path.join(directory, name));
      return `${name} ${stats.mode} ${
        stats.isFile()
          ? createHash('sha256')
              .update(readFileSync(path.join(directory, name)))
              .digest('hex')
          : ''
      }`;
    })
    .sort();
}

/** Runs all steps and leaves nothing running. Returns the versions that served, in order. */
export async function walkThroughDeployments({
  command: [program, ...before],
  home,
  env,
}: Operator): Promise<string[]> {
  const demo = path.join(home, 'demo');
  const townhall = async (
    words: readonly string[],
    { cwd = demo, input = '' }: { cwd?: string; input?: string } = {},
  ): Promise<Ended> => {
    const settings = { HOST: '127.0.0.1', PORT: '0', HOME: home, ...env };
    const execution = run(program, [...before, ...words], { cwd, env: settings, timeout: 240_000 });
    execution.child.stdin?.end(input);
    return execution.then(
      ({ stdout, stderr }) => ({ code: 0, screen: stdout + stderr }),
      (error: unknown) => {
        const { code, stdout, stderr } = error as { code?: number; stdout: string; stderr: string };
        return { code: code ?? -1, screen: stdout + stderr };
      },
    );
  };
  const versionOf = () =>
    (JSON.parse(readFileSync(path.join(demo, 'package.json'), 'utf8')) as { version: string }).version;
  const versions: string[] = [];
  const noteServing = async (): Promise<void> =>
    void versions.push(((await get('/v1/cities/current')) as { version: string }).version);
  let url = '';
  let exit: Ended | undefined;
  // A new connection each: an open one may still lead to the previous version.
  const get = async (route: string): Promise<unknown> =>
    (await fetch(`${url}${route}`, { headers: { connection: 'close' } })).json();
  const hello = () => get('/v1/hello/world');

  expect(await townhall(['init', 'demo'], { cwd: home })).toMatchObject({
    code: 0,
    screen: expect.stringContaining('cd demo && townhall deploy'),
  });
  try {
    // Commands that change nothing, before the first deployment.
    const filesBefore = treeOf(demo);
    expect(await townhall(['deploy', '--dry-run'])).toMatchObject({
      code: 0,
      screen: expect.stringMatching(/0\.1\.0 to 0\.1\.1[\s\S]*Nothing was changed/),
    });
    expect(await townhall(['deploy', '--verify-only'])).toMatchObject({
      code: 1,
      screen: expect.stringContaining('Nothing healthy serves'),
    });
    expect(treeOf(demo)).toEqual(filesBefore);
    expect(versionOf()).toBe('0.1.0');

    const first = await townhall(['deploy']);
    expect(first).toMatchObject({
      code: 0,
      screen: expect.stringMatching(/demo 0\.1\.1 serves at http:\/\/127\.0\.0\.1:\d+/),
    });
    expect(first.screen).not.toMatch(/Warning/);
    url = /serves at (http:\S+)/.exec(first.screen)?.[1] ?? '';
    expect(versionOf()).toBe('0.1.1');
    // Call it as the guide shows with curl: as a guest, then with a user token.
    const calls = await run('sh', [path.join(root, 'examples/deployed-project.sh')], {
      cwd: home,
      env: { PATH: '/usr/bin:/bin', TOWNHALL_URL: url },
    });
    expect(calls.stdout).toMatch(
      /^\{"message":"Hello, world\."\}\n\{"message":"Good morning, [^"]+","user_id":"usr_\w+"\}\n$/,
    );
    // Data commands use the City's database.
    const password = 'a password for tests only';
    expect(
      await townhall(['admin', 'setup', '--admin-id', 'root', '--password-stdin'], { input: password }),
    ).toMatchObject({
      code: 0,
      screen: expect.stringMatching(/root is set up[\s\S]*Using the data of the City demo/),
    });
    await expect(
      createGatewayClient({ baseUrl: url }).admin.login({ admin_id: 'root', password }),
    ).resolves.toMatchObject({ admin_id: 'root' });
    expect(await townhall(['db', 'backup', path.join(home, 'demo.backup')])).toMatchObject({
      code: 0,
      screen: expect.stringContaining('backed up'),
    });
    await noteServing();
    const record = await get('/v1/cities/current');
    expect(record).toMatchObject({ name: 'demo', version: '0.1.1', base_url: url });

    const deployedTree = treeOf(demo);
    const expectUnchanged = async (): Promise<void> => {
      expect(treeOf(demo)).toEqual(deployedTree);
      expect(await get('/v1/cities/current')).toEqual(record);
      expect(await hello()).toEqual({ message: 'Hello, world.' });
    };
    expect(await townhall(['deploy', '--dry-run', '--json'])).toMatchObject({
      code: 0,
      screen: expect.stringContaining('"outcome":"planned"'),
    });
    expect(await townhall(['deploy', '--verify-only'])).toMatchObject({
      code: 0,
      screen: expect.stringContaining('Healthy: version 0.1.1'),
    });
    await expectUnchanged();

    const entry = path.join(demo, 'src/index.ts');
    const sound = readFileSync(entry, 'utf8');
    writeFileSync(entry, `${sound}\nthrow new Error('the letter box is shut');\n`);
    const failure = await townhall(['deploy']);
    expect(failure).toMatchObject({
      code: 1,
      screen: expect.stringMatching(
        /src\/index\.ts: the letter box is shut \(line \d+\)\nVersion 0\.1\.1 serves on; nothing was changed/,
      ),
    });
    writeFileSync(entry, sound);
    await expectUnchanged();

    writeFileSync(entry, sound.replace('Hello, world.', 'Hello again.'));
    expect(await townhall(['deploy'])).toMatchObject({
      code: 0,
      screen: expect.stringContaining(`demo 0.1.2 serves at ${url}`),
    });
    expect(await hello()).toEqual({ message: 'Hello again.' });
    expect(versionOf()).toBe('0.1.2');
    await noteServing();

    expect(await townhall(['city', 'rollback'])).toMatchObject({
      code: 0,
      screen: expect.stringContaining(`0.1.1 serves at ${url}`),
    });
    expect(await hello()).toEqual({ message: 'Hello, world.' });
    await noteServing();
    expect(versionOf()).toBe('0.1.2');
    expect(await townhall(['city', 'status'])).toMatchObject({
      code: 0,
      screen: expect.stringMatching(/version +0\.1\.1\n/),
    });
  } finally {
    exit = await townhall(['city', 'stop']);
  }
  expect(exit).toMatchObject({ code: 0, screen: expect.stringContaining('Stopped.') });
  await expect(hello()).rejects.toThrow('fetch failed');
  expect(await townhall(['city', 'status'])).toMatchObject({
    code: 1,
    screen: expect.stringContaining('Start it: townhall city start'),
  });
  return versions;
}
