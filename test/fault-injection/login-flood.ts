// Sends 200 logins a second with wrong passwords during ordinary traffic. The gateway runs in its
// own process with the default attempt limits, but without rate limits. Exits 1 when the 99th
// percentile of the traffic's latency more than doubles, or when more than ten passwords were
// checked.
//
//   node test/fault-injection/login-flood.ts [SECONDS=15] [LOGINS_PER_SECOND=200]
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { townhall } from '../cli/townhall.ts';

const seconds = Number(process.argv[2] ?? 15);
const loginsPerSecond = Number(process.argv[3] ?? 200);
const readers = 4;

const statuses = new Map<number, number>();
const percentile = (times: number[], share: number): number =>
  times[Math.min(Math.floor(times.length * share), times.length - 1)] ?? Number.NaN;

/** One call of a user; returns its milliseconds. */
async function callModel(url: string, token: string): Promise<number> {
  const startedMs = performance.now();
  const answer = await fetch(`${url}/v1/ai/text`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${token}` },
    body: JSON.stringify({ model: 'local/echo', prompt: 'Is the hall open?' }),
  });
  await answer.text();
  if (answer.status !== 200) throw new Error(`text answered ${answer.status}`);
  return performance.now() - startedMs;
}

/** The sorted times of the calls of some users in a period. */
async function measureTraffic(url: string, token: string): Promise<number[]> {
  const times: number[] = [];
  const endMs = performance.now() + seconds * 1000;
  const readOn = async (): Promise<void> => {
    while (performance.now() < endMs) {
      times.push(await callModel(url, token));
      // Leave the machine spare capacity: latency under saturation measures nothing.
      await sleep(40);
    }
  };
  await Promise.all(Array.from({ length: readers }, readOn));
  return times.toSorted((a, b) => a - b);
}

/** Sends wrong passwords until the returned function is called. */
function startFlood(url: string): () => void {
  const count = (status: number): void => void statuses.set(status, (statuses.get(status) ?? 0) + 1);
  const tryLogin = async (): Promise<void> => {
    const answer = await fetch(`${url}/v1/admin/login`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ admin_id: 'admin', password: 'a wrong password, again' }),
    });
    await answer.text();
    count(answer.status);
  };
  const timer = setInterval(() => void tryLogin().catch(() => count(0)), 1000 / loginsPerSecond);
  return () => clearInterval(timer);
}

function describeTimes(times: number[]): string {
  const [p50, p99] = [percentile(times, 0.5), percentile(times, 0.99)];
  return `${times.length} answers, p50 ${p50.toFixed(1)} ms, p99 ${p99.toFixed(1)} ms`;
}

const folder = await mkdtemp(join(tmpdir(), 'townhall-flood-'));
const run = townhall(['start'], {
  cwd: folder,
  env: {
    PORT: '0',
    AGENT_PORT: '0',
    RATE_LIMIT_USER: 'off',
    RATE_LIMIT_GUEST: 'off',
    RATE_LIMIT_LOGIN: 'off',
  },
});
let isBroken = true;
try {
  const [, url = ''] = await run.waitFor(/gateway +(http\S+)/);
  const token = (await readFile(join(folder, 'data', 'local.token'), 'utf8')).trim();
  // The first period only warms up the servers; its times are not used.
  await measureTraffic(url, token);
  const quietTimes = await measureTraffic(url, token);
  const stopFlood = startFlood(url);
  const floodTimes = await measureTraffic(url, token);
  stopFlood();
  const ratio = percentile(floodTimes, 0.99) / percentile(quietTimes, 0.99);
  console.log(`alone: ${describeTimes(quietTimes)}`);
  console.log(
    `beside ${loginsPerSecond} logins/s: ${describeTimes(floodTimes)} (${ratio.toFixed(2)} times the p99)`,
  );
  console.log(`logins: ${JSON.stringify(Object.fromEntries(statuses))}`);
  const checkedCount = statuses.get(401) ?? 0;
  isBroken = !(ratio <= 2) || checkedCount > 10 || (statuses.get(429) ?? 0) === 0;
} finally {
  run.process.kill('SIGTERM');
  await run.ended;
  await rm(folder, { recursive: true, force: true });
}
console.log(isBroken ? 'failed' : 'passed');
process.exit(isBroken ? 1 : 0);
