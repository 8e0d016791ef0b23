// 200 concurrent calls on a balance for 25, over HTTP: on one gateway, and on two that
// share a PostgreSQL. For two workers of one gateway see test/cli/workers.test.ts.
import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest';
import { makeDatabase, type DatabasePlace } from '../../support/databases.ts';
import { startGateway, type GatewayWorld } from '../../support/gateway.ts';
import { startProvider, type ScriptedProvider } from '../../support/provider.ts';
import { makeUser, type Person } from '../bureaus/people.ts';
import { writeModelsFile } from '../provider-world.ts';

const isPostgres = inject('databaseSource')?.engine === 'postgres';

let provider: ScriptedProvider;
let modelsFile: Awaited<ReturnType<typeof writeModelsFile>>;
let place: DatabasePlace;
let worlds: GatewayWorld[];
beforeAll(async () => {
  provider = await startProvider();
  place = await makeDatabase();
  // Credits per million tokens, so each output token costs 5. A call has `max_tokens: 4` and therefore
  // reserves 20 credits. `plain` answers with four tokens and costs all 20; `brief` answers with one
  // and costs 5.
  const model = { rates: { input: 0, output: 5_000_000 } };
  modelsFile = await writeModelsFile(provider.modelsFile({ plain: 'ok', brief: 'ok?chunks=1' }, { model }));
  const start = () =>
    startGateway({
      withAdmin: true,
      place,
      env: { MODELS_FILE: modelsFile.path, ACME_API_KEY: 'a key for tests' },
    });
  worlds = [await start()];
  if (isPostgres) worlds.push(await start());
});
afterAll(async () => {
  for (const world of worlds ?? []) await world.close();
  await place?.remove();
  await provider?.close();
  await modelsFile?.remove();
});

async function makeCustomer(credits: number): Promise<Person> {
  const [{ admin, sql }] = worlds as [GatewayWorld];
  const user = await makeUser(sql, 'local');
  await admin.credits.grantCredits({ user_id: user.userId, credits, reason: 'for a test' });
  return user;
}

/** Makes a call that reserves 20 credits; resolves with its status. */
async function call(
  { url }: GatewayWorld,
  userToken: string,
  { model = 'acme/plain' }: { model?: string } = {},
): Promise<number> {
  const answer = await fetch(`${url}/v1/ai/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${userToken}`, 'content-type': 'application/json' },
    body: JSON.stringify({
      model,
      // The scripted provider counts `chunks` only in a stream.
      stream: model === 'acme/brief',
      max_tokens: 4,
      messages: [{ role: 'user', content: 'hello' }],
    }),
  });
  await answer.arrayBuffer();
  return answer.status;
}

function count(statuses: readonly number[], status: number): number {
  return statuses.filter((entry) => entry === status).length;
}

const setups: [string, () => GatewayWorld[]][] = [['one gateway', () => worlds.slice(0, 1)]];
if (isPostgres) setups.push(['two gateways', () => worlds]);

describe.each(setups)('200 parallel calls of at most 20 credits on 500, on %s,', (_name, gateways) => {
  test('succeed exactly 25 times at 20 credits each', async () => {
    const { userToken } = await makeCustomer(500);
    const gatewayWorlds = gateways();
    const statuses = await Promise.all(
      Array.from({ length: 200 }, (_, index) =>
        call(gatewayWorlds[index % gatewayWorlds.length] as GatewayWorld, userToken),
      ),
    );
    expect(count(statuses, 200)).toBe(25);
    // A gateway answers 503 `credits_busy` instead of 402 while the other one has set credits aside and
    // does not give them back within a second.
    const refusals = gatewayWorlds.length > 1 ? [402, 503] : [402];
    expect(refusals.reduce((sum, status) => sum + count(statuses, status), 0)).toBe(175);
    expect(await (worlds[0] as GatewayWorld).as(userToken).credits.getBalance()).toMatchObject({
      posted: 0,
      held: 0,
      available: 0,
    });
  });

  test('leave unspent credits to later calls', async () => {
    const { userToken } = await makeCustomer(500);
    const gatewayWorlds = gateways();
    const briefCall = { model: 'acme/brief' };
    const statuses = await Promise.all(
      Array.from({ length: 200 }, (_, index) =>
        call(gatewayWorlds[index % gatewayWorlds.length] as GatewayWorld, userToken, briefCall),
      ),
    );
    let successes = count(statuses, 200);
    expect(successes).toBeGreaterThanOrEqual(25);
    const lastGateway = gatewayWorlds.at(-1) as GatewayWorld;
    while (500 - successes * 5 >= 20) {
      expect(await call(lastGateway, userToken, briefCall)).toBe(200);
      successes += 1;
    }
    expect(await call(lastGateway, userToken, briefCall)).toBe(402);
    expect(await lastGateway.as(userToken).credits.getBalance()).toMatchObject({ available: 15, held: 0 });
  });
});
