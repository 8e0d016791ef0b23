// Calls of a project's own service, and their errors.
import { GatewayError } from '@townhall/gateway';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ActionError, defineService, type ActionCall } from '../../../src/index.ts';
import { startGateway, type GatewayWorld } from '../../support/gateway.ts';

let releaseCall: (() => void) | undefined;
let lastSignal: AbortSignal | undefined;
const callerOf = ({ identity, user, bureau }: ActionCall) => ({
  kind: identity.kind,
  user_id: user?.userId ?? null,
  bureau_id: bureau?.bureauId ?? null,
});
const anyIdentity: [] = [];

const service = defineService({
  id: 'probe',
  name: 'Probe',
  env: [{ key: 'PROBE_OPTIONAL', description: 'May be absent.', required: false }],
  actions: {
    'for-users': { method: 'POST', run: callerOf },
    'for-admins': { method: 'POST', identities: ['admin'], run: callerOf },
    'for-both': { method: 'POST', identities: ['user', 'admin'], run: callerOf },
    'for-anyone': { method: 'POST', identities: anyIdentity, run: callerOf },
    'two/parts': { method: 'POST', identities: anyIdentity, run: () => 'two parts' },
    'two/read': { method: 'GET', identities: anyIdentity, run: () => 'two parts read' },
    echo: {
      method: 'POST',
      identities: anyIdentity,
      input: {
        type: 'object',
        required: ['text'],
        properties: {
          text: { type: 'string', maxLength: 5 },
          service: { type: 'string' },
          count: { type: 'integer' },
        },
        additionalProperties: false,
      },
      run: ({ input }) => input,
    },
    query: {
      method: 'GET',
      identities: anyIdentity,
      input: {
        type: 'object',
        properties: {
          limit: { type: 'integer', maximum: 10 },
          deep: { type: 'boolean' },
          tags: { type: 'array', items: { type: 'string' } },
        },
        additionalProperties: false,
      },
      run: ({ input }) => input,
    },
    nothing: { method: 'POST', identities: anyIdentity, run: () => undefined },
    variables: {
      method: 'POST',
      identities: anyIdentity,
      run: ({ env }) => ({ keys: Object.keys(env), value: env['PROBE_OPTIONAL'] ?? null }),
    },
    refusing: {
      method: 'POST',
      identities: anyIdentity,
      run() {
        throw new ActionError(409, 'service_probe_taken', 'This probe is taken.');
      },
    },
    throwing: {
      method: 'POST',
      identities: anyIdentity,
      run() {
        throw new Error('CANARY detail of the failure');
      },
    },
    undeclared: {
      method: 'POST',
      identities: anyIdentity,
      output: { type: 'object', required: ['a'] },
      run: () => ({ b: 'CANARY' }),
    },
    circular: {
      method: 'POST',
      identities: anyIdentity,
      run() {
        const output: Record<string, unknown> = {};
        output['self'] = output;
        return output;
      },
    },
    hanging: {
      method: 'POST',
      identities: anyIdentity,
      run: ({ signal }) => {
        lastSignal = signal;
        return new Promise<void>((resolve) => (releaseCall = resolve));
      },
    },
  },
});
const keyedService = defineService({
  id: 'keyed',
  name: 'Keyed',
  env: [{ key: 'KEYED_KEY', description: 'Needed.' }],
  actions: {
    go: { method: 'POST', identities: [], run: ({ env }) => ({ length: env['KEYED_KEY']?.length ?? 0 }) },
  },
});

let world: GatewayWorld;
beforeAll(async () => {
  world = await startGateway({
    withAdmin: true,
    services: [service, keyedService],
    env: { TIMEOUT_ACTION_MS: '1500', OTHER_SECRET: 'CANARY' },
  });
});
afterAll(() => world?.close());

const refusalOf = async (call: Promise<unknown>) => {
  const error = await call.then(
    () => expect.unreachable('the call was not refused'),
    (reason: unknown) => reason,
  );
  if (!GatewayError.isInstance(error)) throw error;
  return { status: error.status, code: error.code, message: error.message, param: error.param };
};
const post = (path: string, init: RequestInit = {}) =>
  fetch(`${world.url}${path}`, { method: 'POST', ...init });

