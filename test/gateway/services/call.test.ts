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
    environment: {
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
    promising: {
      method: 'POST',
      identities: anyIdentity,
      output: { type: 'object', required: ['a'] },
      run: () => ({ b: 'CANARY' }),
    },
    circular: {
      method: 'POST',
      identities: anyIdentity,
      run() {
        const round: Record<string, unknown> = {};
        round['self'] = round;
        return round;
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
const needyService = defineService({
  id: 'needy',
  name: 'Needy',
  env: [{ key: 'NEEDY_KEY', description: 'Needed.' }],
  actions: {
    go: { method: 'POST', identities: [], run: ({ env }) => ({ length: env['NEEDY_KEY']?.length ?? 0 }) },
  },
});

let world: GatewayWorld;
beforeAll(async () => {
  world = await startGateway({
    withAdmin: true,
    services: [service, needyService],
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

  test('refuses a guest with 401 and other identities with 403', async () => {
    for (const action of ['for-users', 'for-admins', 'for-both']) {
      expect(await refusalOf(world.guest.call('probe', action))).toMatchObject({
        status: 401,
        code: 'authentication_required',
      });
    }
    expect(await refusalOf(world.admin.call('probe', 'for-users'))).toMatchObject({
      status: 403,
      code: 'forbidden_for_identity',
    });
    expect(await refusalOf(world.user.call('probe', 'for-admins'))).toMatchObject({
      status: 403,
      code: 'forbidden_for_identity',
    });
    expect(await refusalOf(world.as('nonsense').call('probe', 'for-anyone'))).toMatchObject({
      status: 401,
      code: 'invalid_token',
    });
    expect((await post('/v1/probe/for-users')).headers.get('www-authenticate')).toBe('Bearer');
  });

  test('validates the input by the schema of the action', async () => {
    await expect(
      world.guest.call('probe', 'echo', { text: 'hello', service: 'a member and no path' }),
    ).resolves.toEqual({ text: 'hello', service: 'a member and no path' });
    expect(await refusalOf(world.guest.call('probe', 'echo', {}))).toMatchObject({
      status: 400,
      code: 'service_invalid_input',
      param: 'text',
    });
    expect(await refusalOf(world.guest.call('probe', 'echo', { text: 'too long' }))).toMatchObject({
      status: 400,
      param: 'text',
    });
    expect(await refusalOf(world.guest.call('probe', 'echo', { text: 'x', count: '1' }))).toMatchObject({
      status: 400,
      param: 'count',
    });
    expect(await refusalOf(world.guest.call('probe', 'echo', { text: 'x', other: 1 }))).toMatchObject({
      status: 400,
      param: 'other',
    });
    expect(await refusalOf(world.guest.call('probe', 'nothing', { surplus: 1 }))).toMatchObject({
      status: 400,
      param: 'surplus',
    });
  });

  test('answers null for an action without output', async () => {
    await expect(world.guest.call('probe', 'nothing')).resolves.toBeNull();
    expect(await (await post('/v1/probe/nothing')).json()).toBeNull();
  });

  test('passes only the declared variables, with their current values', async () => {
    await expect(world.guest.call('probe', 'environment')).resolves.toEqual({
      keys: ['PROBE_OPTIONAL'],
      value: null,
    });
    await world.admin.env.upsertVariable({ key: 'PROBE_OPTIONAL', value: 'there now' });
    await expect(world.guest.call('probe', 'environment')).resolves.toEqual({
      keys: ['PROBE_OPTIONAL'],
      value: 'there now',
    });
  });

  test('answers 503 until the required variables are set', async () => {
    expect(await refusalOf(world.guest.call('needy', 'go'))).toMatchObject({
      status: 503,
      code: 'service_not_configured',
    });
    await world.admin.env.upsertVariable({ key: 'NEEDY_KEY', value: 'twelve chars' });
    await expect(world.guest.call('needy', 'go')).resolves.toEqual({ length: 12 });
  });

  test('answers with the action’s own refusal', async () => {
    expect(await refusalOf(world.guest.call('probe', 'refusing'))).toEqual({
      status: 409,
      code: 'service_probe_taken',
      message: 'This probe is taken.',
      param: null,
    });
  });

  test.each(['throwing', 'promising', 'circular'])(
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

  test('aborts an action at its timeout', async () => {
    expect(await refusalOf(world.guest.call('probe', 'hanging'))).toMatchObject({
      status: 504,
      code: 'service_timeout',
    });
    expect(lastSignal?.aborted).toBe(true);
    releaseCall?.();
  });

  test('answers 404 for an unknown service or action', async () => {
    for (const path of [
      '/v1/nobody/add',
      '/v1/__proto__/constructor',
      '/v1/constructor/name',
      '/v1/directory/health',
      '/v1/ai/nothing',
      '/v1/accounts/tokens/nothing',
    ]) {
      const answer = await post(path);
      expect([
        path,
        answer.status,
        ((await answer.json()) as { error: { code: string } }).error.code,
      ]).toEqual([path, 404, 'route_not_found']);
    }
    for (const action of ['nothing-such', '__proto__', 'constructor', 'toString', 'two', 'two/nothing']) {
      expect(await refusalOf(world.guest.call('probe', action))).toMatchObject({
        status: 404,
        code: 'service_action_not_found',
      });
    }
  });

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
  ])('never takes paths of the contract: %s', async (path) => {
    const answer = await fetch(`${world.url}${path}`, {
      method: 'GET',
      headers: { authorization: `Bearer ${world.userToken}` },
    });
    expect([404, 405]).toContain(answer.status);
    expect(((await answer.json()) as { error: { code: string } }).error.code).not.toMatch(/^service_/);
  });
});

describe('services.callReadingAction', () => {
  test('reads its input from the query by the schema’s types', async () => {
    const read = (input: Record<string, unknown>) =>
      world.guest.call('probe', 'query', input, { method: 'GET' });
    await expect(read({ limit: 7, deep: true, tags: ['a', 'b'] })).resolves.toEqual({
      limit: 7,
      deep: true,
      tags: ['a', 'b'],
    });
    await expect(read({ tags: ['one'] })).resolves.toEqual({ tags: ['one'] });
    await expect(read({})).resolves.toEqual({});
    expect(await refusalOf(read({ limit: 11 }))).toMatchObject({ status: 400, param: 'limit' });
    expect(await refusalOf(read({ limit: 'many' }))).toMatchObject({ status: 400, param: 'limit' });
    expect(await refusalOf(read({ other: 'x' }))).toMatchObject({ status: 400, param: 'other' });
    expect((await fetch(`${world.url}/v1/probe/query?limit=1&limit=2`)).status).toBe(400);
    expect((await fetch(`${world.url}/v1/probe/query?__proto__=1`)).status).toBe(400);
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
    expect(services.slice(-2)).toEqual(['probe', 'needy']);
    const { items } = await world.user.directory.listServices();
    expect(items.find(({ id }) => id === 'needy')).toEqual({
      id: 'needy',
      name: 'Needy',
      env: [{ key: 'NEEDY_KEY', description: 'Needed.', required: true }],
    });
    const catalog = await world.admin.env.getCatalog();
    expect(catalog.items.find(({ key }) => key === 'NEEDY_KEY')?.declared_by).toEqual([
      { kind: 'service', id: 'needy' },
    ]);
  });

  test('cannot be called by the client under an invalid path', async () => {
    for (const [name, action] of [
      ['..', 'x'],
      ['a/b', 'c'],
      ['a', 'b/c/d'],
      ['a?x', 'b'],
    ] as const) {
      await expect(world.guest.call(name, action)).rejects.toThrow(TypeError);
    }
  });
});
