// The life of a project with nothing but the published command: created in an empty folder, deployed,
// broken, repaired, rolled back and stopped.
import { execFile } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import { createGatewayClient } from '@townhall/gateway';
import { expect } from 'vitest';
import { readTree } from '../support/file-tree.ts';
import { root } from './installation.ts';

const run = promisify(execFile);
/** The data and the log of a project's server. */
const serverFiles = /^\.townhall\/(?:data\/|city\.log$)/;

export interface Operator {
  /** The command with its leading arguments. */
  command: readonly [string, ...string[]];
  /** An empty folder. */
  home: string;
  /** The whole environment of the command. */
  env: Record<string, string>;
}

interface CommandResult {
  code: number;
  screen: string;
}

interface Project {
  home: string;
  folder: string;
  /** The address of the served City; empty before the first deployment. */
  url: string;
  townhall(words: readonly string[], options?: { cwd?: string; input?: string }): Promise<CommandResult>;
  get(route: string): Promise<unknown>;
  /** The version in package.json. */
  packageVersion(): string;
}

/**
 * The versions that serve in `walkThroughDeployments`. A new project has 0.1.0, and each deployment raises the
 * version: 0.1.1, then 0.1.2. The rollback returns to 0.1.1.
 */
export const servedVersions = ['0.1.1', '0.1.2', '0.1.1'];

/** Runs all steps and leaves nothing running. Returns the versions that served, in order. */
export async function walkThroughDeployments(operator: Operator): Promise<string[]> {
  const project = projectOf(operator);
  expect(await project.townhall(['init', 'demo'], { cwd: operator.home })).toMatchObject({
    code: 0,
    screen: expect.stringContaining('cd demo && townhall deploy'),
  });
  const versions: string[] = [];
  const noteServedVersion = async (): Promise<void> =>
    void versions.push(((await project.get('/v1/cities/current')) as { version: string }).version);
  let stopResult: CommandResult | undefined;
  try {
    await planBeforeDeployment(project);
    await deployFirst(project);
    await callAsTheGuideShows(project);
    await useDataCommands(project);
    await noteServedVersion();
    await changeNothing(project);
    await deploySecond(project);
    await noteServedVersion();
    await rollBack(project);
    await noteServedVersion();
  } finally {
    stopResult = await project.townhall(['city', 'stop']);
  }
  expect(stopResult).toMatchObject({ code: 0, screen: expect.stringContaining('Stopped.') });
  await expect(project.get('/v1/hello/world')).rejects.toThrow('fetch failed');
  expect(await project.townhall(['city', 'status'])).toMatchObject({
    code: 1,
    screen: expect.stringContaining('Start it: townhall city start'),
  });
  return versions;
}

function projectOf({ command: [program, ...leadingWords], home, env }: Operator): Project {
  const folder = path.join(home, 'demo');
  const project: Project = {
    home,
    folder,
    url: '',
    async townhall(words, { cwd = folder, input = '' } = {}) {
      const settings = { HOST: '127.0.0.1', PORT: '0', HOME: home, ...env };
      const execution = run(program, [...leadingWords, ...words], { cwd, env: settings, timeout: 240_000 });
      execution.child.stdin?.end(input);
      return execution.then(
        ({ stdout, stderr }) => ({ code: 0, screen: stdout + stderr }),
        (error: unknown) => {
          const { code, stdout, stderr } = error as { code?: number; stdout: string; stderr: string };
          return { code: code ?? -1, screen: stdout + stderr };
        },
      );
    },
    // Each request uses a new connection, since an open connection may still lead to the previous version.
    get: async (route) =>
      (await fetch(`${project.url}${route}`, { headers: { connection: 'close' } })).json(),
    packageVersion: () =>
      (JSON.parse(readFileSync(path.join(folder, 'package.json'), 'utf8')) as { version: string }).version,
  };
  return project;
}

