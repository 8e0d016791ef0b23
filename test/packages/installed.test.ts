// The published packages work without the repository: the server and the clients are installed from their
// tarballs, on the Node versions that they support.
import { execFile } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { servedVersions, walkThroughDeployments } from './deployed.ts';
import { install, nodeFolder, root, start, type Installation } from './installation.ts';

const run = promisify(execFile);
/** The folders of the Node versions that this machine has, by their major numbers. */
const nodeFolders = new Map<number, string>();
for (const major of [20, 22, 24]) {
  const folder = await nodeFolder(major);
  if (folder !== undefined) nodeFolders.set(major, folder);
}
let installation: Installation;

beforeAll(async () => {
  installation = await install();
}, 900_000);
afterAll(() => installation?.remove());

function folderOfNode(major: number): string {
  const folder = nodeFolders.get(major);
  if (folder === undefined) throw new Error(`There is no Node ${major} here.`);
  return folder;
}

describe.each([22, 24])('the packages on Node %i', (major) => {
  test.skipIf(!nodeFolders.has(major))(
    'serve the local edition and the five calls of the README',
    { timeout: 400_000 },
    async () => {
      const node = folderOfNode(major);
      const home = mkdtempSync(path.join(installation.folder, `home-${major}-`));
      const server = start('npx', ['--no-install', 'townhall', 'start'], {
        cwd: home,
        node,
        env: { PORT: '0', AGENT_PORT: '0' },
      });
      try {
        await server.waitFor(/Ctrl-C ends it/, 240_000);
        const [, gateway = ''] = await server.waitFor(/gateway +(http\S+)/);
        const [, agent = ''] = await server.waitFor(/agent +(http\S+)/);
        expect(server.screen()).not.toMatch(/Warning|Error/);
        expect(await runFiveCalls({ home, gateway, agent })).toEqual([]);
        // The package contains the documentation.
        expect(await (await fetch(`${gateway}/docs/guides/first-five-minutes.html`)).text()).toMatch(
          /<h1[^>]*>The first five minutes/,
        );
        expect(await runClients({ node, home, gateway, agent })).toEqual({
          model: 'local/echo',
          text: 'Good morning',
          session: 'idle',
          refusal: 'model_not_found',
        });
      } finally {
        // The signal may end npx itself; the command that it ran must stop normally.
        expect([0, 130, 'SIGINT']).toContain(await server.stop());
        expect(server.screen()).toMatch(/Stopping …/);
      }
    },
  );

  test.skipIf(!nodeFolders.has(major))('deploy and operate a new project', { timeout: 600_000 }, async () => {
    const node = folderOfNode(major);
    const home = mkdtempSync(path.join(installation.folder, `deployed-${major}-`));
    const versions = await walkThroughDeployments({
      command: ['npx', '--no-install', 'townhall'],
      home,
      env: { PATH: `${node}:/usr/bin:/bin` },
    });
    expect(versions).toEqual(servedVersions);
  });

  test.skipIf(!nodeFolders.has(major))(
    'let a program define a service, a gateway and a plugin',
    { timeout: 300_000 },
    async () => {
      const node = folderOfNode(major);
      const home = path.join(installation.folder, `embedded-${major}`);
      mkdirSync(home);
      writeFileSync(path.join(home, 'embed.ts'), embeddingProgram);
      const { stdout } = await run(path.join(node, 'node'), [path.join(home, 'embed.ts')], {
        cwd: home,
        timeout: 240_000,
        env: { PATH: '/usr/bin:/bin' },
      });
      expect(JSON.parse(stdout)).toEqual({ answer: { added: 'milk' }, plugin: 'journal' });
    },
  );
});

test.skipIf(!nodeFolders.has(20))('the clients run on Node 20', { timeout: 180_000 }, async () => {
  const program = path.join(installation.folder, 'clients-20.mjs');
  writeFileSync(program, node20Program);
  const { stdout } = await run(path.join(folderOfNode(20), 'node'), [program], {
    cwd: installation.folder,
  });
  expect(JSON.parse(stdout)).toEqual({
    node: '20',
    gateway: 'connection_failed',
    agent: 'connection_failed',
    classic: 'function',
  });
});

