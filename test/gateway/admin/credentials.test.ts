// Which credentials are accepted, who may set them, and what a reset revokes.
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import {
  checkPassword,
  digestPassword,
  dummyDigest,
  passwordError,
} from '../../../src/kernel/secrets/password.ts';
import { startWorld, type World } from '../accounts/world.ts';

const fitPassword = 'a rather long secret';
// Hashing a password is slow by design, and slower on a busy machine.
vi.setConfig({ testTimeout: 120_000 });

describe('a password', () => {
  test.each([
    ['eleven characters', 'k3v9x2mq7wz'],
    ['eleven characters outside of the BMP, which are 22 units', '🜁🜂🜃🜄🝆🝇🝈🝉🝊🝋🝌'],
    ['eleven characters after NFC, twelve before it', 'k3v9x2mq7we\u0301'],
    ['257 characters', 'k3v9x2mq'.repeat(32) + 'z'],
    ['more than 1,024 bytes', '🜁🜂🜃🜄'.repeat(64) + 'k'],
    ['half of a surrogate pair', 'k3v9x2mq7wz\ud800'],
    ['a common word and digits', 'Password1234'],
    ['common words put together', 'iloveyoumonkey'],
    ['a word of ours and digits', 'townhall2026'],
    ['the administrator’s own ID and punctuation', 'Ada.Lovelace!'],
    ['a run of the keyboard', '1qaz2wsx3edc'],
    ['a run of the alphabet backwards', 'lkjihgfedcba'],
    ['digits over and over', '123123123123'],
  ])('is refused with %s', (_name, password) => {
    expect(passwordError(password, ['ada.lovelace'])).toEqual(expect.any(String));
  });

  test.each([
    ['twelve characters', 'k3v9x2mq7wz4'],
    ['twelve characters outside of the BMP', '🜁🜂🜃🜄🝆🝇🝈🝉🝊🝋🝌🝍'],
    ['64 characters', 'k3v9x2mq'.repeat(8)],
    ['256 characters', 'k3v9x2mq'.repeat(32)],
    ['words that are not the first to try', 'test admin passphrase'],
  ])('is accepted with %s', (_name, password) => {
    expect(passwordError(password, ['ada.lovelace'])).toBeNull();
  });

  test('is checked in linear time', () => {
    const startedMs = performance.now();
    for (const piece of ['pass', '1', ' ', '-1', 'abc'])
      passwordError(piece.repeat(256 / piece.length) + '\u00e9', ['abc']);
    expect(performance.now() - startedMs).toBeLessThan(5_000);
  });

  test('is equal in every Unicode normal form', async () => {
    const digest = await digestPassword("caf\u00e9 au lait s'il", 600_000);
    expect(digest).toMatch(/^\$pbkdf2-sha256\$i=600000\$[A-Za-z0-9+/]{22}\$[A-Za-z0-9+/]{43}$/);
    expect(await checkPassword("cafe\u0301 au lait s'il", digest)).toEqual({
      matches: true,
      rounds: 600_000,
    });
    expect((await checkPassword("cafe au lait s'il", digest)).matches).toBe(false);
    expect((await checkPassword("cafe au lait s'il", dummyDigest(600_000))).matches).toBe(false);
  });

  test('is not checked against a digest of too few or too many rounds', async () => {
    const digest = dummyDigest(600_000);
    for (const rounds of ['100000', '599999', '5000001']) {
      await expect(checkPassword('x', digest.replace('600000', rounds))).rejects.toThrow('not in our format');
    }
  });
});

describe('setup and reset', () => {
  let world: World;
  beforeAll(async () => {
    world = await startWorld({ admin: { attemptLimits: { firstDelaySeconds: 600 } } });
  });
  afterAll(() => world.close());
  const login = (adminId: string, password: string) =>
    world.call('POST', '/v1/admin/login', { body: { admin_id: adminId, password } });

  test('refuse an invalid ID or password without a change', async () => {
    for (const adminId of ['', 'two words', 'x'.repeat(65), 'ümlaut']) {
      await expect(world.admin.setup(adminId, fitPassword)).rejects.toMatchObject({
        status: 400,
        param: 'admin_id',
      });
    }
    await expect(world.admin.setup('ada', 'k3v9x2mq7wz')).rejects.toMatchObject({
      status: 400,
      param: 'password',
    });
    await expect(world.admin.reset('ada', 'k3v9x2mq7wz')).rejects.toMatchObject({
      status: 400,
      param: 'password',
    });
    expect(await world.admin.exists()).toBe(false);
  });

  test('setup creates one administrator of concurrent ones', async () => {
    const outcomes = await Promise.allSettled(
      ['ada', 'bob', 'cyd'].map((adminId) => world.admin.setup(adminId, fitPassword)),
    );
    expect(outcomes.filter(({ status }) => status === 'fulfilled')).toHaveLength(1);
    for (const outcome of outcomes)
      if (outcome.status === 'rejected') expect(outcome.reason).toMatchObject({ code: 'conflict' });
    expect(await world.admin.exists()).toBe(true);
    expect(await world.database.sql`select 1 from gateway.admin_administrators`).toHaveLength(1);
  });

  test('a reset of the credentials ends every session', async () => {
    expect(await world.admin.reset('ada', fitPassword)).toEqual({ adminId: 'ada', isShort: false });
    const tokens = [await login('ada', fitPassword), await login('ada', fitPassword)].map(
      ({ body }) => body.session_token,
    );
    await world.admin.reset('grace', 'another long secret');
    for (const token of tokens)
      expect((await world.call('GET', '/v1/admin/session', { token })).status).toBe(401);
    expect((await login('ada', fitPassword)).status).toBe(401);
    expect((await login('grace', fitPassword)).status).toBe(401);
    expect((await login('grace', 'another long secret')).status).toBe(200);
  });

  test('reset clears the attempt counters', async () => {
    await world.admin.reset('grace', fitPassword);
    for (let guess = 0; guess < 6; guess += 1) await login('grace', 'no such secret at all');
    expect((await login('grace', fitPassword)).status).toBe(429);
    await world.admin.reset('grace', fitPassword);
    expect((await login('grace', fitPassword)).status).toBe(200);
  });

  test('a login during a reset gets no session', async () => {
    await world.admin.reset('grace', fitPassword);
    const [login1, reset] = await Promise.all([
      login('grace', fitPassword),
      world.admin.reset('grace', 'another long secret'),
    ]);
    expect(reset.adminId).toBe('grace');
    if (login1.status === 200)
      expect(
        (await world.call('GET', '/v1/admin/session', { token: login1.body.session_token })).status,
      ).toBe(401);
    else expect(login1.status).toBe(401);
  });

  test('report a password that is shorter than recommended', async () => {
    expect(await world.admin.reset('grace', 'k3v9x2mq7wz4')).toEqual({ adminId: 'grace', isShort: true });
  });
});
