// Machine credentials: valid for some operations and one Bureau, and for nothing after revocation.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startGateway, type GatewayWorld } from '../../support/gateway.ts';
import { makeUser } from '../bureaus/people.ts';
import { dumpTables, findSecrets } from '../stored-text.ts';

let world: GatewayWorld;
beforeAll(async () => {
  world = await startGateway({ withAdmin: true });
  await world.admin.bureaus.createBureau({ server_url: 'https://shop.example', bureau_id: 'shop' });
});
afterAll(() => world?.close());

const examine = (credential: string, userToken: string) =>
  world.as(credential).bureaus.getCurrentBureau(undefined, { headers: { 'x-user-token': userToken } });

const createMachine = (scopes: string[], options: { ttlSeconds?: number } = {}) =>
  world.gateway.machines.create({ scopes, bureauId: 'shop', ...options });

async function whilePaused(bureauIds: readonly string[], check: () => Promise<void>): Promise<void> {
  for (const bureau_id of bureauIds) await world.admin.bureaus.pauseBureau({ bureau_id });
  try {
    await check();
  } finally {
    for (const bureau_id of bureauIds) await world.admin.bureaus.activateBureau({ bureau_id });
  }
}

describe('a machine credential', () => {
  const tokenNotFound = { status: 404, code: 'token_not_found' };

  test('performs the operations of its scopes for its own Bureau', async () => {
    const { credential } = await createMachine(['bureaus.current']);
    expect(credential).toMatch(/^th_adm_/);
    const { userId, userToken } = await makeUser(world.sql, 'shop');
    expect(await examine(credential, userToken)).toMatchObject({
      bureau: { bureau_id: 'shop' },
      user_id: userId,
    });
  });

  test('finds no token of another Bureau, not even a paused one', async () => {
    const { credential } = await createMachine(['bureaus.current']);
    const { userToken } = await makeUser(world.sql, 'local');
    for (const token of [userToken, 'nonsense'])
      await expect(examine(credential, token)).rejects.toMatchObject(tokenNotFound);
    await whilePaused(['local'], async () => {
      await expect(examine(credential, userToken)).rejects.toMatchObject(tokenNotFound);
    });
  });

  test('gets 403 for every token while its own Bureau is paused', async () => {
    const { credential } = await createMachine(['bureaus.current']);
    const ownUser = await makeUser(world.sql, 'shop');
    const otherUser = await makeUser(world.sql, 'local');
    await whilePaused(['shop', 'local'], async () => {
      for (const token of [ownUser.userToken, otherUser.userToken, 'nonsense'])
        await expect(examine(credential, token)).rejects.toMatchObject({
          status: 403,
          code: 'bureau_paused',
        });
    });
  });

  test('is listed with its Bureau and its scopes', async () => {
    const { credentialId } = await createMachine(['bureaus.current']);
    const machines = await world.gateway.machines.list();
    expect(machines.find((machine) => machine.credentialId === credentialId)).toMatchObject({
      bureauId: 'shop',
      scopes: ['bureaus.current'],
      revokedAt: null,
    });
  });

  test('issues user tokens only for its own Bureau', async () => {
    const { credential } = await createMachine(['tokens.issue']);
    const machine = world.as(credential);
    const token = await machine.accounts.issueToken({ bureau_id: 'shop', external_id: 'customer-1' });
    expect(await world.as(token.user_token).accounts.getMe()).toMatchObject({
      bureau: { bureau_id: 'shop' },
    });
    for (const bureau_id of ['local', 'nobody'])
      await expect(
        machine.accounts.issueToken({ bureau_id, external_id: 'customer-1' }),
      ).rejects.toMatchObject({ status: 404, code: 'bureau_not_found', param: 'bureau_id' });
  });

  test('is refused by all other operations', async () => {
    const { credential } = await createMachine(['bureaus.current']);
    const machine = world.as(credential);
    for (const call of [
      () => machine.bureaus.listBureaus(),
      () => machine.bureaus.pauseBureau({ bureau_id: 'shop' }),
      () => machine.bureaus.pauseBureau({ bureau_id: 'nobody' }),
      () => machine.admin.getSession(),
      () => machine.admin.logout(),
      () => machine.ai.listModels(),
      () => machine.cities.listCities(),
    ]) {
      await expect(call()).rejects.toMatchObject({ status: 403, code: 'forbidden_for_identity' });
    }
    // Operations of users refuse it too.
    await expect(machine.accounts.getMe()).rejects.toMatchObject({ status: 403 });
  });

  test('is refused once it is revoked', async () => {
    const { userToken } = await makeUser(world.sql, 'shop');
    const { credential, credentialId } = await createMachine(['tokens.issue', 'bureaus.current']);
    expect(await examine(credential, userToken)).toMatchObject({ bureau: { bureau_id: 'shop' } });
    expect(await world.gateway.machines.revoke(credentialId)).toEqual({ credentialId, revoked: true });
    expect(await world.gateway.machines.revoke(credentialId)).toEqual({ credentialId, revoked: false });
    await expect(examine(credential, userToken)).rejects.toMatchObject({
      status: 401,
      code: 'invalid_token',
    });
    const entries = await world.sql`
      select action from gateway.audit_entries where target_id = ${credentialId} order by entry_id`;
    expect(entries).toEqual([{ action: 'admin.token.create' }, { action: 'admin.token.revoke' }]);
  });

  test('is refused once it has expired', async () => {
    const { userToken } = await makeUser(world.sql, 'shop');
    const { credential, credentialId } = await createMachine(['bureaus.current'], { ttlSeconds: 60 });
    expect(await examine(credential, userToken)).toMatchObject({ bureau: { bureau_id: 'shop' } });
    await world.sql`
      update gateway.admin_machines set expires_at = now() where credential_id = ${credentialId}`;
    await expect(examine(credential, userToken)).rejects.toMatchObject({ status: 401 });
  });

  test('cannot be revoked by an unknown id', async () => {
    await expect(world.gateway.machines.revoke('adm_nobody')).rejects.toMatchObject({ status: 404 });
  });

  test('appears in neither the database nor the log', async () => {
    const { credential } = await createMachine(['bureaus.current']);
    expect(
      findSecrets((await dumpTables(world.sql, ['gateway'])) + world.logLines.join(''), [credential]),
    ).toEqual([]);
  });
});

