// The code samples of the contract as text: one for each operation and language, and each compiles.
// test/docs/samples-run.test.ts runs them.
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { checkTypes } from '../../scripts/docs/sample-types.ts';
import type { Document } from '../../scripts/generate/document.ts';
import { addSamples, sampleFolder, type SampledOperation } from '../../scripts/generate/samples.ts';
import { withoutSample } from '../../scripts/generate/sample-choices.ts';
import { surfaces } from '../../scripts/generate/surfaces.ts';
import { sampledOperations } from './sampled-operations.ts';

const root = path.join(import.meta.dirname, '../..');
const folder = mkdtempSync(path.join(tmpdir(), 'townhall-samples-'));
const [gateway] = surfaces;
if (gateway === undefined) throw new Error('There is no document of the gateway.');
const operations = sampledOperations();
const samples = operations.flatMap(({ surface, id, samples: all }) =>
  all.map((sample) => ({ place: `${surface} ${id}: ${sample.label}`, ...sample })),
);
afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe('x-codeSamples', () => {
  test('cover each operation except the listed ones', () => {
    const incompleteOperations = operations.filter(
      ({ samples: all }) =>
        !['curl', 'TypeScript', 'Python'].every((label) => all.some((sample) => sample.label === label)),
    );
    // Both variants of the agent have the same operations.
    expect([...new Set(incompleteOperations.map(({ id }) => id))].sort()).toEqual([...withoutSample].sort());
    expect(1 - incompleteOperations.length / operations.length).toBeGreaterThan(0.95);
  });

  test('type-check in TypeScript', { timeout: 240_000 }, () => {
    const fences = samples
      .filter(({ lang }) => lang === 'TypeScript')
      .map(({ place, source }) => ({ file: place, line: 1, code: source }));
    expect(fences.length).toBeGreaterThan(100);
    expect(checkTypes(root, { fences, examples: [] })).toEqual([]);
  });

  test('compile in Python', () => {
    const sources = samples.filter(({ lang }) => lang === 'Python');
    const program = [
      'import json, sys',
      'for s in json.load(sys.stdin): compile(s["source"], s["place"], "exec")',
      'print("compiled")',
    ].join('\n');
    const output = execFileSync('python3', ['-c', program], { input: JSON.stringify(sources) });
    expect(sources.length).toBeGreaterThan(100);
    expect(output.toString()).toBe('compiled\n');
  });

  test('contain no token', () => {
    for (const { place, source } of samples) expect(source, place).not.toMatch(/th_(?:usr|adm|agt)_/);
  });

  test('read a token from the environment', () => {
    const authorizedSamples = samples.filter(({ source }) => source.includes('Authorization'));
    expect(authorizedSamples.length).toBeGreaterThan(100);
    for (const { place, source } of authorizedSamples)
      expect(source, place).toMatch(/TOWNHALL_(?:\w+_)?TOKEN/);
  });
});

describe('the samples of a document', () => {
  const render = (
    value: unknown,
    files: Record<string, string> = {},
    parameter: object = { example: 'local' },
  ) => {
    rmSync(path.join(folder, sampleFolder), { recursive: true, force: true });
    mkdirSync(path.join(folder, sampleFolder, 'openai'), { recursive: true });
    for (const [name, text] of Object.entries(files))
      writeFileSync(path.join(folder, sampleFolder, name), text);
    const operation = {
      operationId: 'things.createThing',
      security: [{ adminSession: [] }],
      parameters: [{ name: 'place', in: 'query', required: true, ...parameter }],
      requestBody: { required: true, content: { 'application/json': { examples: { first: { value } } } } },
      responses: { '201': { content: { 'application/json': {} } } },
    };
    const document = {
      servers: [{ url: 'http://127.0.0.1:43127' }],
      paths: { '/v1/things': { post: operation } },
    } as unknown as Document;
    addSamples(document, gateway, folder);
    return Object.fromEntries(
      ((operation as SampledOperation)['x-codeSamples'] ?? []).map(({ label, source }) => [label, source]),
    );
  };

  test('send the example with its parameters and credential', () => {
    expect(render({ name: 'one', deep: true })).toEqual({
      curl: `curl 'http://127.0.0.1:43127/v1/things?place=local' \\
  -H "Authorization: Bearer $TOWNHALL_ADMIN_TOKEN" \\
  -H 'Content-Type: application/json' \\
  -d '{ "name": "one", "deep": true }'`,
      TypeScript: `import { createGatewayClient } from '@townhall/gateway';

const client = createGatewayClient({
  baseUrl: 'http://127.0.0.1:43127',
  token: process.env['TOWNHALL_ADMIN_TOKEN'],
});

const answer = await client.things.createThing({ name: 'one', deep: true }, { query: { place: 'local' } });
console.log(answer);`,
      Python: `import json
import os
import urllib.request

request = urllib.request.Request(
    "http://127.0.0.1:43127/v1/things?place=local",
    headers={
        "Authorization": f"Bearer {os.environ['TOWNHALL_ADMIN_TOKEN']}",
        "Content-Type": "application/json",
    },
    data=json.dumps({"name": "one", "deep": True}).encode(),
)
with urllib.request.urlopen(request) as response:
    print(json.load(response))`,
    });
  });

  test('quote characters that a shell or a string would interpret', () => {
    const text = `it's "one" $HOME \\ line\nnext`;
    const { curl = '', Python = '', TypeScript = '' } = render({ text });
    const [, body = ''] = /-d ([\s\S]+)$/.exec(curl) ?? [];
    expect(JSON.parse(execFileSync('sh', ['-c', `printf %s ${body}`]).toString())).toEqual({ text });
    const [, literal = ''] = /json\.dumps\((.+)\)\.encode/.exec(Python) ?? [];
    const printedJson = execFileSync('python3', ['-c', `import json\nprint(json.dumps(${literal}))`]);
    expect(JSON.parse(printedJson.toString())).toEqual({ text });
    expect(TypeScript).toContain(`'it\\'s "one" $HOME \\\\ line\\nnext'`);
  });

  test('use a handwritten file instead of a rendered one', () => {
    const sampleSource = '// Why.\n// #region sample\nconsole.log(1);\n// #endregion\n';
    expect(render({}, { 'things-create-thing.ts': sampleSource })).toMatchObject({
      TypeScript: 'console.log(1);',
    });
    expect(Object.keys(render({}, { 'openai/things-create-thing.ts': sampleSource }))).toEqual([
      'curl',
      'TypeScript',
      'TypeScript (openai)',
      'Python',
    ]);
  });

  test('are refused without an example or an operation', () => {
    expect(() => render({}, {}, {})).toThrow(/things\.createThing: the parameter "place" has no example/);
    expect(() => render(undefined)).toThrow(/things\.createThing: the body has no example/);
    const sampleSource = '// #region sample\nx\n// #endregion\n';
    expect(() => render({}, { 'things-sell-thing.ts': sampleSource })).toThrow(
      /examples\/operations has a sample of things-sell-thing, which is no operation/,
    );
  });
});
