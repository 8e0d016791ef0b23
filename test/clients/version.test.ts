// The script that creates a version from the changes in .changeset.
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { runNode } from '../../scripts/generate/tools.ts';

const root = path.join(import.meta.dirname, '../..');
const documents = ['gateway/openapi.yaml', 'agent/openapi.yaml', 'agent/openapi.classic.yaml'].map(
  (name) => `openapi/${name}`,
);

// The minor version after the current one, for a change that is marked as minor.
const { version: current } = JSON.parse(readFileSync(path.join(root, 'package.json'), 'utf8')) as {
  version: string;
};
const [major, minor] = current.split('.').map(Number);
const next = `${major}.${(minor ?? 0) + 1}.0`;

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'townhall-new-version-'));
  for (const name of ['package.json', 'package-lock.json', '.changeset/config.json'])
    cpSync(path.join(root, name), path.join(folder, name));
  for (const name of ['gateway', 'agent', 'react'])
    cpSync(
      path.join(root, `clients/${name}/package.json`),
      path.join(folder, `clients/${name}/package.json`),
    );
  for (const name of documents) write(name, `info:\n  title: Townhall\n  version: ${current}\n`);
  write('CHANGELOG.md', `# Changelog\n\n## ${current}\n- The last version.\n`);
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

function write(name: string, text: string): void {
  const file = path.join(folder, name);
  mkdirSync(path.dirname(file), { recursive: true });
  writeFileSync(file, text);
}

const read = (name: string): string => readFileSync(path.join(folder, name), 'utf8');

describe('a new version', () => {
  test('has its number in each file, and each change word by word in the changelog', async () => {
    // In a replacement of `String.replace`, `$&` and "$`" stand for the matched text and the text before it.
    const change = 'Prices are shown as `$` and `$&`.';
    write('.changeset/price.md', `---\n'@townhall/gateway': minor\n---\n\n${change}\n`);
    const parameters = ['--root', folder, '--date', '2026-11-28'];
    const { code, stderr } = await runNode(path.join(root, 'scripts/version.ts'), parameters, { cwd: root });
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    expect(read('CHANGELOG.md')).toBe(
      `# Changelog\n\n## ${next} (2026-11-28)\n- ${change}\n\n## ${current}\n- The last version.\n`,
    );
    for (const name of documents) expect(read(name)).toContain(`\n  version: ${next}\n`);
    expect(JSON.parse(read('package.json'))).toMatchObject({
      version: next,
      dependencies: { '@townhall/gateway': next },
    });
  });
});
