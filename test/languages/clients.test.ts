// Generated clients in other languages call running servers: classes that quicktype generates from the two
// documents, with each language's own HTTP library. A language without a compiler on this machine is skipped.
import { execFile } from 'node:child_process';
import { copyFileSync, cpSync, globSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Document } from '../../scripts/generate/document.ts';
import { startSampleServers, type SampleServers } from '../docs/sample-servers.ts';
import { writeComponentSchemas } from '../oracles/component-schemas.ts';
import { installTool } from '../oracles/packages.ts';
import { hasProgram } from '../oracles/programs.ts';

const run = promisify(execFile);
const root = path.join(import.meta.dirname, '../..');
const folder = path.join(root, 'build/oracles/languages');
/** The schemas that the programs use, by their document. */
const types = {
  gateway: ['ModelList', 'ChatCompletion', 'Problem'],
  agent: ['Session', 'PromptReceipt', 'Problem'],
};
let servers: SampleServers;
beforeAll(async () => {
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  servers = await startSampleServers();
});
afterAll(() => servers?.close());

interface Generation {
  surface: keyof typeof types;
  language: string;
  file: string;
  options?: readonly string[];
}

/** Generates the classes of the schemas that the programs use. */
async function generate({ surface, language, file, options = [] }: Generation): Promise<void> {
  const bundle = path.join(root, 'src/contract', surface, 'bundle.json');
  const document = JSON.parse(readFileSync(bundle, 'utf8')) as Document;
  const schemas = path.join(folder, `${surface}-${language}.json`);
  mkdirSync(path.dirname(file), { recursive: true });
  // Without `format`, the generated Python needs no package that parses dates.
  writeComponentSchemas(document, types[surface], {
    file: schemas,
    leaveOut: language === 'python' ? ['format'] : [],
  });
  const tool = path.join(installTool('quicktype'), 'node_modules/quicktype/dist/index.js');
  const source = ['--src-lang', 'schema', '--src', `${schemas}#/definitions/`];
  await run(process.execPath, [tool, ...source, '--lang', language, '--out', file, ...options]);
}

async function runProgram(command: string, words: string[], cwd: string): Promise<unknown> {
  const { stdout } = await run(command, words, {
    cwd,
    env: {
      ...process.env,
      GATEWAY_URL: servers.gateway.url,
      GATEWAY_TOKEN: servers.gateway.userToken,
      AGENT_URL: servers.agents.current.url,
      AGENT_TOKEN: servers.agents.current.token,
      GOFLAGS: '-mod=mod',
      GOPROXY: 'off',
    },
  });
  return JSON.parse(stdout);
}

const expected = {
  models: expect.arrayContaining(['local/echo', 'acme/fast']),
  text: expect.stringContaining('Good morning'),
  refusal: 'model_not_found',
  session: true,
  missing: 'session_not_found',
};
const surfaces = ['gateway', 'agent'] as const;

describe('a generated client calls both servers', () => {
  test.skipIf(!hasProgram('python3'))('in Python', async () => {
    const target = path.join(folder, 'python');
    for (const surface of surfaces)
      await generate({ surface, language: 'python', file: path.join(target, `${surface}.py`) });
    copyFileSync(path.join(import.meta.dirname, 'client.py'), path.join(target, 'client.py'));
    expect(await runProgram('python3', ['client.py'], target)).toEqual(expected);
  });

  test.skipIf(!hasProgram('go'))('in Go', async () => {
    const target = path.join(folder, 'go');
    for (const surface of surfaces) {
      const file = path.join(target, surface, 'types.go');
      await generate({ surface, language: 'go', file, options: ['--package', surface] });
    }
    writeFileSync(path.join(target, 'go.mod'), 'module townhall\n\ngo 1.19\n');
    copyFileSync(path.join(import.meta.dirname, 'client.go'), path.join(target, 'client.go'));
    expect(await runProgram('go', ['run', '.'], target)).toEqual(expected);
  });

  test.skipIf(!hasProgram('javac'))('in Java', async () => {
    const target = path.join(folder, 'java');
    for (const surface of surfaces) {
      const file = path.join(target, surface, 'Converter.java');
      await generate({
        surface,
        language: 'java',
        file,
        options: ['--package', surface, '--array-type', 'list'],
      });
    }
    cpSync(path.join(import.meta.dirname, 'Client.java'), path.join(target, 'Client.java'));
    const jar = path.join(
      installTool('openapi-generator'),
      'node_modules/@openapitools/openapi-generator-cli/bin/openapi-generator.jar',
    );
    const classPath = ['-cp', `${jar}:.`];
    const sources = globSync(['*.java', '*/*.java'], { cwd: target });
    await run('javac', [...classPath, '-nowarn', ...sources], { cwd: target, maxBuffer: 1 << 26 });
    expect(await runProgram('java', [...classPath, 'Client'], target)).toEqual(expected);
  });
});