describe('services.callAction', () => {
  test('passes the caller’s identity to the action', async () => {
    const { user } = await world.user.accounts.getMe();
    const asUser = { kind: 'user', user_id: user.user_id, bureau_id: 'local' };
    await expect(world.user.call('probe', 'for-users')).resolves.toEqual(asUser);
    await expect(world.user.call('probe', 'for-both')).resolves.toEqual(asUser);
    await expect(world.user.call('probe', 'for-anyone')).resolves.toEqual(asUser);
    const asAdmin = { kind: 'admin', user_id: null, bureau_id: null };
    await expect(world.admin.call('probe', 'for-admins')).resolves.toEqual(asAdmin);
    await expect(world.admin.call('probe', 'for-both')).resolves.toEqual(asAdmin);
    await expect(world.admin.call('probe', 'for-anyone')).resolves.toEqual(asAdmin);
    await expect(world.guest.call('probe', 'for-anyone')).resolves.toEqual({
      kind: 'guest',
      user_id: null,
      bureau_id: null,
    });
  });

  test.each(['for-users', 'for-admins', 'for-both'])('refuses a guest with 401: %s', async (action) => {
    expect(await refusalOf(world.guest.call('probe', action))).toMatchObject({
      status: 401,
      code: 'authentication_required',
    });
    expect((await post(`/v1/probe/${action}`)).headers.get('www-authenticate')).toBe('Bearer');
  });

  test.each([
    ['an administrator', () => world.admin.call('probe', 'for-users')],
    ['a user', () => world.user.call('probe', 'for-admins')],
  ])('refuses %s with 403', async (_name, call) => {
    expect(await refusalOf(call())).toMatchObject({ status: 403, code: 'forbidden_for_identity' });
  });

  test('refuses an unknown credential with 401', async () => {
    expect(await refusalOf(world.as('nonsense').call('probe', 'for-anyone'))).toMatchObject({
      status: 401,
      code: 'invalid_token',
    });
  });

  test('answers null for an action that returns nothing', async () => {
    await expect(world.guest.call('probe', 'nothing')).resolves.toBeNull();
    expect(await (await post('/v1/probe/nothing')).json()).toBeNull();
  });

  test('passes the current values of declared variables only', async () => {
    await expect(world.guest.call('probe', 'variables')).resolves.toEqual({
      keys: ['PROBE_OPTIONAL'],
      value: null,
    });
    await world.admin.env.upsertVariable({ key: 'PROBE_OPTIONAL', value: 'there now' });
    await expect(world.guest.call('probe', 'variables')).resolves.toEqual({
      keys: ['PROBE_OPTIONAL'],
      value: 'there now',
    });
  });

  test('answers 503 until the required variable is set', async () => {
    expect(await refusalOf(world.guest.call('keyed', 'go'))).toMatchObject({
      status: 503,
      code: 'service_not_configured',
    });
    await world.admin.env.upsertVariable({ key: 'KEYED_KEY', value: 'twelve chars' });
    await expect(world.guest.call('keyed', 'go')).resolves.toEqual({ length: 12 });
  });

  test('answers with the ActionError of the action', async () => {
    expect(await refusalOf(world.guest.call('probe', 'refusing'))).toEqual({
      status: 409,
      code: 'service_probe_taken',
      message: 'This probe is taken.',
      param: null,
    });
  });

  test.each(['throwing', 'undeclared', 'circular'])(
    'answers 500 with details only in the log: %s',
    async (action) => {
      const lineCount = world.logLines.length;
      const answer = await refusalOf(world.guest.call('probe', action));
      expect(answer).toMatchObject({ status: 500, code: expect.stringMatching(/^service_/) });
      expect(JSON.stringify(answer)).not.toMatch(/CANARY|circular|required/);
      const errors = world.logLines.slice(lineCount).filter((line) => line.includes('"level":"error"'));
      expect(errors).toHaveLength(1);
    },
  );

  test('aborts an action after its time limit', async () => {
    expect(await refusalOf(world.guest.call('probe', 'hanging'))).toMatchObject({
      status: 504,
      code: 'service_timeout',
    });
    expect(lastSignal?.aborted).toBe(true);
    releaseCall?.();
  });
});

describe('the input of an action', () => {
  test('reaches the action when it matches the schema', async () => {
    const input = { text: 'hello', service: 'a member, not a part of the path' };
    await expect(world.guest.call('probe', 'echo', input)).resolves.toEqual(input);
  });

  test.each([
    ['echo', {}, 'text'],
    ['echo', { text: 'too long' }, 'text'],
    ['echo', { text: 'x', count: '1' }, 'count'],
    ['echo', { text: 'x', other: 1 }, 'other'],
    ['nothing', { surplus: 1 }, 'surplus'],
  ])('is refused when it does not match the schema: %s %j', async (action, input, param) => {
    expect(await refusalOf(world.guest.call('probe', action, input))).toMatchObject({
      status: 400,
      code: 'service_invalid_input',
      param,
    });
  });
});

