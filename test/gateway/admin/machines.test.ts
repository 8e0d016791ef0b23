// Machine credentials: valid for some operations and one Bureau, and for nothing after revocation.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startGateway, type GatewayWorld } from '../../support/gateway.ts';
import { makeUser } from '../bureaus/people.ts';

let world: GatewayWorld;
beforeAll(async () => {
  world = await startGateway({ withAdmin: true });
  await world.admin.bureaus.createBureau({ server_url: 'https://shop.example', bureau_id: 'shop' });
});
afterAll(() => world?.close());

const examine = (credential: string, userToken: string) =>
  world.as(credential).bureaus.getCurrentBureau(undefined, { headers: { 'x-user-token': userToken } });

describe('a machine credential', () => {
  test('performs the operations of its scopes for its own Bureau', async () => {
    const { credential, credentialId } = await world.gateway.machines.create({
      scopes: ['bureaus.current'],
      bureauId: 'shop',
    });
    expect(credential).toMatch(/^th_adm_/);
    const ownUser = await makeUser(world.sql, 'shop');
    const foreignUser = await makeUser(world.sql, 'local');
    await expect(examine(credential, ownUser.userToken)).resolves.toMatchObject({
      bureau: { bureau_id: 'shop' },
      user_id: ownUser.userId,
    });
    const tokenNotFound = { status: 404, code: 'token_not_found' };
    await expect(examine(credential, foreignUser.userToken)).rejects.toMatchObject(tokenNotFound);
    await expect(examine(credential, 'nonsense')).rejects.toMatchObject(tokenNotFound);
    await world.admin.bureaus.pauseBureau({ bureau_id: 'local' });
    await expect(examine(credential, foreignUser.userToken)).rejects.toMatchObject(tokenNotFound);
    await world.admin.bureaus.activateBureau({ bureau_id: 'local' });
    await world.admin.bureaus.pauseBureau({ bureau_id: 'shop' });
    const pausedProblem = { status: 403, code: 'bureau_paused' };
    await world.admin.bureaus.pauseBureau({ bureau_id: 'local' });
    for (const token of [ownUser.userToken, foreignUser.userToken, 'nonsense'])
      await expect(examine(credential, token)).rejects.toMatchObject(pausedProblem);
    await world.admin.bureaus.activateBureau({ bureau_id: 'local' });
    await world.admin.bureaus.activateBureau({ bureau_id: 'shop' });
    expect(
      (await world.gateway.machines.list()).find((machine) => machine.credentialId === credentialId),
    ).toMatchObject({ bureauId: 'shop', scopes: ['bureaus.current'], revokedAt: null });
  });

  test('issues user tokens only for its own Bureau', async () => {
    const { credential } = await world.gateway.machines.create({
      scopes: ['tokens.issue'],
      bureauId: 'shop',
    });
    const machine = world.as(credential);
    const token = await machine.accounts.issueToken({ bureau_id: 'shop', external_id: 'customer-1' });
    await expect(world.as(token.user_token).accounts.getMe()).resolves.toMatchObject({
      bureau: { bureau_id: 'shop' },
    });
    const notFound = { status: 404, code: 'bureau_not_found', param: 'bureau_id' };
    await expect(
      machine.accounts.issueToken({ bureau_id: 'local', external_id: 'customer-1' }),
    ).rejects.toMatchObject(notFound);
    await expect(
      machine.accounts.issueToken({ bureau_id: 'nobody', external_id: 'customer-1' }),
    ).rejects.toMatchObject(notFound);
  });

  test('is refused by all other operations', async () => {
    const { credential } = await world.gateway.machines.create({
      scopes: ['bureaus.current'],
      bureauId: 'shop',
    });
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

  test('ends when it is revoked or expires', async () => {
    const { userToken } = await makeUser(world.sql, 'shop');
    const { credential, credentialId } = await world.gateway.machines.create({
      scopes: ['tokens.issue', 'bureaus.current'],
      bureauId: 'shop',
      ttlSeconds: 3_600,
    });
    await expect(examine(credential, userToken)).resolves.toBeDefined();
    expect(await world.gateway.machines.revoke(credentialId)).toEqual({ credentialId, revoked: true });
    expect(await world.gateway.machines.revoke(credentialId)).toEqual({ credentialId, revoked: false });
    await expect(examine(credential, userToken)).rejects.toMatchObject({
      status: 401,
      code: 'invalid_token',
    });
    await expect(world.gateway.machines.revoke('adm_nobody')).rejects.toMatchObject({ status: 404 });
    const shortMachine = await world.gateway.machines.create({
      scopes: ['bureaus.current'],
      bureauId: 'shop',
      ttlSeconds: 60,
    });
    await world.sql`update gateway.admin_machines set expires_at = now() where credential_id = ${shortMachine.credentialId}`;
    await expect(examine(shortMachine.credential, userToken)).rejects.toMatchObject({ status: 401 });
    const actions = await world.sql<
      { action: string }[]
    >`select action from gateway.audit_entries where target_id = ${credentialId} order by entry_id`;
    expect(actions.map(({ action }) => action)).toEqual(['admin.token.create', 'admin.token.revoke']);
  });

  test('lives 90 days by default', async () => {
    const { expiresAt } = await world.gateway.machines.create({ scopes: ['tokens.issue'], bureauId: 'shop' });
    const days = (expiresAt.getTime() - Date.now()) / 86_400_000;
    expect(Math.round(days)).toBe(90);
  });

  test('is refused a lifetime beyond 365 days', async () => {
    const request = { scopes: ['tokens.issue'], bureauId: 'shop', ttlSeconds: 366 * 86_400 };
    await expect(world.gateway.machines.create(request)).rejects.toMatchObject({ status: 400, param: 'ttl' });
  });

  test('revokes the tokens that it issued', async () => {
    const { credential, credentialId } = await world.gateway.machines.create({
      scopes: ['tokens.issue'],
      bureauId: 'shop',
    });
    const issuedToken = await world
      .as(credential)
      .accounts.issueToken({ bureau_id: 'shop', external_id: 'customer-2' });
    const key = await world.as(issuedToken.user_token).accounts.createKey({ name: 'ci' });
    await world.gateway.machines.revoke(credentialId);
    for (const token of [issuedToken.user_token, key.user_token])
      await expect(world.as(token).accounts.getMe()).rejects.toMatchObject({ status: 401 });
  });

  test('keeps its tokens when its revocation requests that', async () => {
    const { credential, credentialId } = await world.gateway.machines.create({
      scopes: ['tokens.issue'],
      bureauId: 'shop',
    });
    const token = await world
      .as(credential)
      .accounts.issueToken({ bureau_id: 'shop', external_id: 'customer-3' });
    await world.gateway.machines.revoke(credentialId, { keepTokens: true });
    await expect(world.as(token.user_token).accounts.getMe()).resolves.toMatchObject({
      user: { user_id: token.user_id },
    });
  });

  test('needs known scopes and a known Bureau', async () => {
    const { create } = world.gateway.machines;
    await expect(create({ scopes: ['everything'], bureauId: 'shop' })).rejects.toMatchObject({
      status: 400,
      param: 'scope',
    });
    await expect(create({ scopes: ['constructor'], bureauId: 'shop' })).rejects.toMatchObject({
      status: 400,
    });
    await expect(create({ scopes: [], bureauId: 'shop' })).rejects.toMatchObject({ status: 400 });
    await expect(create({ scopes: ['tokens.issue'], bureauId: 'nobody' })).rejects.toMatchObject({
      code: 'bureau_not_found',
    });
  });

  test('appears in neither the database nor the log', async () => {
    const { credential } = await world.gateway.machines.create({
      scopes: ['bureaus.current'],
      bureauId: 'shop',
    });
    const rows = JSON.stringify(
      await world.sql`select encode(digest, 'hex') as digest, last4, scopes from gateway.admin_machines`,
    );
    const entries = JSON.stringify(
      await world.sql`select diff, target_id, actor_id from gateway.audit_entries`,
    );
    for (const text of [rows, entries, world.logLines.join('')])
      expect(text).not.toContain(credential.slice(7, 40));
  });
});

describe('the audit log', () => {
  test('records logins and failures without unknown IDs', async () => {
    const tryWrongPassword = (adminId: string) =>
      world.guest.admin
        .login({ admin_id: adminId, password: 'a wrong password, surely' })
        .catch(() => undefined);
    await tryWrongPassword('admin');
    await tryWrongPassword('CANARY-typed-into-the-wrong-field');
    const entries = async () => [
      ...(await world.sql<
        { outcome: string; targetId: string | null; address: string | null }[]
      >`select outcome, target_id as "targetId", address from gateway.audit_entries where action = 'admin.login' order by entry_id`),
    ];
    await expect.poll(entries).toEqual([
      { outcome: 'ok', targetId: 'admin', address: '127.0.0.1' },
      { outcome: 'failed', targetId: 'admin', address: '127.0.0.1' },
      { outcome: 'failed', targetId: null, address: '127.0.0.1' },
    ]);
    const locks = async () =>
      (await world.sql`select diff from gateway.audit_entries where action = 'admin.lock'`).length;
    // The delay doubles with each guess; on a busy machine the first delays may end before the
    // guess is checked.
    for (let n = 0; n < 12 && (await locks()) === 0; n += 1) await tryWrongPassword('admin');
    await expect.poll(locks).toBeGreaterThan(0);
  });
});
