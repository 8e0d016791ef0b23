// Password guesses over several gateways on one database, and whether a refusal reveals an ID.
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { createGatewayClient } from '@townhall/gateway';
import { makeDatabase, type DatabasePlace } from '../../support/databases.ts';
import { startGateway, testAdministrator, type GatewayWorld } from '../../support/gateway.ts';

vi.setConfig({ testTimeout: 240_000 });
let place: DatabasePlace;
let gateways: GatewayWorld[];
beforeAll(async () => {
  place = await makeDatabase();
  // They start at the same time, like the replicas of a deployment.
  gateways = await Promise.all(Array.from({ length: 2 }, () => startGateway({ withAdmin: true, place })));
});
afterAll(async () => {
  for (const gateway of gateways ?? []) await gateway.close();
  await place?.remove();
});

/** Tries a wrong password; the attempts alternate between the gateways. */
async function guess(
  attempt: number,
  adminId: string,
): Promise<{ status: number; text: string; headers: string[] }> {
  const { url } = gateways[attempt % gateways.length] as GatewayWorld;
  const answer = await fetch(`${url}/v1/admin/login`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ admin_id: adminId, password: `a wrong password ${attempt}` }),
  });
  const text = (await answer.text()).replace(/req_\w+/, 'req_');
  return { status: answer.status, text, headers: [...answer.headers.keys()].sort() };
}

test('gateways that start together on a new database share one administrator', async () => {
  for (const { url } of gateways) {
    const { adminId, password } = testAdministrator;
    const client = createGatewayClient({ baseUrl: url });
    const { session_token: token } = await client.admin.login({ admin_id: adminId, password });
    expect(token).toMatch(/^th_adm_/);
  }
});

describe('wrong passwords', () => {
  test('get the same answer for a known and an unknown ID', async () => {
    // Few enough attempts that all passwords are checked.
    const existingAnswers = [
      await guess(0, testAdministrator.adminId),
      await guess(1, testAdministrator.adminId),
    ];
    const unknownAnswers = [await guess(0, 'nobody'), await guess(1, 'nobody')];
    expect(existingAnswers[0]).toMatchObject({ status: 401 });
    expect(
      new Set([...existingAnswers, ...unknownAnswers].map((answer) => JSON.stringify(answer))).size,
    ).toBe(1);
  });

  test('are checked at most ten times in the first minute over all gateways', async () => {
    let requestCount = 0;
    const statuses: number[] = [];
    const worker = async (): Promise<void> => {
      while (requestCount < 400) statuses.push((await guess(requestCount++, 'under-attack')).status);
    };
    await Promise.all(Array.from({ length: 50 }, worker));
    const unauthorizedCount = statuses.filter((status) => status === 401).length;
    expect(unauthorizedCount).toBeGreaterThan(0);
    expect(unauthorizedCount).toBeLessThanOrEqual(10);
    // When the database is too busy to count a guess, the guess is not checked either.
    expect(statuses.filter((status) => ![401, 429, 503].includes(status))).toEqual([]);
  });

  test('do not affect an existing session', async () => {
    expect(await (gateways[0] as GatewayWorld).admin.admin.getSession()).toMatchObject({
      admin_id: testAdministrator.adminId,
    });
  });
});
