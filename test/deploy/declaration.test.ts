// Reads the declaration townhall.json. Errors have the line and column.
import { describe, expect, test } from 'vitest';
import { declarationSchema, parseDeclaration } from '../../src/deploy/index.ts';
import { compileSchema } from '../../src/kernel/contract/schema.ts';

const completeDeclaration = {
  schema: 1,
  type: 'city',
  id: 'cty_01jd6zv0c5e9fsr8m2w4x1k7qa',
  name: 'notes',
  entry: 'src/main.ts',
  deployment: {
    target: 'local',
    host: '127.0.0.1',
    port: 8080,
    base_url: 'https://notes.example.test/',
    resources: {
      database: { type: 'postgres', binding: 'db' },
      queue: { type: 'pg-boss', binding: 'queue' },
      storage: {
        type: 'directory',
        binding: 'files',
        name: 'notes-files',
        public_url_prefix: 'https://files.example.test/notes/',
      },
    },
  },
};

function parseError(text: string): string {
  try {
    parseDeclaration(text);
  } catch (error) {
    return (error as Error).message;
  }
  throw new Error('The declaration is valid.');
}

/** Writes each member on its own line, so that errors have different lines. */
const stringify = (document: object): string => JSON.stringify(document, null, 2);

describe('parseDeclaration', () => {
  test('reads every member', () => {
    expect(parseDeclaration(stringify(completeDeclaration))).toEqual({
      id: completeDeclaration.id,
      name: 'notes',
      entry: 'src/main.ts',
      deployment: {
        target: 'local',
        host: '127.0.0.1',
        port: 8080,
        baseUrl: 'https://notes.example.test',
        resources: {
          database: { type: 'postgres', binding: 'db', name: 'notes-db' },
          queue: { type: 'pg-boss', binding: 'queue', name: 'notes-queue' },
          storage: {
            type: 'directory',
            binding: 'files',
            name: 'notes-files',
            publicUrlPrefix: 'https://files.example.test/notes',
          },
        },
      },
    });
  });

  test('fills in defaults', () => {
    const { schema, type, id, name } = completeDeclaration;
    expect(parseDeclaration(stringify({ schema, type, id, name, deployment: { target: 'local' } }))).toEqual({
      id,
      name,
      entry: 'src/index.ts',
      deployment: { target: 'local', resources: {} },
    });
  });

  test('accepts a byte order mark and the member $schema', () => {
    expect(parseDeclaration(`\uFEFF${stringify({ $schema: './x.json', ...completeDeclaration })}`).name).toBe(
      'notes',
    );
  });

  const { resources } = completeDeclaration.deployment;
  const declarationWith = (members: object): object => ({
    ...completeDeclaration,
    deployment: { ...completeDeclaration.deployment, ...members },
  });
  const omit = (value: object, name: string): object =>
    Object.fromEntries(Object.entries(value).filter(([member]) => member !== name));
  test.each<[string, string, string]>([
    [
      'an unknown member',
      stringify({ ...completeDeclaration, entri: 'x' }),
      'townhall.json:29:3: entri is not known here',
    ],
    [
      'an unknown member of a resource',
      stringify(declarationWith({ resources: { database: { ...resources.database, size: 1 } } })),
      'townhall.json:16:9: deployment.resources.database.size is not known here',
    ],
    [
      'an unknown resource',
      stringify(declarationWith({ resources: { cache: {} } })),
      'townhall.json:13:7: deployment.resources.cache is not known here',
    ],
    [
      'a number for a string',
      stringify({ ...completeDeclaration, name: 7 }),
      'townhall.json:5:3: name must be a string',
    ],
    [
      'a string for a number',
      stringify(declarationWith({ port: '80' })),
      'townhall.json:10:5: deployment.port must be an integer',
    ],
    [
      'a port above 65535',
      stringify(declarationWith({ port: 65_536 })),
      'townhall.json:10:5: deployment.port must be at most 65535',
    ],
    [
      'an unknown version of the schema',
      stringify({ ...completeDeclaration, schema: 2 }),
      'townhall.json:2:3: schema must be 1',
    ],
    [
      'an unknown type',
      stringify({ ...completeDeclaration, type: 'town' }),
      'townhall.json:3:3: type must be "city"',
    ],
    [
      'an unknown target',
      stringify(declarationWith({ target: 'moon' })),
      'townhall.json:8:5: deployment.target must be "local"',
    ],
    ['a missing member', stringify(omit(completeDeclaration, 'id')), 'townhall.json:1:1: id is required'],
    [
      'a missing deployment',
      stringify(omit(completeDeclaration, 'deployment')),
      'townhall.json:1:1: deployment is required',
    ],
    [
      'a missing target',
      stringify({ ...completeDeclaration, deployment: {} }),
      'townhall.json:7:3: deployment.target is required',
    ],
    [
      'a resource without its binding',
      stringify(declarationWith({ resources: { database: { type: 'embedded' } } })),
      'townhall.json:13:7: deployment.resources.database.binding is required',
    ],
    [
      'a storage without its address',
      stringify(declarationWith({ resources: { storage: omit(resources.storage, 'public_url_prefix') } })),
      'townhall.json:13:7: deployment.resources.storage.public_url_prefix is required',
    ],
    [
      'a queue without a database',
      stringify(declarationWith({ resources: { queue: resources.queue } })),
      'townhall.json:13:7: deployment.resources.queue needs a database; ' +
        'declare deployment.resources.database too',
    ],
    [
      'two resources with the same binding',
      stringify(declarationWith({ resources: { ...resources, queue: { type: 'pg-boss', binding: 'db' } } })),
      'townhall.json:19:9: deployment.resources.queue.binding is "db", which is also the binding of the database',
    ],
    ['a list', '[]', 'townhall.json:1:1: the declaration must be an object'],
    [
      'an entry outside of the project',
      stringify({ ...completeDeclaration, entry: '../x.ts' }),
      'townhall.json:6:3: entry must be a path within the project',
    ],
    [
      'an entry with an absolute path',
      stringify({ ...completeDeclaration, entry: '/etc/x.ts' }),
      'townhall.json:6:3: entry must be a path within the project',
    ],
    [
      'a repeated member',
      '{\n  "schema": 1,\n  "schema": 1\n}',
      'townhall.json:3:3: "schema" appears more than once',
    ],
    [
      'a missing comma',
      '{\n  "schema": 1\n  "type": "city"\n}',
      'townhall.json:3:3: `,` or `}` was expected, not `"`',
    ],
    ['a trailing comma', '{\n  "schema": 1,\n}', 'townhall.json:3:1: a member was expected after the comma'],
    ['an unclosed string', '{\n  "schema', 'townhall.json:2:3: a string is not closed'],
    [
      'a string without quotes',
      '{\n  "type": city\n}',
      'townhall.json:2:11: `city` is not a value; strings need quotes',
    ],
    ['an empty file', '', 'townhall.json:1:1: a value was expected, not the end of the file'],
    ['text after its end', '{}\n}', 'townhall.json:2:1: the end of the file was expected, not `}`'],
  ])('refuses %s with line and column', (_title, text, message) => {
    expect(parseError(text)).toContain(message);
  });

  test('reports all errors at once, ordered by line', () => {
    const errors = parseError(stringify({ ...completeDeclaration, type: 'x', name: 7, more: true })).split(
      '\n',
    );
    expect(errors.map((line) => line.replace(/^townhall\.json:(\d+):.*?: (\S+) .*/, '$1 $2'))).toEqual([
      '3 type',
      '5 name',
      '29 more',
    ]);
  });

  test('has a published schema that describes each member', () => {
    expect(() => compileSchema(declarationSchema)).not.toThrow();
    const members = membersOf(declarationSchema);
    expect(members.map(([path]) => path)).toContain('.deployment.resources.storage.public_url_prefix');
    const needsDescription = (schema: Schema) =>
      !('$ref' in schema || 'const' in schema || schema['type'] === 'object');
    expect(members.filter(([, schema]) => !('description' in schema) && needsDescription(schema))).toEqual(
      [],
    );
  });
});

type Schema = Record<string, unknown>;

/** All members below a schema, each with its path. */
function membersOf(schema: Schema, path = ''): [path: string, schema: Schema][] {
  const members = Object.entries((schema['properties'] ?? {}) as Record<string, Schema>);
  return members.flatMap(([name, member]) => [
    [`${path}.${name}`, member],
    ...membersOf(member, `${path}.${name}`),
  ]);
}