test.skipIf(!nodeFolders.has(20))('the command names the Node version that it needs on Node 20', async () => {
  const result = run(
    path.join(folderOfNode(20), 'node'),
    ['node_modules/townhall/bin/townhall.js', 'start'],
    { cwd: installation.folder },
  );
  await expect(result).rejects.toMatchObject({
    code: 1,
    stderr: expect.stringMatching(/^townhall: this is Node 20\S+; install Node 22\.19 or newer\.\n$/),
  });
});

test('the command prints its help', { timeout: 180_000 }, async () => {
  const townhall = path.join(installation.folder, 'node_modules/.bin/townhall');
  const env = { PATH: `${path.dirname(process.execPath)}:/usr/bin:/bin` };
  const { version } = JSON.parse(readFileSync(path.join(root, 'package.json'), 'utf8')) as {
    version: string;
  };
  expect((await run(townhall, ['--version'], { env })).stdout.trim()).toBe(version);
  expect((await run(townhall, ['--help'], { env })).stdout).toMatch(/Usage: townhall COMMAND/);
  expect((await run(townhall, ['gateway', '--help'], { env })).stdout).toMatch(/Usage: townhall gateway/);
});

test('the types compile in a project', { timeout: 300_000 }, async () => {
  const home = path.join(installation.folder, 'typed');
  mkdirSync(home);
  writeFileSync(path.join(home, 'embed.ts'), embeddingProgram);
  writeFileSync(path.join(home, 'clients.ts'), clientsProgram);
  writeFileSync(
    path.join(home, 'tsconfig.json'),
    JSON.stringify({
      compilerOptions: {
        module: 'nodenext',
        target: 'es2024',
        strict: true,
        noEmit: true,
        types: ['node'],
        typeRoots: [path.join(root, 'node_modules/@types')],
        skipLibCheck: false,
        lib: ['es2024', 'dom', 'dom.iterable', 'dom.asynciterable'],
      },
    }),
  );
  // The compiler prints its errors to stdout. Without a check of the code, a compiler that cannot start would
  // pass.
  const compilation = await run(process.execPath, [
    path.join(root, 'node_modules/typescript/bin/tsc'),
    '-p',
    home,
  ]).then(
    ({ stdout, stderr }) => ({ code: 0, output: stdout + stderr }),
    (error: unknown) => {
      const { code, stdout, stderr } = error as { code: number | string; stdout: string; stderr: string };
      return { code, output: stdout + stderr };
    },
  );
  expect(compilation).toEqual({ code: 0, output: '' });
});

test('the list of components names what the packages need', () => {
  const bill = JSON.parse(readFileSync(path.join(installation.tarballs, 'townhall.cdx.json'), 'utf8')) as {
    bomFormat: string;
    components: { 'bom-ref': string }[];
  };
  expect(bill.bomFormat).toBe('CycloneDX');
  const names = bill.components.map((component) => component['bom-ref'].replace(/(?<=.)@.*/, ''));
  expect(names).toEqual(expect.arrayContaining(['express', 'postgres', 'pg-boss', '@townhall/gateway']));
  for (const name of ['vitest', 'playwright-core', 'react']) expect(names).not.toContain(name);
});

interface LocalEdition {
  /** Its folder. */
  home: string;
  gateway: string;
  agent: string;
}

