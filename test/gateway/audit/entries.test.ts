// The list of audit entries, as an administrator reads it.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startGateway, type GatewayWorld } from '../../support/gateway.ts';

const secret = 'sk-test-0123456789abcdef';

let world: GatewayWorld;
let bureauId: string;

beforeAll(async () => {
  world = await startGateway({ withAdmin: true });
  bureauId = (await world.admin.bureaus.createBureau({ server_url: 'https://audited.example' })).bureau_id;
  await world.admin.bureaus.pauseBureau({ bureau_id: bureauId });
  await world.admin.env.upsertVariable({ key: 'OPENAI_API_KEY', value: secret });
  const login = world.guest.admin.login({ admin_id: 'admin', password: 'a wrong password' });
  await expect(login).rejects.toMatchObject({ status: 401 });
});
afterAll(() => world?.close());

const list = (query: Parameters<typeof world.admin.audit.listEntries>[0]) =>
  world.admin.audit.listEntries(query);

describe('audit.listEntries', () => {
  test('lists the newest change first', async () => {
    const { items } = await list({ target_id: bureauId });
    expect(items.map(({ action }) => action)).toEqual(['bureaus.pauseBureau', 'bureaus.createBureau']);
  });

  test('describes who changed what from where', async () => {
    const [entry] = (await list({ action: 'bureaus.pauseBureau' })).items;
    expect(entry).toMatchObject({
      entry_id: expect.stringMatching(/^log_/),
      actor_kind: 'admin',
      actor_id: 'admin',
      token_id: expect.stringMatching(/^adm_/),
      address: '127.0.0.1',
      request_id: expect.stringMatching(/^req_/),
      target_kind: 'bureau',
      target_id: bureauId,
      outcome: 'ok',
      changes: { state: { from: 'active', to: 'paused' } },
    });
  });

  test('finds a refused login', async () => {
    expect((await list({ outcome: 'failed' })).items).toMatchObject([
      { action: 'admin.login', actor_kind: 'guest', actor_id: null, target_id: 'admin', changes: null },
    ]);
  });

  test('finds the entries of a request', async () => {
    const [pause] = (await list({ action: 'bureaus.pauseBureau' })).items;
    const { items } = await list({ request_id: pause?.request_id ?? '' });
    expect(items).toEqual([pause]);
  });

  test('narrows the list to a time range', async () => {
    const [create] = (await list({ action: 'bureaus.createBureau' })).items;
    const createdAt = create?.created_at ?? '';
    const before = await list({ target_id: bureauId, to: createdAt });
    expect(before.items).toEqual([]);
    const since = await list({ target_id: bureauId, from: createdAt });
    expect(since.items).toHaveLength(2);
  });

  test('shows no secret', async () => {
    const { items } = await list({ target_id: 'OPENAI_API_KEY' });
    expect(items).toHaveLength(1);
    expect(JSON.stringify(items)).not.toContain(secret);
  });

  test('pages through all entries', async () => {
    const all = (await list({})).items;
    const paged: typeof all = [];
    for await (const entry of world.admin.audit.listEntries({ limit: 2 })) paged.push(entry);
    expect(all.length).toBeGreaterThan(4);
    expect(paged).toEqual(all);
  });

  test('refuses an empty time range', async () => {
    const range = { from: '2026-12-01T00:00:00Z', to: '2026-11-01T00:00:00Z' };
    await expect(list(range)).rejects.toMatchObject({ status: 400, param: 'from' });
  });

  test('refuses a user', async () => {
    await expect(world.user.audit.listEntries()).rejects.toMatchObject({ status: 403 });
  });
});
