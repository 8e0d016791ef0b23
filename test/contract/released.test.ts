// The gate of the contract: a change that breaks clients of the released documents needs a higher
// major version.
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { surfaces } from '../../scripts/generate/surfaces.ts';
import { runNode } from '../../scripts/generate/tools.ts';

interface Contract {
  info: { version: string };
  components: { schemas: Record<string, { enum?: string[] }> };
  paths: Record<string, Record<string, { operationId: string; parameters?: object[] }>>;
}

const root = path.join(import.meta.dirname, '../..');
const script = path.join(root, 'scripts/released.ts');
const folder = mkdtempSync(path.join(tmpdir(), 'townhall-released-'));
const contract = path.join(folder, 'contract');
const releasedFolder = path.join(folder, 'released');

beforeAll(async () => {
  for (const { name } of surfaces)
    cpSync(path.join(root, 'src/contract', name, 'bundle.json'), path.join(contract, name, 'bundle.json'));
  const { code, stderr } = await gate('--release');
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
}, 240_000);
afterAll(() => rmSync(folder, { recursive: true, force: true }));

function gate(...parameters: string[]) {
  return runNode(script, ['--contract', contract, '--released', releasedFolder, ...parameters], {
    cwd: root,
  });
}

/** Runs the gate on a changed contract, then restores it. */
async function gateWith(change: (document: Contract) => void, ...parameters: string[]) {
  const file = path.join(contract, 'gateway/bundle.json');
  const text = readFileSync(file, 'utf8');
  const document = JSON.parse(text) as Contract;
  change(document);
  writeFileSync(file, JSON.stringify(document));
  try {
    return await gate(...parameters);
  } finally {
    writeFileSync(file, text);
  }
}

function addEnumValue({ components }: Contract, schema: string, value: string): void {
  const values = components.schemas[schema]?.enum;
  if (values === undefined) throw new Error(`${schema} is not an enumeration.`);
  values.push(value);
}

describe('the contract against its release', { timeout: 240_000 }, () => {
  test('passes unchanged', async () => {
    const { code, stdout } = await gate();
    expect(stdout).toMatch(/gateway: \S+ -> \S+, 0 breaking, 0 added, 0 other/);
    expect(code).toBe(0);
  });

  test('fails for a removed operation', async () => {
    const { code, stderr } = await gateWith(({ paths }) => delete paths['/v1/ai/models']);
    expect(stderr).toMatch(/needs a higher major version/);
    expect(code).toBe(1);
  });

  test('fails for a removed operation with --replace and without --release', async () => {
    const { code } = await gateWith(({ paths }) => delete paths['/v1/ai/models'], '--replace');
    expect(code).toBe(1);
  });

  test('fails for a new required parameter', async () => {
    const { code, stderr } = await gateWith(({ paths }) => {
      const operation = paths['/v1/ai/models']?.['get'];
      const parameter = { name: 'kind', in: 'query', required: true, schema: { type: 'string' } };
      if (operation) operation.parameters = [...(operation.parameters ?? []), parameter];
    });
    expect(stderr).toMatch(/needs a higher major version/);
    expect(code).toBe(1);
  });

  test('passes with an addition', async () => {
    const { code, stdout } = await gateWith(({ paths }) => {
      const health = paths['/health']?.['get'];
      if (health) paths['/v1/more'] = { get: { ...health, operationId: 'directory.getMore' } };
    });
    expect(stdout).toMatch(/gateway: \S+ -> \S+, 0 breaking, 1 added/);
    expect(code).toBe(0);
  });

  test('fails with a new value of a closed enumeration', async () => {
    const { code, stderr } = await gateWith((document) => addEnumValue(document, 'PaymentState', 'lost'));
    expect(stderr).toMatch(/Enum of .* gained values: 'lost'/);
    expect(code).toBe(1);
  });

  test('passes with a new value of an open enumeration', async () => {
    const { code } = await gateWith((document) => addEnumValue(document, 'PaymentMethodId', 'cash'));
    expect(code).toBe(0);
  });

  test('may break only with a new major version', async () => {
    const breakAs = (versionAfter: (major: number, minor: number) => string) =>
      gateWith((document) => {
        const [major = 0, minor = 0] = document.info.version.split('.').map(Number);
        document.info.version = versionAfter(major, minor);
        delete document.paths['/v1/ai/models'];
      });
    expect((await breakAs((major, minor) => `${major}.${minor + 1}.0`)).code).toBe(1);
    expect((await breakAs((major) => `${major + 1}.0.0`)).code).toBe(0);
  });

  test('passes for the documents in the repository', async () => {
    const { code, stdout, stderr } = await runNode(script, [], { cwd: root });
    expect(stdout + stderr).toMatch(/gateway: \S+ -> \S+, \d+ breaking/);
    expect(code).toBe(0);
  });
});