/** Commands that change nothing, before the first deployment. */
async function planBeforeDeployment({ townhall, folder, packageVersion }: Project): Promise<void> {
  const treeBefore = readTree(folder, serverFiles);
  expect(await townhall(['deploy', '--dry-run'])).toMatchObject({
    code: 0,
    screen: expect.stringMatching(/0\.1\.0 to 0\.1\.1[\s\S]*Nothing was changed/),
  });
  expect(await townhall(['deploy', '--verify-only'])).toMatchObject({
    code: 1,
    screen: expect.stringContaining('No healthy version serves'),
  });
  expect(readTree(folder, serverFiles)).toEqual(treeBefore);
  expect(packageVersion()).toBe('0.1.0');
}

async function deployFirst(project: Project): Promise<void> {
  const deployment = await project.townhall(['deploy']);
  expect(deployment).toMatchObject({
    code: 0,
    screen: expect.stringMatching(/demo 0\.1\.1 serves at http:\/\/127\.0\.0\.1:\d+/),
  });
  expect(deployment.screen).not.toMatch(/Warning/);
  project.url = /serves at (http:\S+)/.exec(deployment.screen)?.[1] ?? '';
  expect(project.packageVersion()).toBe('0.1.1');
}

/** As a guest, then with a user token, by curl. */
async function callAsTheGuideShows({ home, url }: Project): Promise<void> {
  const { stdout } = await run('sh', [path.join(root, 'examples/deployed-project.sh')], {
    cwd: home,
    env: { PATH: '/usr/bin:/bin', TOWNHALL_URL: url },
  });
  expect(stdout).toMatch(
    /^\{"message":"Hello, world\."\}\n\{"message":"Good morning, [^"]+","user_id":"usr_\w+"\}\n$/,
  );
}

/** Data commands use the City's database. */
async function useDataCommands({ townhall, home, url }: Project): Promise<void> {
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
}

/** A plan, a verification and a deployment that fails. */
async function changeNothing({ townhall, get, folder, url }: Project): Promise<void> {
  const record = await get('/v1/cities/current');
  expect(record).toMatchObject({ name: 'demo', version: '0.1.1', base_url: url });
  const deployedTree = readTree(folder, serverFiles);
  const expectUnchanged = async (): Promise<void> => {
    expect(readTree(folder, serverFiles)).toEqual(deployedTree);
    expect(await get('/v1/cities/current')).toEqual(record);
    expect(await get('/v1/hello/world')).toEqual({ message: 'Hello, world.' });
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

  const entry = path.join(folder, 'src/index.ts');
  const source = readFileSync(entry, 'utf8');
  writeFileSync(entry, `${source}\nthrow new Error('the letter box is shut');\n`);
  expect(await townhall(['deploy'])).toMatchObject({
    code: 1,
    screen: expect.stringMatching(
      /src\/index\.ts: the letter box is shut \(line \d+\)\nVersion 0\.1\.1 is still running; nothing was changed/,
    ),
  });
  writeFileSync(entry, source);
  await expectUnchanged();
}

async function deploySecond({ townhall, get, packageVersion, folder, url }: Project): Promise<void> {
  const entry = path.join(folder, 'src/index.ts');
  const source = readFileSync(entry, 'utf8');
  writeFileSync(entry, source.replace('Hello, world.', 'Hello again.'));
  expect(await townhall(['deploy'])).toMatchObject({
    code: 0,
    screen: expect.stringContaining(`demo 0.1.2 serves at ${url}`),
  });
  expect(await get('/v1/hello/world')).toEqual({ message: 'Hello again.' });
  expect(packageVersion()).toBe('0.1.2');
}

async function rollBack({ townhall, get, packageVersion, url }: Project): Promise<void> {
  expect(await townhall(['city', 'rollback'])).toMatchObject({
    code: 0,
    screen: expect.stringContaining(`0.1.1 serves at ${url}`),
  });
  expect(await get('/v1/hello/world')).toEqual({ message: 'Hello, world.' });
  expect(packageVersion()).toBe('0.1.2');
  expect(await townhall(['city', 'status'])).toMatchObject({
    code: 0,
    screen: expect.stringMatching(/version +0\.1\.1\n/),
  });
}