/** Runs the calls of the README and returns the patterns that their output lacks. */
async function runFiveCalls({ home, gateway, agent }: LocalEdition): Promise<RegExp[]> {
  const { stdout } = await run('sh', [path.join(root, 'examples/first-five-minutes.sh')], {
    cwd: home,
    env: { PATH: '/usr/bin:/bin', TOWNHALL_URL: gateway, AGENT_URL: agent },
  });
  const patterns = [
    /"services":\[/,
    /"local\/guide"/,
    /From the documentation/,
    /data: \[DONE\]/,
    /"success":true/,
  ];
  return patterns.filter((pattern) => !pattern.test(stdout));
}

async function runClients({ node, home, gateway, agent }: LocalEdition & { node: string }): Promise<unknown> {
  const agentToken = readFileSync(path.join(home, 'data/agent/agent.token'), 'utf8').trim();
  const program = path.join(home, 'clients.ts');
  writeFileSync(program, clientsProgram);
  const { stdout } = await run(path.join(node, 'node'), [program], {
    cwd: home,
    env: { GATEWAY: gateway, AGENT: agent, AGENT_TOKEN: agentToken },
  });
  return JSON.parse(stdout);
}

const clientsProgram = `
import { createAgentClient } from '@townhall/agent';
import { createGatewayClient, GatewayError } from '@townhall/gateway';

const { GATEWAY = '', AGENT = '', AGENT_TOKEN = '' } = process.env;
const guest = createGatewayClient({ baseUrl: GATEWAY });
const { login_id } = await guest.accounts.startLogin({ provider: 'local', bureau_id: 'local' });
const login = await guest.accounts.getLoginResult({ login_id });
if (login.status !== 'done') throw new Error(login.status);
const { user_token } = login;
const client = createGatewayClient({ baseUrl: GATEWAY, token: user_token });
const model = await client.ai.getModel({ model_id: 'local/echo' });
let text = '';
const prompt = [{ role: 'user' as const, content: [{ type: 'text' as const, text: 'Good morning' }] }];
for await (const part of client.ai.streamText({ model: model.id, prompt }))
  if (part.type === 'text-delta') text += part.delta;
const agent = createAgentClient({ baseUrl: AGENT, token: AGENT_TOKEN });
const session = await agent.sessions.create({ title: 'A first one' });
let refusal: string | undefined;
try {
  await client.ai.getModel({ model_id: 'acme/unknown' });
} catch (error) {
  if (GatewayError.isInstance(error)) refusal = error.code;
}
console.log(JSON.stringify({ model: model.id, text, session: session.status, refusal }));
`;

const embeddingProgram = `
import { createGatewayClient } from '@townhall/gateway';
import { createGateway, definePlugin, defineService } from 'townhall';

const notes = defineService({
  id: 'notes',
  name: 'Notes',
  actions: {
    add: {
      method: 'POST',
      input: {
        type: 'object',
        required: ['text'],
        properties: { text: { type: 'string' } },
        additionalProperties: false,
      },
      run: async ({ input }) => ({ added: (input as { text: string }).text }),
    },
  },
});
const journal = definePlugin({
  name: 'journal',
  title: 'Journal',
  description: 'Stores notes.',
  actions: {},
});
const gateway = await createGateway({
  settings: { PORT: '0', HOST: '127.0.0.1', DATABASE_PATH: './embedded.db' },
  services: [notes],
});
const { url } = await gateway.listen();
const client = createGatewayClient({ baseUrl: url, token: await gateway.issueLocalToken() });
// The database has its own work at the start, which takes a busy machine a while.
while (!(await fetch(url + '/ready')).ok) await new Promise((resolve) => setTimeout(resolve, 50));
const answer = await client.call('notes', 'add', { text: 'milk' });
await gateway.close();
console.log(JSON.stringify({ answer, plugin: journal.name }));
`;

const node20Program = `
import { createAgentClient } from '@townhall/agent';
import { createAgentClient as classic } from '@townhall/agent/classic';
import { createGatewayClient } from '@townhall/gateway';
const nowhere = 'http://127.0.0.1:1';
const codeOf = (call) => call.then(() => 'answered', (error) => error.code);
console.log(JSON.stringify({
  node: process.versions.node.split('.')[0],
  gateway: await codeOf(createGatewayClient({ baseUrl: nowhere, token: 'th_usr_x' }).ai.listModels()),
  agent: await codeOf(createAgentClient({ baseUrl: nowhere, token: 'th_agt_x' }).sessions.create({})),
  classic: typeof classic,
}));
`;
