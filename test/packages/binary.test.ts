// The single executable behaves like the checkout, in an empty folder and without an installed
// Node.
import { execFile } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { servedVersions, walkThroughDeployments } from './deployed.ts';
import { readmeCalls, root, start, type StartedProgram } from './installation.ts';

const run = promisify(execFile);
const temporaryFolder = mkdtempSync(path.join(tmpdir(), 'townhall-binary-'));
const binary = path.join(temporaryFolder, 'townhall');
const bareEnv = { PATH: '/usr/bin:/bin' };

beforeAll(async () => {
  await run(process.execPath, [path.join(root, 'scripts/binary.ts'), '--output', binary], {
    timeout: 800_000,
  });
}, 820_000);
afterAll(() => rmSync(temporaryFolder, { recursive: true, force: true }));

function createFolder(name: string): string {
  const folderPath = path.join(temporaryFolder, name);
  mkdirSync(folderPath);
  return folderPath;
}

test('the binary prints its version', { timeout: 60_000 }, async () => {
  const { version } = JSON.parse(readFileSync(path.join(root, 'package.json'), 'utf8')) as {
    version: string;
  };
  const { stdout } = await run(binary, ['--version'], { cwd: temporaryFolder, env: bareEnv });
  expect(stdout.trim()).toBe(version);
});

test('the binary prints its help', { timeout: 60_000 }, async () => {
  const { stdout } = await run(binary, ['--help'], { cwd: temporaryFolder, env: bareEnv });
  expect(stdout).toMatch(/start +Run the local edition/);
});

test('the binary exits with 2 for an unknown command', { timeout: 60_000 }, async () => {
  await expect(run(binary, ['nonsense'], { cwd: temporaryFolder, env: bareEnv })).rejects.toMatchObject({
    code: 2,
  });
});

describe('the local edition of the binary', () => {
  let cwd: string;
  let program: StartedProgram;
  let gateway: string;
  let agent: string;
  beforeAll(async () => {
    cwd = createFolder('start');
    program = start(binary, ['start'], { cwd, env: { PORT: '0', AGENT_PORT: '0' } });
    await program.waitFor(/Ctrl-C ends it/, 180_000);
    [, gateway = ''] = await program.waitFor(/gateway +(http\S+)/);
    [, agent = ''] = await program.waitFor(/agent +(http\S+)/);
  }, 200_000);
  afterAll(async () => {
    expect(await program?.stop()).toBe(0);
  });

  test('starts without a warning', () => {
    expect(program.screen()).not.toMatch(/Warning|Error/);
  });

  test('answers the five calls of the README', { timeout: 120_000 }, async () => {
    const { stdout } = await run('sh', ['-euc', readmeCalls({ gateway, agent })], { cwd, env: bareEnv });
    expect(stdout).toMatch(/"services":\[/);
    expect(stdout).toMatch(/From the documentation/);
    expect(stdout).toMatch(/data: \[DONE\]/);
    expect(stdout).toMatch(/"success":true/);
  });

  test('serves the portal from the executable', async () => {
    expect(await (await fetch(`${gateway}/docs/`)).text()).toMatch(/<h1[^>]*>Townhall/);
    expect((await fetch(`${gateway}/docs/absent.html`)).status).toBe(404);
  });

  // The worker thread that generates speech loads its program from the executable.
  test('generates speech in a worker thread', async () => {
    const token = readFileSync(path.join(cwd, 'data/local.token'), 'utf8').trim();
    const speech = await fetch(`${gateway}/v1/ai/tts`, {
      method: 'POST',
      headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
      body: JSON.stringify({ model: 'local/flite', text: 'Good morning' }),
    });
    expect(speech.headers.get('content-type')).toBe('audio/wav');
  });

  test('answers a command over its control socket', async () => {
    const { stdout } = await run(binary, ['admin', 'token', 'list', '--json'], { cwd, env: bareEnv });
    expect(JSON.parse(stdout)).toEqual({ items: [] });
  });
});

test('the binary keeps its data over a restart', { timeout: 300_000 }, async () => {
  const cwd = createFolder('again');
  const readTokenOfStart = async () => {
    const program = start(binary, ['start'], { cwd, env: { PORT: '0', AGENT_PORT: '0' } });
    await program.waitFor(/Ctrl-C ends it/, 180_000);
    const token = readFileSync(path.join(cwd, 'data/local.token'), 'utf8');
    expect(await program.stop()).toBe(0);
    return token;
  };
  expect(await readTokenOfStart()).toBe(await readTokenOfStart());
});

test('the binary runs the services of a project without an install', { timeout: 300_000 }, async () => {
  const cwd = createFolder('project');
  mkdirSync(path.join(cwd, 'src'));
  writeFileSync(
    path.join(cwd, 'townhall.json'),
    JSON.stringify({
      schema: 1,
      type: 'city',
      id: 'cty_00000000000000000000000000',
      name: 'notes',
      entry: 'src/index.ts',
      deployment: { target: 'local' },
    }),
  );
  writeFileSync(
    path.join(cwd, 'src/index.ts'),
    `import { defineService } from 'townhall';
export const notes = defineService({
  id: 'notes',
  name: 'Notes',
  actions: {
    ping: { method: 'GET', identities: [], run: async (): Promise<{ pong: boolean }> => ({ pong: true }) },
  },
});`,
  );
  const program = start(binary, ['gateway', '--project', cwd], {
    cwd,
    env: { PORT: '0', HOST: '127.0.0.1' },
  });
  try {
    const [, url = ''] = await program.waitFor(/^\{(?=.*"msg":"listening").*"url":"([^"]+)"/m, 180_000);
    expect(await (await fetch(`${url}/v1/notes/ping`)).json()).toEqual({ pong: true });
  } finally {
    expect(await program.stop()).toBe(0);
  }
});

test('the binary deploys and operates a new project with an empty PATH', { timeout: 600_000 }, async () => {
  expect(
    await walkThroughDeployments({ command: [binary], home: createFolder('deployed'), env: { PATH: '' } }),
  ).toEqual(servedVersions);
});
