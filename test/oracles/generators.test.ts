// Third-party generators on the documents: each generates its code without an error. TypeScript is compiled, Go and
// Python if this machine has them. test/languages compiles Java.
import { execFile } from 'node:child_process';
import { globSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, test } from 'vitest';
import type { Document } from '../../scripts/generate/document.ts';
import { isRecord } from '../../src/kernel/json-value.ts';
import { schemaNames, writeComponentSchemas } from './component-schemas.ts';
import { hasProgram } from './programs.ts';
import { installTool, type ToolName } from './packages.ts';

const run = promisify(execFile);
const root = path.join(import.meta.dirname, '../..');
const surfaces = ['gateway', 'agent'];

const bundleOf = (surface: string) => path.join(root, 'src/contract', surface, 'bundle.json');

/** An empty folder inside the tool's folder, so that generated code finds the packages that it imports. */
function outputFolder(tool: ToolName, name: string): string {
  const folder = path.join(installTool(tool), 'generated', name);
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  return folder;
}

/** Rejects with the program's output. */
async function runTool(command: string, words: readonly string[], cwd: string): Promise<string> {
  try {
    const { stdout, stderr } = await run(command, words, { cwd, maxBuffer: 1 << 28, timeout: 540_000 });
    return stdout + stderr;
  } catch (error) {
    const {
      stdout = '',
      stderr = '',
      message,
    } = error as { stdout?: string; stderr?: string; message: string };
    throw new Error(`${message.slice(0, 500)}\n${stdout.slice(-4000)}\n${stderr.slice(-4000)}`, {
      cause: error,
    });
  }
}

function runNode(tool: ToolName, script: string, words: readonly string[], cwd: string): Promise<string> {
  return runTool(process.execPath, [path.join(installTool(tool), 'node_modules', script), ...words], cwd);
}

/** Throws the errors of tsc in the generated files. */
async function compileTypeScript(tool: ToolName, folder: string): Promise<void> {
  writeFileSync(
    path.join(folder, 'tsconfig.json'),
    JSON.stringify({
      compilerOptions: {
        target: 'es2022',
        module: 'esnext',
        moduleResolution: 'bundler',
        lib: ['es2022', 'dom', 'dom.iterable'],
        types: [],
        strict: true,
        noEmit: true,
        skipLibCheck: true,
      },
      include: ['*.ts'],
    }),
  );
  await runNode(tool, 'typescript/bin/tsc', ['-p', folder], folder);
}

/** Runs a generator that writes one TypeScript file; returns its text after tsc has accepted it. */
async function generateFile(
  tool: 'openapi-typescript' | 'openapi-zod-client',
  script: string,
  { surface, file }: { surface: string; file: string },
): Promise<string> {
  const folder = outputFolder(tool, surface);
  const output = path.join(folder, file);
  await runNode(tool, `${tool}/${script}`, [bundleOf(surface), '--output', output], folder);
  await compileTypeScript(tool, folder);
  return readFileSync(output, 'utf8');
}

/**
 * For an object whose members are all constants, orval generates a value, which does not compile if the
 * object is open. Removes the keyword `additionalProperties: true` from such objects, which does not change
 * their meaning: an object is open by default.
 */
function withoutOpenConstants(file: string): unknown {
  return JSON.parse(readFileSync(file, 'utf8'), (_name, value: unknown) => {
    if (!isRecord(value) || value['additionalProperties'] !== true || !isRecord(value['properties']))
      return value;
    const members = Object.values(value['properties']);
    if (!members.every((member) => isRecord(member) && member['const'] !== undefined)) return value;
    const { additionalProperties: _open, ...schemaMembers } = value;
    return schemaMembers;
  });
}

describe.each(surfaces)('generated code for the document of the %s', (surface) => {
  test('openapi-typescript generates types that compile', async () => {
    const types = await generateFile('openapi-typescript', 'bin/cli.js', { surface, file: 'types.ts' });
    expect(types).toContain('export interface operations');
  });

  test.each(['fetch', 'zod'])('orval generates a client for %s that compiles', async (client) => {
    const folder = outputFolder('orval', `${surface}-${client}`);
    writeFileSync(
      path.join(folder, 'document.json'),
      JSON.stringify(withoutOpenConstants(bundleOf(surface))),
    );
    const config = {
      input: { target: './document.json' },
      output: { target: './client.ts', client, mode: 'single' },
    };
    writeFileSync(
      path.join(folder, 'orval.config.mjs'),
      `export default ${JSON.stringify({ api: config })};\n`,
    );
    await runNode('orval', 'orval/dist/bin/orval.mjs', ['--config', 'orval.config.mjs'], folder);
    expect(readFileSync(path.join(folder, 'client.ts'), 'utf8').length).toBeGreaterThan(10_000);
    await compileTypeScript('orval', folder);
  });

  test('openapi-zod-client generates a client that compiles', async () => {
    const client = await generateFile('openapi-zod-client', 'bin.js', { surface, file: 'client.ts' });
    expect(client).toContain('makeApi');
  });

  const languages: Record<
    string,
    { file: string; options: string[]; compile?: (folder: string) => Promise<string> }
  > = {
    go: {
      file: 'types.go',
      options: ['--package', 'townhall'],
      ...(hasProgram('go') && {
        compile: (folder: string) => {
          writeFileSync(path.join(folder, 'go.mod'), 'module townhall\n\ngo 1.19\n');
          return runTool('go', ['vet', './...'], folder);
        },
      }),
    },
    python: {
      file: 'types.py',
      options: [],
      ...(hasProgram('python3') && {
        compile: (folder: string) => runTool('python3', ['-m', 'py_compile', 'types.py'], folder),
      }),
    },
    java: { file: 'Types.java', options: ['--package', 'townhall', '--just-types'] },
    csharp: { file: 'Types.cs', options: [] },
  };

  test.each(Object.entries(languages))(
    'quicktype generates types in %s',
    async (language, { file, options, compile }) => {
      const folder = outputFolder('quicktype', `${surface}-${language}`);
      const document = JSON.parse(readFileSync(bundleOf(surface), 'utf8')) as Document;
      writeComponentSchemas(document, schemaNames(document), { file: path.join(folder, 'schemas.json') });
      await runNode(
        'quicktype',
        'quicktype/dist/index.js',
        [
          '--src-lang',
          'schema',
          '--src',
          `${path.join(folder, 'schemas.json')}#/definitions/`,
          '--lang',
          language,
          '--out',
          path.join(folder, file),
          ...options,
        ],
        folder,
      );
      const sources = globSync('*', { cwd: folder }).filter((name) => name.endsWith(path.extname(file)));
      const size = sources.reduce((sum, name) => sum + statSync(path.join(folder, name)).size, 0);
      expect(size).toBeGreaterThan(50_000);
      await compile?.(folder);
    },
  );
});
