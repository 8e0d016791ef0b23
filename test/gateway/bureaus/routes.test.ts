// The operations of Bureaus: create, list and change them. Also the effect of a Bureau's state on its users.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startGateway, type GatewayWorld } from '../../support/gateway.ts';
import { makeUser } from './people.ts';

let world: GatewayWorld;
beforeAll(async () => {
  world = await startGateway({ withAdmin: true });
});
afterAll(() => world?.close());

const serverUrl = 'https://shop.example/townhall';
const refusal = (status: number, code: string, param?: string) =>
  expect.objectContaining({ status, code, ...(param === undefined ? {} : { param }) });
async function auditActions(bureauId: string): Promise<string[]> {
  const entries = await world.sql<{ action: string }[]>`
    select action from gateway.audit_entries where target_id = ${bureauId} order by entry_id`;
  return entries.map(({ action }) => action);
}

describe('bureaus.createBureau', () => {
  test('creates an active Bureau named after its host', async () => {
    const bureau = await world.admin.bureaus.createBureau({ server_url: serverUrl });
    expect(bureau).toMatchObject({
      name: 'shop.example',
      state: 'active',
      server_url: serverUrl,
      redirect_origins: [],
      redirect_uris: [],
      color: null,
      models: null,
      limits: null,
      starting_credits: null,
      metadata: {},
      archived_at: null,
    });
    expect(bureau.bureau_id).toMatch(/^bur_[0-9a-z]{26}$/);
    expect(await auditActions(bureau.bureau_id)).toEqual(['bureaus.createBureau']);
  });

  test('stores every setting', async () => {
    const settings = {
      server_url: 'http://127.0.0.1:3000',
      bureau_id: 'with_everything',
      name: 'Übung 🚀',
      redirect_origins: ['https://app.example', 'http://localhost:5173'],
      redirect_uris: ['https://app.example/welcome', 'http://localhost:5173/'],
      color: '#0b6e4f',
      models: ['local/guide'],
      limits: { requests_per_minute: 5 },
      starting_credits: 1_000_000_000_000_000,
      metadata: { plan: 'trial', nested: { list: [1, null, 'x'] } },
    };
    expect(await world.admin.bureaus.createBureau(settings)).toMatchObject(settings);
  });

  test('refuses an id that is taken', async () => {
    await world.admin.bureaus.createBureau({ server_url: serverUrl, bureau_id: 'taken' });
    await expect(
      world.admin.bureaus.createBureau({ server_url: serverUrl, bureau_id: 'taken' }),
    ).rejects.toThrow(refusal(409, 'conflict', 'bureau_id'));
  });

  test.each([
    ['no server_url', {}, 'server_url'],
    ['a server_url with credentials', { server_url: 'https://user:secret@shop.example' }, 'server_url'],
    ['a server_url with a fragment', { server_url: 'https://shop.example/#x' }, 'server_url'],
    ['a server_url with plain http', { server_url: 'http://shop.example' }, 'server_url'],
    ['a server_url with a line break', { server_url: 'https://shop.example/\r\nx-evil: 1' }, 'server_url'],
    ['an id with a space', { server_url: serverUrl, bureau_id: 'a b' }, 'bureau_id'],
    [
      'a redirect URI with plain http',
      { server_url: serverUrl, redirect_uris: ['https://app.example/', 'http://app.example/'] },
      'redirect_uris[1]',
    ],
    [
      'a redirect URI with credentials',
      { server_url: serverUrl, redirect_uris: ['https://ada@app.example/'] },
      'redirect_uris[0]',
    ],
    ['a color name', { server_url: serverUrl, color: 'red' }, 'color'],
    [
      'an origin with a path',
      { server_url: serverUrl, redirect_origins: ['https://app.example/back'] },
      'redirect_origins[0]',
    ],
    [
      'an origin with plain http',
      { server_url: serverUrl, redirect_origins: ['https://app.example', 'http://app.example'] },
      'redirect_origins[1]',
    ],
    ['a fraction of a credit', { server_url: serverUrl, starting_credits: 0.5 }, 'starting_credits'],
    [
      'a limit of zero',
      { server_url: serverUrl, limits: { requests_per_minute: 0 } },
      'limits.requests_per_minute',
    ],
    ['an unknown member', { server_url: serverUrl, state: 'paused' }, 'state'],
    ['metadata with a NUL', { server_url: serverUrl, metadata: { a: 'x\u0000' } }, 'metadata'],
    [
      'more than 16 KiB of metadata',
      { server_url: serverUrl, metadata: { a: 'x'.repeat(17_000) } },
      'metadata',
    ],
    ['a name with a control character', { server_url: serverUrl, name: 'a\u0007' }, 'name'],
  ])('refuses %s', async (_name, body, param) => {
    await expect(world.admin.bureaus.createBureau(body as never)).rejects.toThrow(
      refusal(400, 'invalid_request', param),
    );
  });

  test('keeps metadata whose text only looks like an escape', async () => {
    const metadata = { text: '\\u0000 and \\ud800' };
    expect((await world.admin.bureaus.createBureau({ server_url: serverUrl, metadata })).metadata).toEqual(
      metadata,
    );
  });
});

