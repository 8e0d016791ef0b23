// Creates a new version from the changes in .changeset. The tool `changeset` determines the new version and
// updates the clients; this script updates the server, the contract and the changelog to the same version.
//
//   node scripts/version.ts [--date 2026-11-21]

import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { parseCommandLine } from './command-line.ts';
import { runNode } from './generate/tools.ts';

const { values: options } = parseCommandLine(import.meta.filename, {
  options: {
    root: { type: 'string' },
    date: { type: 'string', default: new Date().toISOString().slice(0, 10) },
  },
});
const root = path.resolve(options.root ?? path.join(import.meta.dirname, '..'));

try {
  await main();
} catch (error) {
  console.error(`version: ${(error as Error).message}`);
  process.exitCode = 1;
}

async function main(): Promise<void> {
  const changes = readChanges();
  if (changes.length === 0) throw new Error('there is no change in .changeset; "npm run change" writes one');
  const previousVersion = versionOf('clients/gateway/package.json');
  const tool = path.join(import.meta.dirname, 'node_modules/@changesets/cli/bin.js');
  const { code, stdout, stderr } = await runNode(tool, ['version'], { cwd: root });
  if (code !== 0) throw new Error(`changeset version failed:\n${stdout}${stderr}`);
  const version = versionOf('clients/gateway/package.json');
  if (version === previousVersion)
    throw new Error(`the changes in .changeset do not raise the version ${previousVersion}`);
  replace('package.json', /(?<="version": ")[^"]+/, version);
  replace('package.json', /(?<="@townhall\/gateway": ")[^"]+/, version);
  for (const name of ['gateway/openapi.yaml', 'agent/openapi.yaml', 'agent/openapi.classic.yaml'])
    replace(`openapi/${name}`, /(?<=^ {2}version: ).+$/m, version);
  replace(
    'CHANGELOG.md',
    /^## /m,
    `## ${version} (${options.date})\n${changes.map((text) => `- ${text}`).join('\n')}\n\n## `,
  );
  console.log(
    `version: ${previousVersion} -> ${version}; now "npm install" for the lock file, ` +
      'and "npm run release:contract" once it is published',
  );
}

/** The sentences in the order of the files' names, without the tool's front matter. */
function readChanges(): string[] {
  const folder = path.join(root, '.changeset');
  const names = existsSync(folder)
    ? readdirSync(folder).filter((name) => name.endsWith('.md') && name !== 'README.md')
    : [];
  return names.sort().map((name) =>
    readFileSync(path.join(folder, name), 'utf8')
      .replace(/^---\n[\s\S]*?\n---\n/, '')
      .trim()
      .replaceAll(/\n+/g, ' '),
  );
}

function versionOf(file: string): string {
  return (JSON.parse(readFileSync(path.join(root, file), 'utf8')) as { version: string }).version;
}

function replace(file: string, pattern: RegExp, replacement: string): void {
  const text = readFileSync(path.join(root, file), 'utf8');
  // Test the pattern and not whether the text changes: an interrupted run may have written it before.
  if (!pattern.test(text)) throw new Error(`${file} has no place for the new version`);
  // A function, because a change may contain characters such as `$&`.
  writeFileSync(
    path.join(root, file),
    text.replace(pattern, () => replacement),
  );
}
