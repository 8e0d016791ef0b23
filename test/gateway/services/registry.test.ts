// The error of an invalid service declaration names the file and the member.
import { describe, expect, test } from 'vitest';
import { defineService, type ServiceDefinition } from '../../../src/index.ts';
import { registerServices } from '../../../src/gateway/services/registry.ts';

const rules = { reservedIds: new Set(['ai', 'env']), isReservedKey: (key: string) => key === 'DATABASE_URL' };
const run = () => ({});
const validService = {
  id: 'notes',
  name: 'Notes',
  env: [{ key: 'NOTES_KEY', description: 'A key.' }],
  actions: { add: { method: 'POST', run } },
};

const register = (...definitions: unknown[]) =>
  registerServices(
    definitions.map((definition, index) => ({
      definition: defineService(definition as ServiceDefinition),
      source: `src/${index}.ts`,
    })),
    rules,
  );
const action = (members: object) => ({
  ...validService,
  actions: { add: { method: 'POST', run, ...members } },
});

describe('a declared service', () => {
  test('is for users and has required, secret variables by default', () => {
    const service = register(validService).get('notes');
    expect([...(service?.actions.get('add')?.identities ?? [])]).toEqual(['user']);
    expect(service?.env).toEqual([{ key: 'NOTES_KEY', description: 'A key.', required: true, secret: true }]);
  });

  test('is for everyone with an empty list of identities', () => {
    const service = register(action({ identities: [] })).get('notes');
    expect([...(service?.actions.get('add')?.identities ?? [])]).toEqual(['guest', 'user', 'admin']);
  });

  test.each<[string, unknown, string]>([
    ['an id in upper case', { ...validService, id: 'Notes' }, 'id must start with a letter'],
    ['no id', { ...validService, id: undefined }, 'src/0.ts: a service: id must start with a letter'],
    [
      'an id of the server',
      { ...validService, id: 'ai' },
      'src/0.ts: service "ai": id is reserved by the server',
    ],
    ['no name', { ...validService, name: '' }, 'name must be'],
    ['no actions', { ...validService, actions: {} }, 'actions must be'],
    ['an unknown member', { ...validService, actionz: {} }, 'actionz is not known here'],
    [
      'a key in lower case',
      { ...validService, env: [{ key: 'key', description: 'x' }] },
      'env[0].key must start with a letter and have only upper-case letters',
    ],
    [
      'a key of a setting of the server',
      { ...validService, env: [{ key: 'DATABASE_URL', description: 'x' }] },
      'env[0].key DATABASE_URL is a setting of the server',
    ],
    ['a key without description', { ...validService, env: [{ key: 'KEY' }] }, 'env[0].description must be'],
    [
      'another method',
      action({ method: 'PUT' }),
      'src/0.ts: service "notes": actions.add.method must be GET or POST',
    ],
    ['an unknown identity', action({ identities: ['root'] }), 'actions.add.identities must be'],
    ['no run', action({ run: 'run' }), 'actions.add.run must be a function'],
    ['an unknown member of an action', action({ inputs: {} }), 'actions.add.inputs is not known here'],
    [
      'an input schema of a string',
      action({ input: { type: 'string' } }),
      'actions.add.input must be the JSON Schema of an object',
    ],
    [
      'an input schema with an unknown type',
      action({ input: { properties: { a: { type: 'text' } } } }),
      'actions.add.input is not a usable JSON Schema',
    ],
    [
      'an output schema with a dangling reference',
      action({ output: { $ref: '#/nowhere' } }),
      'actions.add.output is not a usable JSON Schema',
    ],
    [
      'an action id with three parts',
      { ...validService, actions: { 'a/b/c': { method: 'GET', run } } },
      'actions.a/b/c has an invalid id',
    ],
    [
      'an action id with a dot',
      { ...validService, actions: { '..': { method: 'GET', run } } },
      'actions... has an invalid id',
    ],
  ])('is refused for %s', (_name, definition, message) => {
    expect(() => register(definition)).toThrow(message);
    expect(() => register(definition)).toThrow(expect.objectContaining({ name: 'ProjectError' }));
  });

  test('is refused for a duplicate id with both files', () => {
    expect(() => register(validService, { ...validService, name: 'Other' })).toThrow(
      'src/1.ts: service "notes": id is already used by a service in src/0.ts.',
    );
  });
});
