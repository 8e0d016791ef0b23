// Writes, lists and removes variables, and the effect of a change on models.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { modelIds, refusal, startEnvWorld, type EnvWorld } from './world.ts';
import { until } from '../../support/until.ts';

const secret = 'CANARY-3f1b-provider-key-9876';

let world: EnvWorld;
beforeAll(async () => {
  world = await startEnvWorld({ env: { ACME_REGION: 'not declared, so not shown' } });
});
afterAll(() => world?.close());

const findVariable = async (key: string) =>
  (await world.admin.env.listVariables()).items.find((item) => item.key === key);
const auditRows = (action: string) =>
  world.sql<{ actorKind: string; target: string | null; diff: unknown }[]>`
    select actor_kind as "actorKind", target_id as target, diff from gateway.audit_entries
    where action = ${action} order by entry_id`;

describe('env.upsertVariable', () => {
  test('makes the model of the key callable at once', async () => {
    expect(await modelIds(world)).not.toContain('acme/fast');
    const answer = await world.admin.env.upsertVariable({ key: 'ACME_API_KEY', value: secret });
    expect(answer).toEqual({
      key: 'ACME_API_KEY',
      value: '••••9876',
      secret: true,
      masked: true,
      readable: true,
      source: 'database',
      updated_at: expect.stringMatching(/^\d{4}-\d\d-\d\dT.*Z$/),
    });
    expect(await modelIds(world)).toContain('acme/fast');
    await world.user.ai.generateText({ model: 'acme/fast', prompt: 'hello' });
    expect(world.keysSent().at(-1)).toBe(secret);
  });

  test('treats an empty value as not set', async () => {
    await world.admin.env.upsertVariable({ key: 'ACME_API_KEY', value: 'another CANARY value' });
    await world.user.ai.generateText({ model: 'acme/fast', prompt: 'hello' });
    expect(world.keysSent().at(-1)).toBe('another CANARY value');
    await world.admin.env.upsertVariable({ key: 'ACME_API_KEY', value: '' });
    expect(await modelIds(world)).not.toContain('acme/fast');
    await world.admin.env.upsertVariable({ key: 'ACME_API_KEY', value: secret });
  });

  test.each([
    'DATABASE_URL',
    'TOWNHALL_MASTER_KEY',
    'TOWNHALL_MASTER_KEY_FILE',
    'ADMIN_PASSWORD',
    'ADMIN_ID',
    'PORT',
    'LOCAL_LOGIN',
    'HTTPS_PROXY',
  ])('refuses the start-up key %s in every operation', async (key) => {
    for (const call of [
      () => world.admin.env.upsertVariable({ key, value: 'value' }),
      () => world.admin.env.removeVariable({ key }),
      () => world.admin.env.importVariables({ content: `OTHER=1\n${key}=value` }),
    ]) {
      expect(await refusal(call())).toMatchObject({ status: 400, code: 'env_key_reserved' });
    }
    expect(await findVariable('OTHER')).toBeUndefined();
  });

  test('accepts TOWNHALL_CITY_BASE_URL', async () => {
    const answer = await world.admin.env.upsertVariable({
      key: 'TOWNHALL_CITY_BASE_URL',
      value: 'https://city.example',
    });
    expect(answer).toMatchObject({ value: 'https://city.example', secret: false, masked: false });
    await world.admin.env.removeVariable({ key: 'TOWNHALL_CITY_BASE_URL' });
  });

  test.each([
    ['no address', 'nonsense', 'The value must be an http or https address without a query or fragment.'],
    [
      'an address with a query',
      'https://city.example/?tenant=1',
      'The value must be an http or https address without a query or fragment.',
    ],
    [
      'an address with a password',
      'https://:hunter2@city.example',
      'The value must not contain credentials, since every caller can read this address.',
    ],
  ])('refuses %s as TOWNHALL_CITY_BASE_URL', async (_case, value, message) => {
    const key = 'TOWNHALL_CITY_BASE_URL';
    const error = await refusal(world.admin.env.upsertVariable({ key, value }));
    expect(error).toMatchObject({ status: 400, code: 'invalid_request', param: 'value', message });
    const importing = world.admin.env.importVariables({ content: `${key}=${value}` });
    expect(await refusal(importing)).toMatchObject({
      status: 400,
      code: 'invalid_request',
      param: 'content',
    });
  });

  test('refuses a masked value', async () => {
    const maskedVariable = await findVariable('ACME_API_KEY');
    expect(maskedVariable?.value).toBe('••••9876');
    const call = world.admin.env.upsertVariable({ key: 'ACME_API_KEY', value: maskedVariable?.value ?? '' });
    expect(await refusal(call)).toMatchObject({
      status: 400,
      code: 'env_value_masked',
      param: 'value',
      message: 'The value is masked; send the original value.',
    });
    await world.user.ai.generateText({ model: 'acme/fast', prompt: 'hello' });
    expect(world.keysSent().at(-1)).toBe(secret);
  });

  test.each(['lower_case', '1ST', '_X', 'A-B', '', 'A'.repeat(129), '__proto__'])(
    'refuses the key %j',
    async (key) => {
      expect(await refusal(world.admin.env.upsertVariable({ key, value: 'x' }))).toMatchObject({
        status: 400,
        code: 'invalid_request',
        param: 'key',
      });
    },
  );

  test('accepts a value of 32 KiB', async () => {
    const longestValue = 'é'.repeat(16 * 1024);
    await world.admin.env.upsertVariable({ key: 'WIDE', value: longestValue });
    const { items } = await world.admin.env.listVariables({ reveal: true });
    expect(items.find(({ key }) => key === 'WIDE')?.value).toBe(longestValue);
    await world.admin.env.removeVariable({ key: 'WIDE' });
  });

  test.each([
    ['more than 32 KiB of two-byte characters', `${'é'.repeat(16 * 1024)}x`],
    ['more than 32 KiB of text', 'x'.repeat(32 * 1024 + 1)],
    ['a NUL character', 'a\0b'],
  ])('refuses a value with %s', async (_name, value) => {
    expect(await refusal(world.admin.env.upsertVariable({ key: 'WIDE', value }))).toMatchObject({
      status: 400,
      param: 'value',
    });
  });
});

