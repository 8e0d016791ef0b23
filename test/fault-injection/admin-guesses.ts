// Guesses an administrator's password. First measures, without attempt limits, whether the duration
// of a refusal reveals that an ID exists. Then sends 1,000 wrong passwords, 50 at a time, to two
// gateways on one PostgreSQL. Exits 1 unless the medians differ by at most 3 ms and at most 10
// guesses are checked.
//
//  node test/fault-injection/admin-guesses.ts [TRIES_PER_ID=400] [GUESSES=1000]
import { randomBytes } from 'node:crypto';
import { createGateway, type Gateway, type CreateGatewayOptions } from '../../src/gateway/compose.ts';
import { readGatewayConfig } from '../../src/gateway/config.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import { connect } from '../../src/kernel/data/database.ts';
import { createRedactor } from '../../src/kernel/secrets/secret.ts';
import { startServer } from '../support/postgres-server.ts';
import { databaseUrl, silentLog } from '../support/template.ts';

const triesPerId = Number(process.argv[2] ?? 400);
const attempts = Number(process.argv[3] ?? 1000);
const administrator = { ADMIN_ID: 'known', ADMIN_PASSWORD: 'a password that nobody guesses' };
const masterKey = randomBytes(32).toString('base64');

async function start(
  url: string,
  overrides: Partial<CreateGatewayOptions> = {},
): Promise<{ gateway: Gateway; url: string }> {
  const env = {
    ...administrator,
    HOST: '127.0.0.1',
    PORT: '0',
    DATABASE_URL: url,
    TOWNHALL_MASTER_KEY: masterKey,
    LOG_LEVEL: 'silent',
    RATE_LIMIT_GUEST: 'off',
    RATE_LIMIT_LOGIN: 'off',
  };
  const redactor = createRedactor();
  const gateway = await createGateway(readGatewayConfig({}, env), {
    env,
    log: silentLog,
    redactor,
    clock: systemClock,
    ...overrides,
  });
  return { gateway, url: (await gateway.listen()).url };
}

async function guess(url: string, adminId: string, attempt: number): Promise<{ status: number; ms: number }> {
  const startedMs = performance.now();
  const answer = await fetch(`${url}/v1/admin/login`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ admin_id: adminId, password: `a wrong password ${attempt}` }),
  });
  await answer.text();
  return { status: answer.status, ms: performance.now() - startedMs };
}

const median = (values: number[]): number =>
  values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? Number.NaN;

/** The difference of the medians for a known and an unknown ID, in milliseconds. */
async function compareDurations(databaseUrl: string): Promise<number> {
  const unlimitedTries = { freeTries: 1e9, unknownNetworkTries: 1e9, addressTries: 1e9 };
  const { gateway, url } = await start(databaseUrl, { attemptLimits: unlimitedTries });
  const times: Record<'known' | 'unknown', number[]> = { known: [], unknown: [] };
  for (let count = 0; count < triesPerId; count += 1) {
    const order = count % 2 === 0 ? (['known', 'unknown'] as const) : (['unknown', 'known'] as const);
    for (const adminId of order) {
      const { status, ms } = await guess(url, adminId, count);
      if (status !== 401) throw new Error(`expected 401, got ${status}`);
      times[adminId].push(ms);
    }
  }
  await gateway.close();
  const [knownMs, unknownMs] = [median(times.known), median(times.unknown)];
  console.log(
    `${triesPerId} tries each: median ${knownMs.toFixed(2)} ms for a known ID, ` +
      `${unknownMs.toFixed(2)} ms for an unknown one`,
  );
  return Math.abs(knownMs - unknownMs);
}

/** Sends wrong passwords, 50 at a time, over two gateways. Returns how many were checked. */
async function countCheckedGuesses(databaseUrl: string): Promise<number> {
  const replicas = [await start(databaseUrl), await start(databaseUrl)];
  const statuses: number[] = [];
  const startedMs = performance.now();
  let nextAttempt = 0;
  const guessOn = async (): Promise<void> => {
    while (nextAttempt < attempts) {
      const attempt = nextAttempt++;
      const { url } = replicas[attempt % replicas.length] as { url: string };
      statuses.push((await guess(url, 'under-attack', attempt)).status);
    }
  };
  await Promise.all(Array.from({ length: 50 }, guessOn));
  const seconds = (performance.now() - startedMs) / 1000;
  for (const { gateway } of replicas) await gateway.close();
  const counts = Object.fromEntries(
    [...Map.groupBy(statuses, (status) => status)].map(([status, all]) => [status, all.length]),
  );
  const checkedCount = counts[401] ?? 0;
  console.log(
    `${attempts} wrong passwords, 50 at a time, over two gateways in ${seconds.toFixed(1)} s: ` +
      `${checkedCount} checked, answers ${JSON.stringify(counts)}`,
  );
  return checkedCount;
}

/** A database of its own, since the tries above use up the budget of this address. */
async function createDatabase(serverUrl: string): Promise<string> {
  const administration = await connect({ url: serverUrl }, { log: silentLog });
  await administration.sql.unsafe('create database guesses');
  await administration.close();
  return databaseUrl(serverUrl, 'guesses');
}

let isBroken = true;
const server = await startServer();
try {
  const differenceMs = await compareDurations(server.url);
  const checkedCount = await countCheckedGuesses(await createDatabase(server.url));
  isBroken = !(differenceMs <= 3) || checkedCount > 10 || checkedCount === 0;
} finally {
  await server.stop();
}
console.log(isBroken ? 'failed' : 'passed');
process.exit(isBroken ? 1 : 0);
