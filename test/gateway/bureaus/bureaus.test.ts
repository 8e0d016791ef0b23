// The Bureau of the local edition, and the valid states and entrypoints of a Bureau.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { requireServerUrl } from '../../../src/gateway/bureaus/server-url.ts';
import { startWorld, type World } from '../accounts/world.ts';

let world: World;
beforeAll(async () => {
  world = await startWorld();
});
afterAll(() => world.close());

describe('the Bureau of the local edition', () => {
  test('is created active and unlimited at the first start', async () => {
    const bureau = await world.bureaus.find('local');
    expect(bureau).toEqual({
      bureauId: 'local',
      name: 'Local',
      state: 'active',
      serverUrl: world.url,
      redirectOrigins: [],
      redirectUris: [],
      color: null,
      models: null,
      limits: null,
      startingCredits: null,
      metadata: {},
      createdAt: expect.any(Date),
      updatedAt: expect.any(Date),
      archivedAt: null,
    });
  });

  test('is left unchanged at a later start', async () => {
    // 2^53 + 1, which a JavaScript number cannot hold.
    const startingCredits = 9_007_199_254_740_993n;
    await world.database.sql`
      update gateway.bureaus_records set name = 'Renamed', starting_credits = ${startingCredits}
      where bureau_id = 'local'`;
    await Promise.all([
      world.bureaus.ensureLocal('http://127.0.0.1:9'),
      world.bureaus.ensureLocal('http://127.0.0.1:10'),
    ]);
    expect(await world.bureaus.find('local')).toMatchObject({
      name: 'Renamed',
      serverUrl: world.url,
      startingCredits,
    });
  });

  test('is refused with an invalid entrypoint', async () => {
    await expect(world.bureaus.ensureLocal('ftp://example.com')).rejects.toMatchObject({
      status: 400,
      param: 'server_url',
    });
  });
});

test('find returns null for an unknown Bureau', async () => {
  expect(await world.bureaus.find('nobody')).toBeNull();
  expect(await world.bureaus.find("local' or '1'='1")).toBeNull();
});

test('the database refuses an unknown state', async () => {
  const { sql } = world.database;
  await expect(sql`update gateway.bureaus_records set state = 'closed'`).rejects.toMatchObject({
    constraint_name: 'bureaus_records_state_check',
  });
});

test('the database refuses an archived Bureau without a date', async () => {
  const { sql } = world.database;
  await expect(sql`update gateway.bureaus_records set state = 'archived'`).rejects.toMatchObject({
    constraint_name: 'bureaus_archived_dated',
  });
});

describe('server_url', () => {
  test.each([
    'https://shop.example',
    'https://shop.example:8443/api?x=1',
    'http://localhost:3000',
    'http://127.0.0.1',
    'http://[::1]:3000/',
  ])('may be %s', (url) => {
    expect(requireServerUrl(url)).toBe(url);
  });

  test.each([
    'http://shop.example',
    'http://localhost.example',
    'http://127.0.0.1.example',
    'https://user:secret@shop.example',
    'https://shop.example/#top',
    'https://shop.example/#',
    'javascript:alert(1)',
    '/relative',
    '',
  ])('may not be %s', (url) => {
    expect(() => requireServerUrl(url)).toThrow(
      expect.objectContaining({ status: 400, param: 'server_url' }),
    );
  });
});
