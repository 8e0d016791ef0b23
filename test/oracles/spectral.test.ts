// Spectral on the three documents with its rulesets for OpenAPI and OWASP;
// test/oracles/spectral.yaml lists the disabled rules with their reasons.
import { execFile } from 'node:child_process';
import { copyFileSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import { beforeAll, describe, expect, test } from 'vitest';
import { surfaces } from '../../scripts/generate/surfaces.ts';
import { installTool } from './packages.ts';

interface Finding {
  code: string;
  path: (string | number)[];
  message: string;
}

const run = promisify(execFile);
const root = path.join(import.meta.dirname, '../..');
let folder: string;
beforeAll(() => {
  folder = installTool('spectral');
  // Spectral searches the packages of a ruleset beside the file.
  copyFileSync(path.join(import.meta.dirname, 'spectral.yaml'), path.join(folder, 'spectral.yaml'));
});

async function lint(document: string): Promise<Finding[]> {
  const { stdout } = await run(
    process.execPath,
    [
      path.join(folder, 'node_modules/@stoplight/spectral-cli/dist/index.js'),
      'lint',
      document,
      '--ruleset',
      path.join(folder, 'spectral.yaml'),
      '--format',
      'json',
      '--quiet',
      '--fail-severity',
      'hint',
    ],
    { cwd: folder, maxBuffer: 1 << 28 },
  ).catch((error: unknown) => {
    // Findings of any severity cause exit code 1.
    const { code, stdout: output } = error as { code?: number; stdout?: string };
    if (code === 1 && output?.startsWith('[')) return { stdout: output };
    throw error;
  });
  return stdout.trim() === '' ? [] : (JSON.parse(stdout) as Finding[]);
}

describe.each(surfaces)('the document of the $title', ({ name }) => {
  test('keeps to the rules of Spectral', async () => {
    const findings = await lint(path.join(root, 'src/contract', name, 'bundle.json'));
    const lines = findings.map(({ code, path: place, message }) => `${code} ${place.join('/')}: ${message}`);
    expect(lines).toEqual([]);
  });
});

describe('the ruleset', () => {
  test('has a reason for each rule that is off', () => {
    const lines = readFileSync(path.join(import.meta.dirname, 'spectral.yaml'), 'utf8').split('\n');
    const disabledRules = [...lines.entries()].filter(([, line]) => /: (?:off|false)\b/.test(line));
    expect(disabledRules.length).toBeGreaterThan(10);
    const isExplained = (index: number) => /^ {2}# \S/.test(lines[index - 1] ?? '');
    expect(disabledRules.filter(([index]) => !isExplained(index))).toEqual([]);
  });

  test('refuses an operation without an id', async () => {
    const file = path.join(folder, 'bare.json');
    writeFileSync(
      file,
      JSON.stringify({
        openapi: '3.1.1',
        info: { title: 'Bare', version: '1' },
        paths: { '/x': { get: { responses: { 200: { description: 'x' } } } } },
      }),
    );
    expect((await lint(file)).map(({ code }) => code)).toContain('operation-operationId');
  });
});
