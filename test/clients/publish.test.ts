// The check before a publish: it names each field that only the publisher knows.
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { stringify } from 'yaml';
import { runNode } from '../../scripts/generate/tools.ts';
import { findMissing } from '../../scripts/publish.ts';

const root = path.join(import.meta.dirname, '../..');
const url = 'git+https://git.example/townhall.git';
const addresses = {
  repository: { type: 'git', url },
  homepage: 'https://townhall.example',
  bugs: { url: 'https://git.example/townhall/issues' },
};

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'townhall-publish-'));
  write('package.json', JSON.stringify(addresses));
  for (const name of ['gateway', 'agent', 'react'])
    write(
      `clients/${name}/package.json`,
      JSON.stringify({ ...addresses, repository: { type: 'git', url, directory: `clients/${name}` } }),
    );
  for (const name of ['gateway/openapi', 'agent/openapi', 'agent/openapi.classic'])
    write(
      `openapi/${name}.yaml`,
      stringify({ info: { contact: { email: 'maintainers@townhall.example' } } }),
    );
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

function write(name: string, text: string): void {
  const file = path.join(folder, name);
  mkdirSync(path.dirname(file), { recursive: true });
  writeFileSync(file, text);
}

function change(name: string, members: object): void {
  const manifestBefore = JSON.parse(readFileSync(path.join(folder, name), 'utf8')) as object;
  write(name, JSON.stringify({ ...manifestBefore, ...members }));
}

describe('the check before a publish', () => {
  test('accepts manifests and documents with every address', () => {
    expect(findMissing(folder)).toEqual([]);
  });

  test.each([
    ['repository', 'package.json: "repository.url", the public address of the repository'],
    ['homepage', 'package.json: "homepage", the page that explains the project'],
    ['bugs', 'package.json: "bugs.url", where a reader reports a fault'],
  ])('names a missing %s', (name, line) => {
    change('package.json', { [name]: undefined });
    expect(findMissing(folder)).toEqual([line]);
  });

  test('refuses an address that is not a URL', () => {
    change('package.json', { homepage: 'to be announced' });
    expect(findMissing(folder)).toHaveLength(1);
  });

  test("requires the client's folder in its repository", () => {
    change('clients/agent/package.json', { repository: { type: 'git', url } });
    expect(findMissing(folder)).toEqual([
      'clients/agent/package.json: "repository.directory" must be "clients/agent"',
    ]);
  });

  test('names the missing address and the missing folder of a client', () => {
    change('clients/agent/package.json', { repository: undefined });
    expect(findMissing(folder)).toEqual([
      'clients/agent/package.json: "repository.url", the public address of the repository',
      'clients/agent/package.json: "repository.directory" must be "clients/agent"',
    ]);
  });

  test('requires a contact in each document', () => {
    write('openapi/agent/openapi.yaml', stringify({ info: { title: 'Agent' } }));
    expect(findMissing(folder)).toEqual([
      'openapi/agent/openapi.yaml: "info.contact" with a "url" or an "email"',
    ]);
  });

  test('decides the exit code of --check', async () => {
    const missingFields = findMissing(root);
    const { code, stderr } = await runNode(path.join(root, 'scripts/publish.ts'), ['--check'], { cwd: root });
    expect(code).toBe(missingFields.length === 0 ? 0 : 1);
    for (const line of missingFields) expect(stderr).toContain(`publish: missing ${line}`);
  });
});
