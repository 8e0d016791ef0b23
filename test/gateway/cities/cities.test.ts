// The records of deployments.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startGateway, type GatewayWorld } from '../../support/gateway.ts';

let world: GatewayWorld;
beforeAll(async () => {
  world = await startGateway({ withAdmin: true, env: { TOWNHALL_CITY_BASE_URL: 'https://two.example/' } });
});
afterAll(() => world?.close());

const city = {
  city_id: 'cty_one',
  name: 'One',
  base_url: 'https://one.example/',
  target: 'local',
  version: '1.0.0',
} as const;

describe('cities', () => {
  test('have no records before the first deployment', async () => {
    expect(await world.admin.cities.listCities()).toEqual({ items: [] });
    await expect(world.guest.cities.getCurrentCity()).rejects.toMatchObject({
      status: 404,
      code: 'city_not_found',
    });
  });

  test('are replaced by id and keep their creation time', async () => {
    const firstCity = await world.admin.cities.upsertCity(city);
    expect(firstCity).toMatchObject({ ...city, base_url: 'https://one.example', status: 'live' });
    const secondCity = await world.admin.cities.upsertCity({
      ...city,
      version: '1.0.1',
      deployed_at: '2026-11-20T09:00:00.000Z',
    });
    expect(secondCity).toMatchObject({
      version: '1.0.1',
      created_at: firstCity.created_at,
      deployed_at: '2026-11-20T09:00:00.000Z',
    });
    expect(await world.admin.cities.listCities()).toEqual({ items: [secondCity] });
  });

  test('show everyone the live city at this server’s address, or else the newest', async () => {
    expect(await world.guest.cities.getCurrentCity()).toEqual({
      city_id: 'cty_one',
      name: 'One',
      version: '1.0.1',
      base_url: 'https://one.example',
    });
    await world.admin.cities.upsertCity({
      ...city,
      city_id: 'cty_two',
      name: 'Two',
      base_url: 'https://two.example',
      deployed_at: '2020-01-01T00:00:00.000Z',
    });
    expect(await world.user.cities.getCurrentCity()).toMatchObject({ city_id: 'cty_two' });
    await world.admin.cities.upsertCity({
      ...city,
      city_id: 'cty_two',
      name: 'Two',
      base_url: 'https://two.example',
      status: 'retired',
    });
    expect(await world.guest.cities.getCurrentCity()).toMatchObject({ city_id: 'cty_one' });
  });

  test('are removed once', async () => {
    expect(await world.admin.cities.removeCity({ city_id: 'cty_two' })).toEqual({ removed: true });
    expect(await world.admin.cities.removeCity({ city_id: 'cty_two' })).toEqual({ removed: false });
    const entries = await world.sql`
      select action from gateway.audit_entries where target_id = 'cty_two' order by entry_id`;
    expect(entries.map(({ action }) => String(action))).toEqual([
      'cities.upsertCity',
      'cities.upsertCity',
      'cities.removeCity',
    ]);
  });

  test.each([
    ['base_url', { base_url: 'ftp://one.example' }],
    ['base_url', { base_url: 'https://user:pw@one.example' }],
    ['base_url', { base_url: 'https://one.example/?x=1' }],
    ['version', { version: '1 0' }],
    ['target', { target: 'moon' }],
    ['status', { status: 'gone' }],
    ['deployed_at', { deployed_at: 'yesterday' }],
    ['deployed_at', { deployed_at: '0000-01-01T00:00:00Z' }],
    ['deployed_at', { deployed_at: '2026-11-21T23:59:60Z' }],
    ['city_id', { city_id: 'a b' }],
  ])('refuse an invalid %s: %j', async (param, member) => {
    await expect(world.admin.cities.upsertCity({ ...city, ...member } as never)).rejects.toMatchObject({
      status: 400,
      param,
    });
  });

  test('are listed and changed only by administrators', async () => {
    for (const [client, status] of [
      [world.user, 403],
      [world.guest, 401],
    ] as const) {
      for (const call of [
        () => client.cities.listCities(),
        () => client.cities.upsertCity(city),
        () => client.cities.removeCity({ city_id: 'cty_one' }),
      ]) {
        await expect(call()).rejects.toMatchObject({ status });
      }
    }
  });
});