describe('the path of an action', () => {
  test.each([
    '/v1/nobody/add',
    '/v1/__proto__/constructor',
    '/v1/constructor/name',
    '/v1/directory/health',
    '/v1/ai/nothing',
    '/v1/accounts/tokens/nothing',
  ])('answers 404 for an unknown service: %s', async (path) => {
    const answer = await post(path);
    expect([answer.status, await answer.json()]).toMatchObject([404, { error: { code: 'route_not_found' } }]);
  });

  test.each(['nothing-such', '__proto__', 'constructor', 'toString', 'two', 'two/nothing'])(
    'answers 404 for an unknown action: %s',
    async (action) => {
      expect(await refusalOf(world.guest.call('probe', action))).toMatchObject({
        status: 404,
        code: 'service_action_not_found',
      });
    },
  );

  test('answers 405 with Allow for the wrong method', async () => {
    const echoAnswer = await fetch(`${world.url}/v1/probe/echo`);
    expect([echoAnswer.status, echoAnswer.headers.get('allow')]).toEqual([405, 'POST, OPTIONS']);
    const answer = await post('/v1/probe/query');
    expect([answer.status, answer.headers.get('allow')]).toEqual([405, 'GET, HEAD, OPTIONS']);
  });

  test.each([
    '/v1/ai/text',
    '/v1/ai/%74ext',
    '/v1/AI/text',
    '/v1//ai/text',
    '/v1/ai/text/',
    '/v1/ai/models/x',
    '/v1/env/list/',
  ])('never covers a path of the contract: %s', async (path) => {
    const answer = await fetch(`${world.url}${path}`, {
      method: 'GET',
      headers: { authorization: `Bearer ${world.userToken}` },
    });
    expect([404, 405]).toContain(answer.status);
    expect(((await answer.json()) as { error: { code: string } }).error.code).not.toMatch(/^service_/);
  });
});

describe('services.callReadingAction', () => {
  const read = (input: Record<string, unknown>) =>
    world.guest.call('probe', 'query', input, { method: 'GET' });

  test.each([{ limit: 7, deep: true, tags: ['a', 'b'] }, { tags: ['one'] }, {}])(
    'converts the query of %j to the types of the schema',
    async (input) => {
      await expect(read(input)).resolves.toEqual(input);
    },
  );

  test.each([
    [{ limit: 11 }, 'limit'],
    [{ limit: 'many' }, 'limit'],
    [{ other: 'x' }, 'other'],
  ])('refuses the query of %j', async (input, param) => {
    expect(await refusalOf(read(input))).toMatchObject({ status: 400, param });
  });

  test.each(['limit=1&limit=2', '__proto__=1'])('refuses the query %s', async (query) => {
    expect((await fetch(`${world.url}/v1/probe/query?${query}`)).status).toBe(400);
  });
});

describe('services.callStep', () => {
  test('runs an action whose id has two parts', async () => {
    await expect(world.guest.call('probe', 'two/parts')).resolves.toBe('two parts');
    await expect(world.guest.call('probe', 'two/read', {}, { method: 'GET' })).resolves.toBe(
      'two parts read',
    );
  });
});

describe('the services of a project', () => {
  test('are in /health and listed with their declarations', async () => {
    const { services } = await world.guest.directory.getHealth();
    expect(services.slice(0, 5)).toEqual(['env', 'cities', 'bureaus', 'accounts', 'ai']);
    expect(services.slice(-2)).toEqual(['probe', 'keyed']);
    const { items } = await world.user.directory.listServices();
    expect(items.find(({ id }) => id === 'keyed')).toEqual({
      id: 'keyed',
      name: 'Keyed',
      env: [{ key: 'KEYED_KEY', description: 'Needed.', required: true }],
    });
    const catalog = await world.admin.env.getCatalog();
    expect(catalog.items.find(({ key }) => key === 'KEYED_KEY')?.declared_by).toEqual([
      { kind: 'service', id: 'keyed' },
    ]);
  });

  test.each([
    ['..', 'x'],
    ['a/b', 'c'],
    ['a', 'b/c/d'],
    ['a?x', 'b'],
  ])('cannot be called by the client with the ids %j and %j', async (name, action) => {
    await expect(world.guest.call(name, action)).rejects.toThrow(TypeError);
  });
});
