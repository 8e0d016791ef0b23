// Checks a tarball before it is published: its structure, its list of files, and that it contains
// no secret.

import { execFile } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { runNode } from '../generate/tools.ts';
import { findSecrets } from './secrets.ts';

const run = promisify(execFile);

// Documentation is not in this list: the model local/guide reads docs/guides. Files of the portal are not
// checked against it, since the portal has pages in a folder `examples`.
const unwantedFiles = [
  /(?:^|\/)(?:test|tests|__tests__|examples|scripts|node_modules|coverage)\//,
  /^data\//,
  /\.test\./,
  /(?<!\.d)\.ts$/,
  /\.tsbuildinfo$/,
  /(?:^|\/)\.(?!\/)/,
  /\.(?:log|pem|key|token|db)$/,
  /(?:^|\/)(?:tsconfig|vitest|redocly)[^/]*$/,
];
const requiredFiles = ['package.json', 'README.md', 'LICENSE'];

/** Throws with all findings. `check: false` skips the tools, which take seconds. */
export async function inspectTarball(
  root: string,
  tarball: string,
  { check }: { check: boolean },
): Promise<void> {
  const folder = mkdtempSync(path.join(tmpdir(), 'townhall-tarball-'));
  try {
    await run('tar', ['-xzf', tarball, '-C', folder]);
    const files = readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((name) =>
      statSync(path.join(folder, name)).isFile(),
    );
    const problems = [
      ...requiredFiles.filter((name) => !files.includes(`package/${name}`)).map((name) => `lacks ${name}`),
      ...files
        .filter(
          (name) =>
            !name.startsWith('package/build/docs/') &&
            unwantedFiles.some((pattern) => pattern.test(name.replace(/^package\//, ''))),
        )
        .map((name) => `has ${name}, which an installation does not need`),
      ...files.flatMap((name) =>
        findSecrets(readFileSync(path.join(folder, name), 'latin1')).map(
          (secretKind) => `has ${secretKind} in ${name}`,
        ),
      ),
      ...(check ? await lint(root, tarball) : []),
    ];
    if (problems.length > 0) throw new Error(`${path.basename(tarball)}:\n  ${problems.join('\n  ')}`);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

async function lint(root: string, tarball: string): Promise<string[]> {
  const [shape, types] = await Promise.all([
    runNode(path.join(root, 'scripts/node_modules/publint/src/cli.js'), [tarball, '--strict'], { cwd: root }),
    runNode(
      path.join(root, 'test/node_modules/@arethetypeswrong/cli/dist/index.js'),
      [tarball, '--profile', 'esm-only', '--no-emoji'],
      { cwd: root, timeoutMs: 120_000 },
    ),
  ]);
  return [
    ...(shape.code === 0 ? [] : [`publint:\n${shape.stdout}${shape.stderr}`]),
    ...(types.code === 0 ? [] : [`attw:\n${types.stdout}${types.stderr}`]),
  ];
}
