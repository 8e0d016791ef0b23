// Which credentials are accepted, who may set them, and what a reset revokes.
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import {
  checkPassword,
  digestPassword,
  dummyDigest,
  passwordError,
} from '../../../src/kernel/secrets/password.ts';
import { startWorld, type World } from '../accounts/world.ts';

const validPassword = 'a rather long secret';
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
    ['the name of the product and digits', 'townhall2026'],
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
    ['common words that form an uncommon phrase', 'test admin passphrase'],
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

  test.each(['', 'two words', 'x'.repeat(65), 'ümlaut'])('setup refuses the ID %j', async (adminId) => {
    await expect(world.admin.setup(adminId, validPassword)).rejects.toMatchObject({
      status: 400,
      param: 'admin_id',
    });
  });

  test('refuse an invalid password', async () => {
    const refusal = { status: 400, param: 'password' };
    await expect(world.admin.setup('ada', 'k3v9x2mq7wz')).rejects.toMatchObject(refusal);
    await expect(world.admin.reset('ada', 'k3v9x2mq7wz')).rejects.toMatchObject(refusal);
    expect(await world.admin.exists()).toBe(false);
  });

  test('setup creates one administrator when called concurrently', async () => {
    const outcomes = await Promise.allSettled(
      ['ada', 'bob', 'cyd'].map((adminId) => world.admin.setup(adminId, validPassword)),
    );
    const errors = outcomes.flatMap((outcome) => (outcome.status === 'rejected' ? [outcome.reason] : []));
    expect(errors).toMatchObject([{ code: 'conflict' }, { code: 'conflict' }]);
    expect(await world.admin.exists()).toBe(true);
    expect(await world.database.sql`select 1 from gateway.admin_administrators`).toHaveLength(1);
  });

  test('reset ends every session', async () => {
    expect(await world.admin.reset('ada', validPassword)).toEqual({ adminId: 'ada', isShort: false });
    const tokens = [await login('ada', validPassword), await login('ada', validPassword)].map(
      ({ body }) => body.session_token,
    );
    await world.admin.reset('grace', 'another long secret');
    for (const token of tokens)
      expect((await world.call('GET', '/v1/admin/session', { token })).status).toBe(401);
    expect((await login('ada', validPassword)).status).toBe(401);
    expect((await login('grace', validPassword)).status).toBe(401);
    expect((await login('grace', 'another long secret')).status).toBe(200);
  });

  test('reset clears the attempt counters', async () => {
    await world.admin.reset('grace', validPassword);
    for (let guess = 0; guess < 6; guess += 1) await login('grace', 'no such secret at all');
    expect((await login('grace', validPassword)).status).toBe(429);
    await world.admin.reset('grace', validPassword);
    expect((await login('grace', validPassword)).status).toBe(200);
  });

  test('reset leaves no session of a concurrent login', async () => {
    await world.admin.reset('grace', validPassword);
    const [loginAnswer, reset] = await Promise.all([
      login('grace', validPassword),
      world.admin.reset('grace', 'another long secret'),
    ]);
    expect(reset.adminId).toBe('grace');
    // Either the login is refused, or the reset revokes its session.
    expect([200, 401]).toContain(loginAnswer.status);
    const token = loginAnswer.status === 200 ? loginAnswer.body.session_token : 'none';
    expect((await world.call('GET', '/v1/admin/session', { token })).status).toBe(401);
  });

  test('reset reports a password shorter than recommended', async () => {
    expect(await world.admin.reset('grace', 'k3v9x2mq7wz4')).toEqual({ adminId: 'grace', isShort: true });
  });
});
