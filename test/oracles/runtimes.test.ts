// The published packages in other runtimes: Deno, Bun, and the edge runtime, which has
// only web APIs. Each runs one program against a server: a call, a stream, an error.
import { execFile } from 'node:child_process';
import { globSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import { build, transform } from 'esbuild';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startGateway, type GatewayWorld } from '../support/gateway.ts';
import { installTool } from './packages.ts';

const run = promisify(execFile);
const root = path.join(import.meta.dirname, '../..');
const folder = path.join(root, 'build/oracles/runtimes');
let gateway: GatewayWorld;
let program: string;

// The program collects its results; they are the same in every runtime.
const imports = `
  import { createGatewayClient, GatewayError } from '@townhall/gateway';
  import { createAgentClient, AgentError } from '@townhall/agent';
`;
const calls = (url: string, token: string) => `
  const client = createGatewayClient({ baseUrl: '${url}', token: '${token}' });
  const results = [];
  const call = client.ai.generateText({ model: 'local/echo', prompt: 'Hi' });
  const { data, requestId } = await call.withResponse();
  results.push(data.parts[0].text, requestId.startsWith('req_'));
  for await (const part of client.ai.streamText({
    model: 'local/echo',
    prompt: [{ role: 'user', content: [{ type: 'text', text: 'Hi' }] }],
  })) if (part.type === 'finish') results.push(part.finishReason.unified);
  await client.ai.getModel({ model_id: 'no/model' }).catch((error) => {
    results.push(GatewayError.isInstance(error) && error.code);
  });
  await createAgentClient({ baseUrl: '${url}' }).sessions.list().catch((error) => {
    results.push(AgentError.isInstance(error));
  });
`;
const expected = JSON.stringify(['Hi', true, 'stop', 'model_not_found', true]);

beforeAll(async () => {
  gateway = await startGateway({ env: { LOG_LEVEL: 'error' } });
  rmSync(folder, { recursive: true, force: true });
  const packages = path.join(folder, 'node_modules/@townhall');
  mkdirSync(packages, { recursive: true });
  await run(process.execPath, [path.join(root, 'scripts/build-clients.ts'), '--into', packages]);
  symlinkSync(
    path.join(root, 'node_modules/eventsource-parser'),
    path.join(folder, 'node_modules/eventsource-parser'),
  );
  writeFileSync(path.join(folder, 'package.json'), '{"type":"module"}');
  program = path.join(folder, 'program.mjs');
  writeFileSync(
    program,
    `${imports}${calls(gateway.url, gateway.userToken)}\nconsole.log(JSON.stringify(results));\n`,
  );
});
afterAll(() => gateway?.close());

const hasRuntimeBinaries = process.platform === 'linux' && process.arch === 'x64';

describe('the clients', () => {
  test.skipIf(!hasRuntimeBinaries)('run in Deno', async () => {
    const deno = path.join(installTool('deno'), 'node_modules/@deno/linux-x64-glibc/deno');
    const { stdout } = await run(deno, ['run', '--allow-net=127.0.0.1', '--allow-read', program], {
      cwd: folder,
      env: { ...process.env, DENO_NO_UPDATE_CHECK: '1', DENO_DIR: path.join(folder, 'deno') },
    });
    expect(stdout.trim()).toBe(expected);
  });

  test.skipIf(!hasRuntimeBinaries)('run in Bun', async () => {
    const bun = path.join(installTool('bun'), 'node_modules/@oven/bun-linux-x64/bin/bun');
    const { stdout } = await run(bun, ['run', program], { cwd: folder });
    expect(stdout.trim()).toBe(expected);
  });

  test('run in the edge runtime', async () => {
    const bundle = await build({
      stdin: {
        contents: `${imports}
          export const result = (async () => {
            ${calls(gateway.url, gateway.userToken)}
            return JSON.stringify(results);
          })();`,
        resolveDir: folder,
        loader: 'js',
      },
      bundle: true,
      format: 'iife',
      globalName: 'program',
      write: false,
      platform: 'neutral',
      conditions: ['import'],
      mainFields: ['module', 'main'],
    });
    const bundleText = `${bundle.outputFiles[0]?.text ?? ''};globalThis.result = program.result;`;
    const tool = path.join(installTool('edge-runtime'), 'node_modules/edge-runtime/dist/index.js');
    const script = path.join(folder, 'edge.cjs');
    writeFileSync(
      script,
      `const { EdgeRuntime } = require(${JSON.stringify(tool)});
      const runtime = new EdgeRuntime();
      runtime.evaluate(${JSON.stringify(bundleText)});
      runtime.context.result.then((text) => console.log(text));`,
    );
    const { stdout } = await run(process.execPath, [script]);
    expect(stdout.trim()).toBe(expected);
  });

  test.each(['gateway', 'agent'])('use no API of Node: %s', async (name) => {
    const dist = path.join(folder, 'node_modules/@townhall', name, 'dist');
    const files = globSync('**/*.js', { cwd: dist });
    expect(files).toContain(`${name}/src/index.js`);
    for (const file of files) {
      const text = readFileSync(path.join(dist, file), 'utf8');
      // Without comments, since their samples use APIs of Node.
      const { code } = await transform(text, { minifyWhitespace: true, legalComments: 'none' });
      expect(code, file).not.toMatch(/\b(?:Buffer|process)\.|"node:/);
    }
  });
});
