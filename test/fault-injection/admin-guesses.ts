// Guesses an administrator's password. First, without attempt limits, whether the duration of a
// refusal distinguishes a known ID from an unknown one; then 1,000 wrong passwords, 50 at a time,
// over two gateways on one PostgreSQL. Exits 1 unless the medians differ by at most 3 ms and at
// most 10 guesses are checked in the first minute.
//
//  node test/fault-injection/admin-guesses.ts [TRIES_PER_ID=400] [GUESSES=1000]
import { randomBytes } from 'node:crypto';
import { createGateway, type Gateway, type CreateGatewayOptions } from '../../src/gateway/compose.ts';
import { readGatewayConfig } from '../../src/gateway/config.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import { connect } from '../../src/kernel/data/database.ts';
import { createLog } from '../../src/kernel/log.ts';
import { createRedactor } from '../../src/kernel/secrets/secret.ts';
import { databaseUrl } from '../support/template.ts';
import { startServer } from '../support/postgres-server.ts';

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
  const log = createLog({ level: 'silent', redactor });
  const gateway = await createGateway(readGatewayConfig({}, env), {
    env,
    log,
    redactor,
    clock: systemClock,
    ...overrides,
  });
  return { gateway, url: (await gateway.listen()).url };
}

async function guess(url: string, adminId: string, network: number): Promise<{ status: number; ms: number }> {
  const startedMs = performance.now();
  const answer = await fetch(`${url}/v1/admin/login`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ admin_id: adminId, password: `a wrong password ${network}` }),
  });
  await answer.text();
  return { status: answer.status, ms: performance.now() - startedMs };
}

const median = (values: number[]): number =>
  values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? Number.NaN;
let isBroken = false;
const server = await startServer();
try {
  const liftedLimits = { freeTries: 1e9, unknownNetworkTries: 1e9, addressTries: 1e9 };
  const timedServer = await start(server.url, { attemptLimits: liftedLimits });
  const times: Record<'known' | 'unknown', number[]> = { known: [], unknown: [] };
  for (let n = 0; n < triesPerId; n += 1) {
    for (const adminId of n % 2 === 0 ? (['known', 'unknown'] as const) : (['unknown', 'known'] as const)) {
      const { status, ms } = await guess(timedServer.url, adminId, n);
      if (status !== 401) throw new Error(`expected 401, got ${status}`);
      times[adminId].push(ms);
    }
  }
  await timedServer.gateway.close();
  const apartMs = Math.abs(median(times.known) - median(times.unknown));
  console.log(
    `${triesPerId} tries each: median ${median(times.known).toFixed(2)} ms for a known ID, ${median(times.unknown).toFixed(2)} ms for an unknown one, ${apartMs.toFixed(2)} ms apart`,
  );
  isBroken ||= apartMs > 3;

  // A database of its own: the tries above are counted, and would use up the budget of this address.
  const administration = await connect(
    { url: server.url },
    { log: createLog({ level: 'silent', redactor: createRedactor() }) },
  );
  await administration.sql.unsafe('create database guesses');
  await administration.close();
  const freshDatabaseUrl = databaseUrl(server.url, 'guesses');
  const replicas = [await start(freshDatabaseUrl), await start(freshDatabaseUrl)];
  let sentCount = 0;
  const statuses: number[] = [];
  const startedMs = performance.now();
  await Promise.all(
    Array.from({ length: 50 }, async () => {
      while (sentCount < attempts) {
        const networkIndex = sentCount++;
        statuses.push(
          (await guess((replicas[networkIndex % 2] as { url: string }).url, 'under-attack', networkIndex))
            .status,
        );
      }
    }),
  );
  const seconds = (performance.now() - startedMs) / 1000;
  const counts = Object.fromEntries(
    [...Map.groupBy(statuses, (status) => status)].map(([status, all]) => [status, all.length]),
  );
  const checkedCount = counts[401] ?? 0;
  console.log(
    `${attempts} wrong passwords, 50 at a time, over two gateways in ${seconds.toFixed(1)} s: ${checkedCount} looked at, answers ${JSON.stringify(counts)}`,
  );
  isBroken ||= checkedCount > 10 || checkedCount === 0;
  for (const { gateway } of replicas) await gateway.close();
} finally {
  await server.stop();
}
console.log(isBroken ? 'broken' : 'held');
process.exit(isBroken ? 1 : 0);
