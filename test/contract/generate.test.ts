// Tests that the generator fails where its tools would stay silent: a document without typable
// handlers, a dangling reference, a client that lacks a part of its bundle.
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeEach, describe, expect, onTestFinished, test } from 'vitest';
import { type Document, type Operation, checkReferences } from '../../scripts/generate/document.ts';
import { digestFiles, filesBelow, moveFile, publish } from '../../scripts/generate/files.ts';
import { findGaps, generateClients } from '../../scripts/generate/hey-api.ts';
import { writeOperations } from '../../scripts/generate/operations.ts';
import { writeProblemCodes } from '../../scripts/generate/problem-codes.ts';
import { type Surface, surfaces } from '../../scripts/generate/surfaces.ts';

const gateway = surfaces[0] as Surface;
const folder = mkdtempSync(path.join(tmpdir(), 'townhall-generate-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

// Linux keeps this folder in memory.
const memoryFolder = '/dev/shm';
const hasTwoDisks = existsSync(memoryFolder) && statSync(memoryFolder).dev !== statSync(folder).dev;

const thingReference = { $ref: '#/components/schemas/Thing' };
const json = { content: { 'application/json': { schema: thingReference } } };

function documentWith(operation: Partial<Operation>, schemas: Record<string, object> = {}): Document {
  return {
    openapi: '3.1.1',
    info: { title: 'Sample', version: '1.0.0' },
    paths: {
      '/v1/things': {
        post: {
          operationId: 'things.createThing',
          security: [{ userToken: [] }],
          responses: { '201': { description: 'Made.', ...json } },
          ...operation,
        },
      },
    },
    components: {
      schemas: { Thing: { type: 'object', properties: { name: { type: 'string' } } }, ...schemas },
    },
  } as Document;
}

function entryOf(operation: Partial<Operation>, schemas?: Record<string, object>): string {
  return writeOperations(documentWith(operation, schemas), gateway);
}

describe('the Operations map', () => {
  test('takes the identities from the security of each operation', () => {
    expect(entryOf({ security: [{ userToken: [] }, { adminSession: [] }] })).toContain(
      "identity: 'user' | 'admin';",
    );
    expect(entryOf({ security: [] })).toContain("identity: 'guest' | 'user' | 'admin';");
    expect(
      writeOperations(documentWith({ security: [{ agentToken: [] }] }), surfaces[1] as Surface),
    ).toContain("identity: 'agent';");
  });

  test('lists the operations that each scope allows', () => {
    const text = entryOf({ security: [{ adminSession: [] }, { machineCredential: ['things.make'] }] });
    expect(text).toMatch(/scopeOperations = \{\n {2}'things.make': \['\w+\.\w+'\],\n\} as const/);
    expect(text).toContain("identity: 'admin';");
    expect(entryOf({ security: [{ adminSession: [] }] })).not.toContain('scopeOperations');
  });

  test('refuses an operation without known security', () => {
    expect(() => entryOf({ security: undefined })).toThrow(/POST \/v1\/things .* has no security/);
    expect(() => entryOf({ security: [{ otherKey: [] }] })).toThrow(/otherKey, which proves no identity/);
  });

  test('types each kind of success', () => {
    const text = entryOf(
      {
        responses: {
          '200': {
            content: {
              'application/json': { schema: thingReference },
              'text/event-stream': { schema: { $ref: '#/components/schemas/Event' } },
              'audio/mpeg': {},
              'image/*': {},
            },
          },
          '204': {},
          '303': {},
          '400': json,
        },
      },
      { Event: { type: 'object' } },
    );
    const replies = [
      '{ status: 200; json: Thing }',
      '{ status: 200; events: Event }',
      "{ status: 200; media: 'audio/mpeg' }",
      '{ status: 200; media: `image/${string}` }',
      '{ status: 204 }',
      '{ status: 303 }',
    ];
    expect(text).toContain(`reply: ${replies.join(' | ')};`);
  });

  test('lets a handler return an error page but throw problems', () => {
    expect(
      entryOf({ responses: { '200': json, '400': { content: { 'text/html': {} } }, '404': json } }),
    ).toContain("reply: { status: 200; json: Thing } | { status: 400; media: 'text/html' };");
  });

  test('types the files of a multipart body as the server reads them', () => {
    const upload = {
      type: 'object',
      properties: { file: { type: 'string', format: 'binary' }, model: { type: 'string' } },
    };
    const text = entryOf(
      {
        requestBody: {
          required: true,
          content: {
            'multipart/form-data': { schema: { $ref: '#/components/schemas/Upload' } },
            'application/json': { schema: thingReference },
          },
        },
      },
      { Upload: upload },
    );
    expect(text).toContain("body: Multipart<Upload, 'file'> | Thing;");
    expect(text).toContain('export interface UploadedFile');
  });

  test('marks an optional body as possibly absent', () => {
    expect(entryOf({ requestBody: json })).toContain('body: Thing | undefined;');
    expect(entryOf({})).toContain('body: undefined;');
  });

  test('marks members that pass through', () => {
    expect(entryOf({ 'x-passthrough': true })).toContain('passthrough: true;');
    expect(entryOf({})).toContain('passthrough: false;');
  });

  test('refuses a non-numeric status', () => {
    expect(() => entryOf({ responses: { default: json } })).toThrow(/name each status by its number/);
  });

  test('refuses an unnamed schema of events', () => {
    expect(() =>
      entryOf({
        responses: {
          '200': {
            content: {
              'application/json': { schema: thingReference },
              'text/event-stream': { schema: { type: 'object' } },
            },
          },
        },
      }),
    ).toThrow(/text\/event-stream of status 200 needs a schema in a file of its own/);
  });
});

describe('the bundle', () => {
  const document = documentWith({});

  test('passes with resolvable references', () => {
    expect(() => checkReferences(document, gateway)).not.toThrow();
  });

  test('is refused for a dangling reference', () => {
    expect(() => checkReferences({ ...document, components: { schemas: {} } }, gateway)).toThrow(
      /leads nowhere: #\/components\/schemas\/Thing/,
    );
  });

  test('is refused for a reference to another file', () => {
    expect(() => checkReferences(documentWith({ requestBody: { $ref: './other.yaml' } }), gateway)).toThrow(
      /leads nowhere: .\/other.yaml/,
    );
  });
});

describe('the problem codes', () => {
  const documentWithCodes = (codes: string[]) => ({
    components: { schemas: { ProblemCode: { type: 'string', enum: codes } } },
  });

  test('are one list for all documents', () => {
    const documents = [
      { name: 'gateway', document: documentWithCodes(['a', 'b']) },
      { name: 'agent', document: {} },
    ];
    expect(writeProblemCodes(documents)).toContain("  | 'a'\n  | 'b';");
  });

  test('may not differ between documents', () => {
    const documents = [
      { name: 'gateway', document: documentWithCodes(['a']) },
      { name: 'agent', document: documentWithCodes(['b']) },
    ];
    expect(() => writeProblemCodes(documents)).toThrow(/different problem codes/);
  });

  test('may not be absent', () => {
    expect(() => writeProblemCodes([{ name: 'gateway', document: {} }])).toThrow(
      /there are no problem codes/,
    );
  });
});

describe('the generated client', () => {
  const bundle = path.join(folder, 'bundle.json');
  const output = path.join(folder, 'client');
  beforeEach(() => rmSync(output, { recursive: true, force: true }));

  test('passes the check against its bundle', async () => {
    writeFileSync(bundle, JSON.stringify(documentWith({})));
    await generateClients([{ surface: gateway, bundle, output }], folder);
    expect(
      findGaps(documentWith({}), gateway, (file) => readFileSync(path.join(output, file), 'utf8')),
    ).toEqual([]);
  }, 120_000);

  test('is refused for a dangling reference even at exit 0', async () => {
    writeFileSync(
      bundle,
      JSON.stringify(
        documentWith({
          requestBody: {
            content: { 'application/json': { schema: { $ref: '#/components/schemas/Absent' } } },
          },
        }),
      ),
    );
    await expect(generateClients([{ surface: gateway, bundle, output }], folder)).rejects.toThrow(
      /hey-api on gateway/,
    );
  }, 120_000);

  test('is refused without its bundle', async () => {
    await expect(
      generateClients([{ surface: gateway, bundle: path.join(folder, 'absent.json'), output }], folder),
    ).rejects.toThrow(/hey-api on gateway/);
  }, 120_000);

  test("matches the bundle's files, types, methods and schemas", () => {
    const completeClient: Record<string, string> = {
      'index.ts': 'x',
      'client.gen.ts': 'x',
      'client/client.gen.ts': 'x',
      'client/index.ts': 'x',
      'core/types.gen.ts': 'x',
      'types.gen.ts': ['Thing', 'ThingsCreateThingData', 'ThingsCreateThingResponses']
        .map((name) => `export type ${name} = {};\n`)
        .join(''),
      'sdk.gen.ts': 'public createThing<T>() {}\nexport class GatewayOperations extends Base {}',
    };
    const gaps = (changedFiles: Record<string, string>) =>
      findGaps(documentWith({}), gateway, (file) => ({ ...completeClient, ...changedFiles })[file]);
    expect(gaps({})).toEqual([]);
    expect(gaps({ 'index.ts': ' ' })).toEqual(['index.ts is absent or empty']);
    expect(gaps({ 'types.gen.ts': 'export type Thing = {};' })).toHaveLength(2);
    expect(gaps({ 'sdk.gen.ts': 'export class GatewayOperations extends Base {}' })).toEqual([
      'sdk.gen.ts has no method for things.createThing',
    ]);
    expect(gaps({ 'sdk.gen.ts': 'public createThing<T>() {}' })).toEqual([
      'sdk.gen.ts has no class GatewayOperations',
    ]);
  });
});

describe('publishing', () => {
  test('writes changed files and removes stale ones', () => {
    const [source, target] = [path.join(folder, 'source'), path.join(folder, 'target')];
    for (const place of [source, target]) mkdirSync(path.join(place, 'inner'), { recursive: true });
    writeFileSync(path.join(source, 'same.ts'), 'same');
    writeFileSync(path.join(source, 'inner/new.ts'), 'new');
    writeFileSync(path.join(target, 'same.ts'), 'same');
    writeFileSync(path.join(target, 'inner/stale.ts'), 'stale');
    const oldTime = new Date('2020-01-01T00:00:00Z');
    utimesSync(path.join(target, 'same.ts'), oldTime, oldTime);
    expect(publish(source, target)).toBe(2);
    expect(filesBelow(target, '.')).toEqual(['inner/new.ts', 'same.ts']);
    expect(statSync(path.join(target, 'same.ts')).mtime).toEqual(oldTime);
    expect(publish(source, target)).toBe(0);
  });

  test('copies bytes that are not UTF-8', () => {
    const [source, target] = [path.join(folder, 'binary-source'), path.join(folder, 'binary-target')];
    const bytes = Buffer.from([0x89, 0x50, 0xff, 0x00]);
    mkdirSync(source);
    writeFileSync(path.join(source, 'picture.png'), bytes);
    publish(source, target);
    expect(readFileSync(path.join(target, 'picture.png'))).toEqual(bytes);
  });
});

describe('moving a file', () => {
  test.skipIf(!hasTwoDisks)('reaches another disk, where it replaces the former file', () => {
    const target = mkdtempSync(path.join(memoryFolder, 'townhall-generate-'));
    onTestFinished(() => rmSync(target, { recursive: true, force: true }));
    const source = path.join(folder, 'program');
    writeFileSync(source, 'new', { mode: 0o755 });
    writeFileSync(path.join(target, 'program'), 'old', { mode: 0o600 });
    const inodeBefore = statSync(path.join(target, 'program')).ino;
    moveFile(source, path.join(target, 'program'));
    expect(readFileSync(path.join(target, 'program'), 'utf8')).toBe('new');
    const { ino, mode } = statSync(path.join(target, 'program'));
    expect(mode & 0o777).toBe(0o755);
    expect(ino).not.toBe(inodeBefore);
    expect([readdirSync(target), existsSync(source)]).toEqual([['program'], false]);
  });
});

describe('the digest of the inputs', () => {
  test('changes with the bytes of a file', () => {
    mkdirSync(path.join(folder, 'inputs'));
    writeFileSync(path.join(folder, 'inputs/a.yaml'), 'one');
    const digestBefore = digestFiles(folder, ['inputs']);
    expect(digestFiles(folder, ['inputs'])).toBe(digestBefore);
    writeFileSync(path.join(folder, 'inputs/a.yaml'), 'two');
    expect(digestFiles(folder, ['inputs'])).not.toBe(digestBefore);
  });

  test('changes with the version of a tool', () => {
    expect(digestFiles(folder, ['inputs'], ['tool@2'])).not.toBe(digestFiles(folder, ['inputs'], ['tool@1']));
  });
});