describe('bureaus.createBureau with an Idempotency-Key', () => {
  const post = (key: string, body: object, token = world.adminToken) =>
    fetch(`${world.url}/v1/bureaus/create`, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${token}`,
        'content-type': 'application/json',
        'idempotency-key': key,
      },
      body: JSON.stringify(body),
    });

  test('creates one Bureau for concurrent calls and repeats its answer', async () => {
    const answers = await Promise.all(
      Array.from({ length: 20 }, () => post('same', { server_url: serverUrl, name: 'Once' })),
    );
    const bodies = await Promise.all(
      answers.map((answer) => answer.json() as Promise<{ bureau_id?: string; error?: { code: string } }>),
    );
    const bureauIds = new Set(bodies.flatMap(({ bureau_id }) => bureau_id ?? []));
    expect(bureauIds.size).toBe(1);
    for (const [index, answer] of answers.entries()) {
      if (answer.status === 201) continue;
      expect(answer.status).toBe(409);
      expect(bodies[index]?.error?.code).toBe('idempotency_key_in_use');
      expect(answer.headers.get('retry-after')).toBe('1');
    }
    const secondAnswer = await post('same', { name: 'Once', server_url: serverUrl });
    expect(secondAnswer.status).toBe(201);
    expect(secondAnswer.headers.get('idempotent-replayed')).toBe('true');
    expect(await secondAnswer.json()).toMatchObject({ bureau_id: [...bureauIds][0], name: 'Once' });
    const [row] =
      await world.sql`select count(*)::int as count from gateway.bureaus_records where name = 'Once'`;
    expect(row).toEqual({ count: 1 });
  });

  test('refuses the key for another body', async () => {
    await post('other body', { server_url: serverUrl });
    const answer = await post('other body', { server_url: `${serverUrl}/2` });
    expect(answer.status).toBe(422);
    expect(await answer.json()).toMatchObject({ error: { code: 'idempotency_key_reused' } });
  });

  test('accepts the key again after a call that was refused without effect', async () => {
    expect((await post('corrected', { server_url: 'ftp://x' })).status).toBe(400);
    expect((await post('corrected', { server_url: serverUrl })).status).toBe(201);
  });

  test.each([
    ['too long', 'x'.repeat(256)],
    ['not printable', 'ü'],
  ])('refuses a key that is %s', async (_name, key) => {
    expect((await post(key, { server_url: serverUrl })).status).toBe(400);
  });
});

describe('bureaus.listBureaus', () => {
  test('pages through all Bureaus in the order of creation', async () => {
    const createdIds: string[] = [];
    for (let count = 0; count < 5; count += 1)
      createdIds.push((await world.admin.bureaus.createBureau({ server_url: serverUrl })).bureau_id);
    const listedIds: string[] = [];
    let cursor: string | null = null;
    do {
      const page: { items: { bureau_id: string }[]; next_cursor: string | null } =
        await world.admin.bureaus.listBureaus({ limit: 2, ...(cursor === null ? {} : { cursor }) });
      expect(page.items.length).toBeLessThanOrEqual(2);
      listedIds.push(...page.items.map(({ bureau_id }) => bureau_id));
      cursor = page.next_cursor;
    } while (cursor !== null);
    expect(listedIds.filter((bureauId) => createdIds.includes(bureauId))).toEqual(createdIds);
    expect(new Set(listedIds).size).toBe(listedIds.length);
    expect(listedIds).toHaveLength((await world.admin.bureaus.listBureaus()).items.length);
  });

  test.each([
    'nonsense',
    Buffer.from('null').toString('base64url'),
    Buffer.from('["x","y"]').toString('base64url'),
    Buffer.from(JSON.stringify(['2026-13-45 99:99:99+00', 'x'])).toString('base64url'),
  ])('refuses the cursor %s', async (cursor) => {
    await expect(world.admin.bureaus.listBureaus({ cursor })).rejects.toThrow(
      refusal(400, 'invalid_request', 'cursor'),
    );
  });

  test.each([0, 501, 1.5])('refuses a limit of %s', async (limit) => {
    await expect(world.admin.bureaus.listBureaus({ limit })).rejects.toThrow(
      refusal(400, 'invalid_request', 'limit'),
    );
  });
});

describe('changes of a Bureau', () => {
  test('change only the named settings', async () => {
    const { bureau_id } = await world.admin.bureaus.createBureau({
      server_url: serverUrl,
      models: ['local/guide'],
      limits: { requests_per_minute: 9 },
    });
    expect(await world.admin.bureaus.updateBureau({ bureau_id, name: 'New' })).toMatchObject({
      name: 'New',
      models: ['local/guide'],
      limits: { requests_per_minute: 9 },
      server_url: serverUrl,
    });
    const server_url = 'https://other.example';
    expect(await world.admin.bureaus.updateServer({ bureau_id, server_url })).toMatchObject({
      server_url,
      name: 'New',
    });
    expect(await auditActions(bureau_id)).toEqual([
      'bureaus.createBureau',
      'bureaus.updateBureau',
      'bureaus.updateServer',
    ]);
  });

  test('are recorded with the members that differ', async () => {
    const settings = { name: 'Old', starting_credits: 5, metadata: { list: [1], plan: 'trial' } };
    const bureau = await world.admin.bureaus.createBureau({ server_url: serverUrl, ...settings });
    const { bureau_id } = bureau;
    const { bureaus } = world.admin;
    expect(await bureaus.updateBureau({ bureau_id, ...settings })).toEqual(bureau);
    expect(await bureaus.updateServer({ bureau_id, server_url: serverUrl })).toEqual(bureau);
    expect(await auditActions(bureau_id)).toEqual(['bureaus.createBureau']);
    await bureaus.updateBureau({ bureau_id, ...settings, name: 'New' });
    const entries = await world.sql`
      select diff from gateway.audit_entries
      where target_id = ${bureau_id} and action = 'bureaus.updateBureau'`;
    expect(entries).toEqual([{ diff: { name: { from: 'Old', to: 'New' } } }]);
  });

  test('remove a limit with null', async () => {
    const { bureau_id } = await world.admin.bureaus.createBureau({
      server_url: serverUrl,
      limits: { requests_per_minute: 9 },
      starting_credits: 5,
    });
    const noLimits = { limits: null, starting_credits: null };
    expect(await world.admin.bureaus.updateBureau({ bureau_id, ...noLimits })).toMatchObject(noLimits);
  });

  test('pause and activate it repeatedly until it is archived', async () => {
    const { bureau_id } = await world.admin.bureaus.createBureau({ server_url: serverUrl });
    const { bureaus } = world.admin;
    expect((await bureaus.pauseBureau({ bureau_id })).state).toBe('paused');
    const pausedBureau = await bureaus.pauseBureau({ bureau_id });
    expect(pausedBureau.state).toBe('paused');
    expect((await bureaus.activateBureau({ bureau_id })).state).toBe('active');
    expect((await bureaus.activateBureau({ bureau_id })).state).toBe('active');
    const archivedBureau = await bureaus.archiveBureau({ bureau_id });
    expect(archivedBureau).toMatchObject({
      state: 'archived',
      archived_at: expect.stringMatching(/^\d{4}-.*Z$/),
    });
    expect(await bureaus.archiveBureau({ bureau_id })).toEqual(archivedBureau);
    for (const attempt of [
      () => bureaus.pauseBureau({ bureau_id }),
      () => bureaus.activateBureau({ bureau_id }),
      () => bureaus.updateBureau({ bureau_id, name: 'x' }),
      () => bureaus.updateServer({ bureau_id, server_url: serverUrl }),
    ]) {
      await expect(attempt()).rejects.toThrow(refusal(409, 'bureau_archived', 'bureau_id'));
    }
    expect(await auditActions(bureau_id)).toEqual([
      'bureaus.createBureau',
      'bureaus.pauseBureau',
      'bureaus.activateBureau',
      'bureaus.archiveBureau',
    ]);
  });

  test('of an unknown Bureau get 404', async () => {
    const { bureaus } = world.admin;
    const bureau_id = 'nobody';
    for (const attempt of [
      () => bureaus.pauseBureau({ bureau_id }),
      () => bureaus.activateBureau({ bureau_id }),
      () => bureaus.archiveBureau({ bureau_id }),
      () => bureaus.updateBureau({ bureau_id }),
      () => bureaus.updateServer({ bureau_id, server_url: serverUrl }),
    ]) {
      await expect(attempt()).rejects.toThrow(refusal(404, 'bureau_not_found', 'bureau_id'));
    }
  });

  test('are for administrators only', async () => {
    for (const [client, status, code] of [
      [world.user, 403, 'forbidden_for_identity'],
      [world.guest, 401, 'authentication_required'],
    ] as const) {
      for (const attempt of [
        () => client.bureaus.listBureaus(),
        () => client.bureaus.createBureau({ server_url: serverUrl }),
        () => client.bureaus.pauseBureau({ bureau_id: 'local' }),
      ]) {
        await expect(attempt()).rejects.toThrow(refusal(status, code));
      }
    }
  });
});

describe('the users of a Bureau', () => {
  test('are served only while it is active', async () => {
    const { bureau_id } = await world.admin.bureaus.createBureau({ server_url: serverUrl });
    const { userToken } = await makeUser(world.sql, bureau_id);
    const user = world.as(userToken);
    await expect(user.accounts.getMe()).resolves.toMatchObject({ bureau: { bureau_id, state: 'active' } });
    await world.admin.bureaus.pauseBureau({ bureau_id });
    await expect(user.accounts.getMe()).rejects.toThrow(refusal(403, 'bureau_paused'));
    await expect(user.bureaus.getCurrentBureau()).rejects.toThrow(refusal(403, 'bureau_paused'));
    await expect(world.guest.accounts.listProviders({ bureau_id })).rejects.toThrow(
      refusal(403, 'bureau_paused'),
    );
    await world.admin.bureaus.activateBureau({ bureau_id });
    await expect(user.accounts.getMe()).resolves.toMatchObject({ bureau: { state: 'active' } });
    await world.admin.bureaus.archiveBureau({ bureau_id });
    await expect(user.accounts.getMe()).rejects.toThrow(refusal(403, 'bureau_archived'));
  });
});

describe('bureaus.getCurrentBureau', () => {
  test('shows a user its own Bureau and ignores the header', async () => {
    const { bureau_id } = await world.admin.bureaus.createBureau({
      server_url: serverUrl,
      metadata: { internal: 'yes' },
    });
    const stranger = await makeUser(world.sql, bureau_id);
    const answer = await world.user.bureaus.getCurrentBureau(undefined, {
      headers: { 'x-user-token': stranger.userToken },
    });
    expect(answer).toEqual({
      bureau: { bureau_id: 'local', name: 'Local', state: 'active', server_url: expect.any(String) },
    });
  });

  test('shows an administrator the owner of a valid token only', async () => {
    const { bureau_id } = await world.admin.bureaus.createBureau({ server_url: serverUrl });
    const person = await makeUser(world.sql, bureau_id);
    const examine = (token: string) =>
      world.admin.bureaus.getCurrentBureau(undefined, { headers: { 'x-user-token': token } });
    expect(await examine(person.userToken)).toMatchObject({
      bureau: { bureau_id, metadata: {} },
      user_id: person.userId,
      token_id: person.tokenId,
      expires_at: expect.stringMatching(/Z$/),
    });
    const expiredUser = await makeUser(world.sql, bureau_id, { isExpired: true });
    const revokedUser = await makeUser(world.sql, bureau_id, { isRevoked: true });
    for (const token of ['nonsense', world.adminToken, expiredUser.userToken, revokedUser.userToken]) {
      await expect(examine(token)).rejects.toThrow(refusal(404, 'token_not_found', 'X-User-Token'));
    }
    await expect(world.admin.bureaus.getCurrentBureau()).rejects.toThrow(
      refusal(400, 'invalid_request', 'X-User-Token'),
    );
  });
});
