// The client packages as published: built into a new folder, examined, and used by a project that can
// find them only there.

import { execFile, spawnSync } from 'node:child_process';
import { globSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { publint } from 'publint';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { packageFolder } from '../support/package-folder.ts';

const run = promisify(execFile);
const root = path.join(import.meta.dirname, '../..');
const modules = path.join(root, 'node_modules');
const names = ['gateway', 'agent', 'react'];
/** The packages that each client imports at run time. */
const dependencies: Readonly<Record<string, readonly string[]>> = {
  gateway: ['eventsource-parser'],
  agent: ['eventsource-parser'],
  react: ['@townhall/gateway', 'react'],
};
let folder: string;
let packages: string;

beforeAll(async () => {
  folder = mkdtempSync(path.join(tmpdir(), 'townhall-packages-'));
  packages = path.join(folder, 'node_modules/@townhall');
  await run(process.execPath, [path.join(root, 'scripts/build-clients.ts'), '--into', packages]);
  symlinkSync(path.join(modules, 'eventsource-parser'), path.join(folder, 'node_modules/eventsource-parser'));
  writeFileSync(path.join(folder, 'package.json'), '{"type":"module"}');
}, 240_000);
afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe.each(names)('the package @townhall/%s', (name) => {
  test('passes publint', async () => {
    const { messages } = await publint({ pkgDir: path.join(packages, name), strict: true, pack: 'npm' });
    expect(messages).toEqual([]);
  });

  test('has types that resolve for every ESM consumer', async () => {
    const attw = path.join(packageFolder('@arethetypeswrong/cli'), 'dist/index.js');
    const { stdout } = await run(
      process.execPath,
      [attw, '--pack', path.join(packages, name), '--profile', 'esm-only', '--format', 'json'],
      { maxBuffer: 1 << 26 },
    );
    const { analysis } = JSON.parse(stdout) as {
      analysis: { problems: { kind: string; resolutionKind?: string }[]; entrypoints: object };
    };
    // An ESM-only package cannot be resolved by the two CommonJS modes, and attw reports that.
    expect(
      analysis.problems.filter(
        ({ resolutionKind }) => resolutionKind !== 'node10' && resolutionKind !== 'node16-cjs',
      ),
    ).toEqual([]);
    expect(Object.keys(analysis.entrypoints)).toContain('.');
  }, 240_000);

  test('imports its dependencies and no Node API', () => {
    const files = globSync('dist/**/*.js', { cwd: path.join(packages, name) });
    const imports = files.flatMap((file) =>
      Array.from(
        readFileSync(path.join(packages, name, file), 'utf8').matchAll(
          /^(?:import|export)\b[^'"]*?\bfrom\s*'([^'.][^']*)'|\bimport\(\s*'([^'.][^']*)'|^import\s*'([^'.][^']*)'/gm,
        ),
        (match) => match[1] ?? match[2] ?? match[3],
      ),
    );
    expect(files.length).toBeGreaterThan(name === 'react' ? 3 : 10);
    const expected = dependencies[name] ?? [];
    expect(new Set(imports)).toEqual(new Set(expected));
    const manifest = JSON.parse(readFileSync(path.join(packages, name, 'package.json'), 'utf8')) as {
      dependencies: object;
      peerDependencies?: object;
    };
    expect(manifest).toMatchObject({ sideEffects: false, license: 'MIT' });
    const dependencyVersions = { ...manifest.peerDependencies, ...manifest.dependencies };
    for (const dependency of expected) expect(dependencyVersions).toHaveProperty([dependency]);
  });

  test('contains neither sources nor paths of the build machine', () => {
    const files = globSync('**/*', { cwd: path.join(packages, name), withFileTypes: true }).filter((entry) =>
      entry.isFile(),
    );
    expect(files.length).toBeGreaterThan(5);
    for (const entry of files) {
      expect(entry.name).toMatch(/\.(?:js|js\.map|d\.ts)$|^package\.json$|^README\.md$|^LICENSE$/);
      expect(readFileSync(path.join(entry.parentPath, entry.name), 'utf8')).not.toContain(root);
    }
  });
});

describe('a project that installs the packages', () => {
  const program = `
    import { createGatewayClient, GatewayError, type Model } from '@townhall/gateway';
    import { createAgentClient } from '@townhall/agent';
    import { createAgentClient as createClassicClient } from '@townhall/agent/classic';
    export async function main(): Promise<string | undefined> {
      const client = createGatewayClient({ baseUrl: 'http://127.0.0.1:1', token: async () => 'x' });
      const model: Model = await client.ai.getModel({ model_id: 'local/echo' });
      const options = { signal: AbortSignal.timeout(1) };
      const answer = await client.ai.generateText({ model: model.id, prompt: 'Hi' }, options);
      // @ts-expect-error the model is required
      await client.ai.generateText({ prompt: 'Hi' });
      // @ts-expect-error it has neither a prompt nor messages
      await client.ai.generateText({ model: model.id });
      await client.ai.generateText({
        model: model.id,
        messages: [{ role: 'user', content: [{ type: 'text', text: 'Hi' }] }],
      });
      await client.ai.generateText({
        model: model.id,
        // @ts-expect-error a file has its bytes or its address
        messages: [{ role: 'user', content: [{ type: 'image', media_type: 'image/png' }] }],
      });
      // @ts-expect-error an embedding has an input
      await client.ai.embedText({ model: model.id });
      await client.ai.embedText({ model: model.id, input: [[1, 2], [3]] });
      const job = await client.ai.getImage({ job_id: 'job_1' });
      if (job.status === 'succeeded') job.images[0]?.url;
      // @ts-expect-error only a job that failed has an error
      if (job.status !== 'failed') job.error;
      // @ts-expect-error the id is required
      await client.ai.getModel();
      // @ts-expect-error there is no such operation
      client.ai.generateSong;
      for await (const part of client.ai.streamText({ model: model.id, prompt: [] }))
        if (part.type === 'finish') part.usage.inputTokens.total?.toFixed();
      const chat = { model: model.id, messages: [] };
      for await (const chunk of client.ai.createChatCompletion({ ...chat, stream: true }))
        chunk.choices[0]?.delta;
      (await client.ai.createChatCompletion(chat)).choices[0]?.message.content?.trim();
      await client.directory.getHealth();
      const { login_id } = await client.accounts.startLogin({ provider: 'local', bureau_id: 'local' });
      await client.admin.logout();
      const agent = createAgentClient({ baseUrl: 'http://127.0.0.1:1', token: 'x' });
      const result = await agent.sessions.execute({ instructions: login_id });
      const { name } = await createClassicClient({ baseUrl: 'http://127.0.0.1:1' }).status.getStatus();
      const error: unknown = answer;
      if (GatewayError.isInstance(error)) return error.code satisfies string;
      return 'text' in result ? result.text : name;
    }
    export const model = createGatewayClient({ baseUrl: 'http://127.0.0.1:1' }).model('local/echo');
  `;

  async function compile(project: string, extraSource: string): Promise<string> {
    const directory = path.join(folder, project);
    mkdirSync(directory);
    writeFileSync(path.join(directory, 'main.ts'), program + extraSource);
    const compilerOptions = {
      target: 'es2022',
      module: 'nodenext',
      lib: ['es2022', 'dom', 'dom.iterable'],
      types: [],
      strict: true,
      noEmit: true,
      skipLibCheck: false,
    };
    writeFileSync(
      path.join(directory, 'tsconfig.json'),
      JSON.stringify({ compilerOptions, include: ['main.ts'] }),
    );
    return run(process.execPath, [path.join(modules, 'typescript/bin/tsc'), '-p', directory]).then(
      () => '',
      // The message shows that the compiler did not run; then its output is empty.
      (error: unknown) => (error as { stdout: string }).stdout || String(error),
    );
  }

  test('compiles without the AI SDK', async () => {
    expect(await compile('without', '')).toBe('');
  }, 240_000);

  test('has a language model of the type of the AI SDK', async () => {
    mkdirSync(path.join(folder, 'node_modules/@ai-sdk'), { recursive: true });
    for (const name of ['@ai-sdk/provider', 'json-schema'])
      symlinkSync(path.join(modules, name), path.join(folder, 'node_modules', name));
    const extraSource = `
      import type { LanguageModelV3 } from '@ai-sdk/provider';
      export const languageModel: LanguageModelV3 = model;
      // @ts-expect-error it is not any
      export const text: string = model;
    `;
    expect(await compile('with', extraSource)).toBe('');
  }, 240_000);

  const oldNode = ['/usr/bin/node', '/usr/local/bin/node']
    .map((file) => ({ file, version: spawnSync(file, ['--version']).stdout?.toString().trim() ?? '' }))
    .find(({ version }) => /^v2[0-3]\./.test(version));

  test.skipIf(oldNode === undefined)(
    `runs on an older Node (${oldNode?.version ?? 'none on this machine: skipped'})`,
    async () => {
      const file = path.join(folder, 'old.mjs');
      writeFileSync(
        file,
        `import { createServer } from 'node:http';
       import { createGatewayClient, GatewayError } from '@townhall/gateway';
       import { createAgentClient } from '@townhall/agent';
       const part = (part) => 'data: ' + JSON.stringify(part) + '\\n\\n';
       const server = createServer((request, response) => {
         if (request.url !== '/v1/ai/stream')
           return response.writeHead(404, { 'content-type': 'text/html' }).end('no');
         response.writeHead(200, { 'content-type': 'text/event-stream' });
         const usage = { inputTokens: {}, outputTokens: {} };
         response.write(part({ type: 'text-start', id: '0' }));
         response.write(part({ type: 'text-delta', id: '0', delta: 'Hi' }));
         response.write(part({ type: 'finish', finishReason: { unified: 'stop' }, usage }));
         response.end('data: [DONE]\\n\\n');
       });
       await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
       const baseUrl = 'http://127.0.0.1:' + server.address().port;
       const client = createGatewayClient({ baseUrl, token: 'x' });
       const results = [];
       for await (const part of client.ai.streamText({ model: 'x', prompt: [] })) results.push(part.type);
       const { content } = await client.model('x').doGenerate({ prompt: [] });
       const statusOf = (error) => GatewayError.isInstance(error) && error.status;
       results.push(content[0].text, await client.ai.listModels().catch(statusOf));
       const agent = createAgentClient({ baseUrl });
       results.push(await agent.status.getHealth().catch((error) => error.name));
       console.log(JSON.stringify(results));
       server.close(() => process.exit(0));`,
      );
      const { stdout } = await run(oldNode?.file ?? '', [file], { timeout: 60_000 });
      expect(JSON.parse(stdout)).toEqual(['text-start', 'text-delta', 'finish', 'Hi', 404, 'AgentError']);
    },
  );
});
