// 200 logins a second with wrong passwords beside ordinary traffic. The gateway runs in its own
// process with default limits, except those of users, whose traffic is measured. Exits 1 when the
// 99th percentile of the traffic more than doubles, or when more password checks ran than the
// concurrency limit allows.
//
//   node test/fault-injection/login-flood.ts [SECONDS=15] [LOGINS_PER_SECOND=200]
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { townhall } from '../cli/townhall.ts';

const seconds = Number(process.argv[2] ?? 15);
const loginsPerSecond = Number(process.argv[3] ?? 200);
const readers = 4;

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
let isBroken = false;
try {
  await run.waitFor(/Ctrl-C ends it/);
  const url = /gateway\s+(http\S+)/.exec(run.screen())?.[1] ?? '';
  const token = (await readFile(join(folder, 'data', 'local.token'), 'utf8')).trim();

  async function text(): Promise<number> {
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

  async function traffic(): Promise<number[]> {
    const times: number[] = [];
    const endsMs = performance.now() + seconds * 1000;
    await Promise.all(
      Array.from({ length: readers }, async () => {
        while (performance.now() < endsMs) {
          times.push(await text());
          // Leave the machine spare capacity: latency under saturation measures nothing.
          await new Promise((resolve) => setTimeout(resolve, 40));
        }
      }),
    );
    return times.toSorted((a, b) => a - b);
  }

  const statuses = new Map<number, number>();
  function flood(): () => void {
    const timer = setInterval(() => {
      void fetch(`${url}/v1/admin/login`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ admin_id: 'admin', password: 'a wrong password, again' }),
      }).then(
        async (answer) => {
          await answer.text();
          statuses.set(answer.status, (statuses.get(answer.status) ?? 0) + 1);
        },
        () => statuses.set(0, (statuses.get(0) ?? 0) + 1),
      );
    }, 1000 / loginsPerSecond);
    return () => clearInterval(timer);
  }

  const percentile = (times: number[], share: number): number =>
    times[Math.min(Math.floor(times.length * share), times.length - 1)] ?? Number.NaN;
  await traffic();
  const quietTimes = await traffic();
  const stop = flood();
  const floodTimes = await traffic();
  stop();
  const [quietP99, floodP99] = [percentile(quietTimes, 0.99), percentile(floodTimes, 0.99)];
  console.log(
    `alone: ${quietTimes.length} answers, p50 ${percentile(quietTimes, 0.5).toFixed(1)} ms, p99 ${quietP99.toFixed(1)} ms`,
  );
  console.log(
    `beside ${loginsPerSecond} logins/s: ${floodTimes.length} answers, p50 ${percentile(floodTimes, 0.5).toFixed(1)} ms, p99 ${floodP99.toFixed(1)} ms (${(floodP99 / quietP99).toFixed(2)} times)`,
  );
  console.log(`logins: ${JSON.stringify(Object.fromEntries(statuses))}`);
  const checkedCount = statuses.get(401) ?? 0;
  isBroken = floodP99 > 2 * quietP99 || checkedCount > 10 || (statuses.get(429) ?? 0) === 0;
} finally {
  run.process.kill('SIGTERM');
  await run.ended;
  await rm(folder, { recursive: true, force: true });
}
console.log(isBroken ? 'broken' : 'held');
process.exit(isBroken ? 1 : 0);