describe('env.listVariables', () => {
  test.each([
    ['x', '••••'],
    ['123456789012', '••••'],
    ['1234567890123', '••••0123'],
    ['🔑'.repeat(12), '••••'],
  ])('masks %j as %j', async (value, mask) => {
    await world.admin.env.upsertVariable({ key: 'SHORT', value });
    expect(await findVariable('SHORT')).toMatchObject({ value: mask, masked: true });
    await world.admin.env.removeVariable({ key: 'SHORT' });
  });

  test('reveals values on request and records this in the audit log', async () => {
    const countBefore = (await auditRows('env.revealVariables')).length;
    const { items } = await world.admin.env.listVariables({ reveal: true });
    expect(items.find(({ key }) => key === 'ACME_API_KEY')).toMatchObject({ value: secret, masked: false });
    const rows = await auditRows('env.revealVariables');
    expect(rows).toHaveLength(countBefore + 1);
    expect(rows.at(-1)).toMatchObject({
      actorKind: 'admin',
      diff: { keys: expect.arrayContaining(['ACME_API_KEY']) },
    });
    expect(JSON.stringify(rows)).not.toContain(secret);
    await world.admin.env.listVariables();
    expect(await auditRows('env.revealVariables')).toHaveLength(countBefore + 1);
  });

  test('omits undeclared variables and start-up keys of the process', async () => {
    const { items } = await world.admin.env.listVariables({ reveal: true });
    expect(items.map(({ key }) => key)).not.toContain('ACME_REGION');
    expect(items.map(({ key }) => key)).not.toContain('TOWNHALL_MASTER_KEY');
    expect(items.map(({ key }) => key)).not.toContain('ADMIN_PASSWORD');
  });
});

