// The operations of credits through the client: balances, history, grants and deductions, starting
// credits and caps of API keys.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { id } from '../../../src/kernel/ids.ts';
import { startGateway, type GatewayWorld } from '../../support/gateway.ts';

let world: GatewayWorld;
beforeAll(async () => {
  world = await startGateway({ withAdmin: true, env: { STARTING_CREDITS: '5000' } });
});
afterAll(() => world?.close());

/** Issues a token for a new user, as a product's backend does. */
async function createUser(bureauId = 'local') {
  const { user_id, user_token, token_id } = await world.admin.accounts.issueToken({
    bureau_id: bureauId,
    external_id: id('req'),
  });
  return { userId: user_id, tokenId: token_id, client: world.as(user_token) };
}

describe('credits.getBalance', () => {
  test('starts with the starting credits once', async () => {
    const { userId, client } = await createUser();
    const balance = { user_id: userId, available: 5000, held: 0, posted: 5000, owed: 0 };
    expect(await client.credits.getBalance()).toEqual(balance);
    expect((await world.user.credits.getBalance()).posted).toBe(5000);
    await world.gateway.issueLocalToken();
    expect((await world.user.credits.getBalance()).posted).toBe(5000);
  });

  test.each([123, 0])('starts with the %d credits of its Bureau', async (starting_credits) => {
    const { bureau_id } = await world.admin.bureaus.createBureau({
      server_url: 'https://shop.example',
      starting_credits,
    });
    const { client } = await createUser(bureau_id);
    expect((await client.credits.getBalance()).posted).toBe(starting_credits);
  });

  test('is for users only', async () => {
    await expect(world.guest.credits.getBalance()).rejects.toMatchObject({ status: 401 });
    await expect(world.admin.credits.getBalance()).rejects.toMatchObject({
      status: 403,
      code: 'forbidden_for_identity',
    });
  });
});

describe('credits.grantCredits', () => {
  test('adds credits with an audit entry and a history entry', async () => {
    const { userId, client } = await createUser();
    expect(
      await world.admin.credits.grantCredits({ user_id: userId, credits: 250, reason: 'for the outage' }),
    ).toMatchObject({ user_id: userId, bureau_id: 'local', posted: 5250, available: 5250, held: 0, owed: 0 });
    const { items } = await client.credits.listHistory();
    expect(items).toMatchObject([
      { kind: 'grant', credits: 250, reason: 'for the outage' },
      { kind: 'starting', ref: userId, credits: 5000 },
    ]);
    expect(
      await world.sql`
        select actor_kind as actor, target_id as target, diff from gateway.audit_entries
        where action = 'credits.grantCredits' and target_id = ${userId}`,
    ).toEqual([{ actor: 'admin', target: userId, diff: { credits: 250, reason: 'for the outage' } }]);
  });

  test('grants once for repeated calls with one Idempotency-Key', async () => {
    const { userId, client } = await createUser();
    const headers = { 'Idempotency-Key': id('req') };
    const grant = () =>
      world.admin.credits.grantCredits({ user_id: userId, credits: 10, reason: 'once' }, { headers });
    const firstGrant = await grant();
    expect(await grant()).toEqual(firstGrant);
    expect((await client.credits.getBalance()).posted).toBe(5010);
  });

  test('grants once for ten concurrent calls with one Idempotency-Key', async () => {
    const { userId, client } = await createUser();
    const headers = { 'Idempotency-Key': id('req') };
    const results = await Promise.allSettled(
      Array.from({ length: 10 }, () =>
        world.admin.credits.grantCredits({ user_id: userId, credits: 1, reason: 'once' }, { headers }),
      ),
    );
    expect(results.some(({ status }) => status === 'fulfilled')).toBe(true);
    expect((await client.credits.getBalance()).posted).toBe(5001);
  });

  test.each([
    [{ credits: 0 }, 'credits'],
    [{ credits: -5 }, 'credits'],
    [{ credits: 1.5 }, 'credits'],
    [{ credits: 10 ** 13 }, 'credits'],
    [{ reason: '' }, 'reason'],
    [{ reason: 'a\u0000b' }, 'reason'],
  ])('refuses %j', async (members, param) => {
    const body = { user_id: id('usr'), credits: 5, reason: 'x', ...members };
    await expect(world.admin.credits.grantCredits(body)).rejects.toMatchObject({ status: 400, param });
  });

  test('needs an existing user', async () => {
    await expect(
      world.admin.credits.grantCredits({ user_id: id('usr'), credits: 5, reason: 'x' }),
    ).rejects.toMatchObject({ status: 404, code: 'user_not_found' });
    const { userId } = await createUser();
    await world.admin.accounts.removeUser({ user_id: userId });
    await expect(
      world.admin.credits.grantCredits({ user_id: userId, credits: 5, reason: 'x' }),
    ).rejects.toMatchObject({ status: 404 });
  });

  test('is for administrators only', async () => {
    await expect(
      world.user.credits.grantCredits({ user_id: id('usr'), credits: 5, reason: 'x' }),
    ).rejects.toMatchObject({ status: 403 });
  });
});