describe('a new machine credential', () => {
  test('lives 90 days by default', async () => {
    const { expiresAt } = await createMachine(['tokens.issue']);
    const days = (expiresAt.getTime() - Date.now()) / 86_400_000;
    expect(Math.round(days)).toBe(90);
  });

  test('cannot live longer than 365 days', async () => {
    await expect(createMachine(['tokens.issue'], { ttlSeconds: 366 * 86_400 })).rejects.toMatchObject({
      status: 400,
      param: 'ttl',
    });
  });

  test.each([{ scopes: ['everything'] }, { scopes: ['constructor'] }, { scopes: [] }])(
    'cannot have the scopes $scopes',
    async ({ scopes }) => {
      await expect(createMachine(scopes)).rejects.toMatchObject({ status: 400, param: 'scope' });
    },
  );

  test('needs a known Bureau', async () => {
    await expect(
      world.gateway.machines.create({ scopes: ['tokens.issue'], bureauId: 'nobody' }),
    ).rejects.toMatchObject({ code: 'bureau_not_found' });
  });
});

describe('the revocation of a machine credential', () => {
  test('revokes the tokens that it issued', async () => {
    const { credential, credentialId } = await createMachine(['tokens.issue']);
    const issuedToken = await world
      .as(credential)
      .accounts.issueToken({ bureau_id: 'shop', external_id: 'customer-2' });
    const key = await world.as(issuedToken.user_token).accounts.createKey({ name: 'ci' });
    await world.gateway.machines.revoke(credentialId);
    for (const token of [issuedToken.user_token, key.user_token])
      await expect(world.as(token).accounts.getMe()).rejects.toMatchObject({ status: 401 });
  });

  test('keeps the tokens on request', async () => {
    const { credential, credentialId } = await createMachine(['tokens.issue']);
    const token = await world
      .as(credential)
      .accounts.issueToken({ bureau_id: 'shop', external_id: 'customer-3' });
    await world.gateway.machines.revoke(credentialId, { keepTokens: true });
    expect(await world.as(token.user_token).accounts.getMe()).toMatchObject({
      user: { user_id: token.user_id },
    });
  });
});

describe('the audit log', () => {
  const tryWrongPassword = (adminId: string) =>
    expect(
      world.guest.admin.login({ admin_id: adminId, password: 'a wrong password, surely' }),
    ).rejects.toMatchObject({ name: 'GatewayError' });

  test('records logins and failures without unknown IDs', async () => {
    await tryWrongPassword('admin');
    await tryWrongPassword('CANARY-typed-into-the-wrong-field');
    const readEntries = async () => [
      ...(await world.sql`
        select outcome, target_id as "targetId", address from gateway.audit_entries
        where action = 'admin.login' order by entry_id`),
    ];
    await expect.poll(readEntries).toEqual([
      // The login of the world's own administrator.
      { outcome: 'ok', targetId: 'admin', address: '127.0.0.1' },
      { outcome: 'failed', targetId: 'admin', address: '127.0.0.1' },
      { outcome: 'failed', targetId: null, address: '127.0.0.1' },
    ]);
  });

  test('records a delay after many failures', async () => {
    const countLocks = async () =>
      (await world.sql`select 1 from gateway.audit_entries where action = 'admin.lock'`).length;
    // The delay doubles with each guess. On a busy machine, the first delays may be over before the next
    // guess is counted.
    for (let attempt = 0; attempt < 12 && (await countLocks()) === 0; attempt += 1)
      await tryWrongPassword('admin');
    await expect.poll(countLocks).toBeGreaterThan(0);
  });
});