describe('env.removeVariable', () => {
  test('disables the model of the removed key', async () => {
    await world.admin.env.upsertVariable({ key: 'ACME_API_KEY', value: secret });
    await expect(world.admin.env.removeVariable({ key: 'ACME_API_KEY' })).resolves.toEqual({ removed: true });
    expect(await modelIds(world)).not.toContain('acme/fast');
    expect(await refusal(world.user.ai.generateText({ model: 'acme/fast', prompt: 'x' }))).toMatchObject({
      status: 404,
      code: 'model_not_found',
    });
    await expect(world.admin.env.removeVariable({ key: 'ACME_API_KEY' })).resolves.toEqual({
      removed: false,
    });
  });

  test('records fingerprints instead of values in the audit log', async () => {
    await world.admin.env.upsertVariable({ key: 'AUDITED', value: secret });
    await world.admin.env.removeVariable({ key: 'AUDITED' });
    const rows = [
      ...(await auditRows('env.upsertVariable')),
      ...(await auditRows('env.removeVariable')),
    ].filter(({ target }) => target === 'AUDITED');
    expect(rows).toHaveLength(2);
    const fingerprint = expect.stringMatching(/^fp_[0-9a-f]{16}$/);
    expect(rows.map(({ diff }) => diff)).toEqual([
      { before: null, after: fingerprint },
      { before: fingerprint, after: null },
    ]);
  });
});

describe('env.getCatalog', () => {
  test('names what declares a key and whether it is configured', async () => {
    const readCatalogEntry = async () =>
      (await world.admin.env.getCatalog()).items.find(({ key }) => key === 'ACME_API_KEY');
    expect(await readCatalogEntry()).toMatchObject({
      required: true,
      secret: true,
      configured: false,
      source: null,
      declared_by: [
        { kind: 'service', id: 'ai' },
        { kind: 'model', id: 'acme/fast' },
      ],
    });
    await world.admin.env.upsertVariable({ key: 'ACME_API_KEY', value: secret });
    expect(await readCatalogEntry()).toMatchObject({ configured: true, source: 'database' });
    await world.admin.env.removeVariable({ key: 'ACME_API_KEY' });
  });
});

describe('a value of the process', () => {
  test('is used and listed while no value is stored for its key', async () => {
    const otherWorld = await startEnvWorld({ env: { ACME_API_KEY: 'CANARY-of-the-process-1111' } });
    try {
      const listVariables = async () =>
        (await otherWorld.admin.env.listVariables()).items.find(({ key }) => key === 'ACME_API_KEY');
      expect(await listVariables()).toEqual({
        key: 'ACME_API_KEY',
        value: '••••1111',
        secret: true,
        masked: true,
        readable: true,
        updated_at: null,
        source: 'process',
      });
      await otherWorld.admin.env.upsertVariable({ key: 'ACME_API_KEY', value: secret });
      expect(await listVariables()).toMatchObject({ value: '••••9876', source: 'database' });
      await otherWorld.user.ai.generateText({ model: 'acme/fast', prompt: 'x' });
      await otherWorld.admin.env.removeVariable({ key: 'ACME_API_KEY' });
      await otherWorld.user.ai.generateText({ model: 'acme/fast', prompt: 'x' });
      expect(otherWorld.keysSent()).toEqual([secret, 'CANARY-of-the-process-1111']);
    } finally {
      await otherWorld.close();
    }
  });
});

test.each([
  ['GET', 'list'],
  ['GET', 'catalog'],
  ['POST', 'upsert'],
  ['POST', 'remove'],
  ['POST', 'import'],
])('%s /v1/env/%s is for administrators only', async (method, action) => {
  const request = (headers: Record<string, string>) =>
    fetch(`${world.url}/v1/env/${action}`, { method, headers });
  expect((await request({})).status).toBe(401);
  expect((await request({ authorization: `Bearer ${world.userToken}` })).status).toBe(403);
});

describe('a change in the database', () => {
  test('takes effect without a request to this gateway', async () => {
    await world.admin.env.upsertVariable({ key: 'ACME_API_KEY', value: secret });
    await world.gateway.database.tx(async (tx) => {
      await tx`delete from gateway.env_variables where key = 'ACME_API_KEY'`;
      await tx`update gateway.changes set number = number + 1`;
    });
    await until(async () => !(await modelIds(world)).includes('acme/fast'), 'the model is gone');
    expect(await findVariable('ACME_API_KEY')).toBeUndefined();
  });
});