describe('credits.deductCredits', () => {
  test('deducts all or nothing', async () => {
    const { userId, client } = await createUser();
    await expect(
      world.admin.credits.deductCredits({ user_id: userId, credits: 5001, reason: 'too much' }),
    ).rejects.toMatchObject({
      status: 402,
      code: 'insufficient_credits',
      details: [
        { path: 'needed_credits', message: '5001' },
        { path: 'affordable_credits', message: '5000' },
      ],
    });
    expect(
      await world.admin.credits.deductCredits({ user_id: userId, credits: 4000, reason: 'by mistake' }),
    ).toMatchObject({ posted: 1000 });
    expect((await client.credits.listHistory({ limit: 1 })).items).toMatchObject([
      { kind: 'deduct', credits: -4000, reason: 'by mistake' },
    ]);
  });
});

describe('credits.listHistory', () => {
  test('pages through the entries of a user from the newest', async () => {
    const { userId, client } = await createUser();
    for (let credits = 1; credits <= 7; credits += 1)
      await world.admin.credits.grantCredits({ user_id: userId, credits, reason: `grant ${credits}` });
    const listedCredits: number[] = [];
    let cursor: string | null = null;
    do {
      const page: Awaited<ReturnType<typeof client.credits.listHistory>> = await client.credits.listHistory({
        limit: 3,
        ...(cursor === null ? {} : { cursor }),
      });
      listedCredits.push(...page.items.map(({ credits }) => credits));
      cursor = page.next_cursor;
    } while (cursor !== null);
    expect(listedCredits).toEqual([7, 6, 5, 4, 3, 2, 1, 5000]);
  });

  test.each(['nonsense', '"abc"', '[1]'])('refuses a cursor with the text %s', async (text) => {
    const cursor = Buffer.from(text).toString('base64url');
    await expect(world.user.credits.listHistory({ cursor })).rejects.toMatchObject({
      status: 400,
      param: 'cursor',
    });
  });
});

describe('credits.listAccounts', () => {
  test('pages through the users of a Bureau', async () => {
    const { bureau_id } = await world.admin.bureaus.createBureau({
      server_url: 'https://many.example',
      starting_credits: 9,
    });
    const userIds: string[] = [];
    for (let count = 0; count < 5; count += 1) userIds.push((await createUser(bureau_id)).userId);
    const firstPage = await world.admin.credits.listAccounts({ bureau_id, limit: 3 });
    const secondPage = await world.admin.credits.listAccounts({
      bureau_id,
      limit: 3,
      cursor: firstPage.next_cursor ?? '',
    });
    expect([...firstPage.items, ...secondPage.items].map(({ user_id, posted }) => [user_id, posted])).toEqual(
      userIds.toSorted().map((userId) => [userId, 9]),
    );
    expect(secondPage.next_cursor).toBeNull();
  });

  test('lists the users of all Bureaus', async () => {
    const { bureau_id } = await world.admin.bureaus.createBureau({ server_url: 'https://one.example' });
    const userIds = [(await createUser()).userId, (await createUser(bureau_id)).userId];
    const { items } = await world.admin.credits.listAccounts({ limit: 500 });
    expect(items.map(({ user_id }) => user_id)).toEqual(expect.arrayContaining(userIds));
  });
});

describe("an API key's credits", () => {
  test('are capped on request and shown with their spending', async () => {
    const { client } = await createUser();
    const key = await client.accounts.createKey({ name: 'capped', credit_cap: 700 });
    const freeKey = await client.accounts.createKey({ name: 'free' });
    expect([key.credit_cap, freeKey.credit_cap]).toEqual([700, null]);
    await world.sql`update gateway.credits_keys set spent = 250 where token_id = ${key.token_id}`;
    const { items } = await client.accounts.listKeys();
    expect(items.map(({ name, credit_cap, credits_spent }) => [name, credit_cap, credits_spent])).toEqual([
      ['capped', 700, 250],
      ['free', null, 0],
    ]);
  });

  test('cannot have a negative cap', async () => {
    const { client } = await createUser();
    await expect(client.accounts.createKey({ name: 'wrong', credit_cap: -1 })).rejects.toMatchObject({
      status: 400,
      param: 'credit_cap',
    });
  });
});

test('the directory lists the services credits and usage', async () => {
  const { services } = await world.guest.directory.getHealth();
  expect(services).toEqual(expect.arrayContaining(['credits', 'usage']));
});
