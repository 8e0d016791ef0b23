// Runs one scenario with a database of its own, on the run's PostgreSQL server.
import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { connect } from '../../../src/kernel/data/database.ts';
import { databaseUrl, silentLog } from '../../support/template.ts';
import { chat, startMoneyWorld, type CompleteAnswer, type Books, type MoneyWorld } from '../money-world.ts';

export interface ScenarioContext {
  world: MoneyWorld;
  databaseUrl: string;
  random: () => number;
}

export type Scenario = (context: ScenarioContext) => Promise<void>;

/** Runs the scenario in a new database of the server. Returns the guarantees that were not kept. */
export async function runScenario(
  serverUrl: string,
  scenario: Scenario,
  random: () => number,
): Promise<readonly string[]> {
  const name = `money_${randomBytes(6).toString('hex')}`;
  const server = await connect({ url: serverUrl, limits: { maxConnections: 1 } }, { log: silentLog });
  try {
    await server.sql.unsafe(`create database ${name}`);
  } finally {
    await server.close();
  }
  const url = databaseUrl(serverUrl, name);
  const world = await startMoneyWorld({ url });
  try {
    await scenario({ world, databaseUrl: url, random });
  } catch (error) {
    world.check(false, `the run itself: ${error instanceof Error ? error.stack : String(error)}`);
  } finally {
    await world.close();
  }
  return world.failures;
}

/** Lets several clients of one user chat until the signal; returns their complete answers. */
export async function chatUntil(
  end: AbortSignal,
  { urls, token, clients }: { urls: readonly string[]; token: string; clients: number },
): Promise<{ acknowledged: CompleteAnswer[]; refusals: number }> {
  const acknowledged: CompleteAnswer[] = [];
  let refusals = 0;
  const client = async (_: unknown, index: number): Promise<void> => {
    const url = urls[index % urls.length] as string;
    for (let call = index; !end.aborted; call += 1) {
      const answer = await chat(url, token, { model: 'acme/fast-5', stream: call % 2 === 0 }).catch(
        () => null,
      );
      if (answer !== null) acknowledged.push(answer);
      else {
        refusals += 1;
        await sleep(50);
      }
    }
  };
  await Promise.all(Array.from({ length: clients }, client));
  return { acknowledged, refusals };
}

/** Checks that each complete answer is recorded once, at the price of its usage. */
export function checkAcknowledged(
  world: MoneyWorld,
  acknowledged: readonly CompleteAnswer[],
  { byRequest }: Books,
): void {
  const wrongCalls = acknowledged.filter(({ requestId, inputTokens, outputTokens }) => {
    const charges = byRequest.get(requestId) ?? [];
    return charges.length !== 1 || charges[0] !== BigInt(inputTokens + outputTokens);
  });
  world.check(
    acknowledged.length > 0 && wrongCalls.length === 0,
    `${acknowledged.length} complete answers, ${wrongCalls.length} of them not charged once by their usage`,
  );
}
