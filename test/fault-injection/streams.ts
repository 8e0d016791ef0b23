// Measures a gateway with many streams and with misbehaving clients. The gateway runs in its own
// process on the embedded database; the provider and the clients run in this one. Three runs, each
// with limits (exit 1 when one is exceeded): streams that are all read: no event lost or out of
// order, memory bounded; readers that read nothing of a fast answer: they are dropped, memory grows
// by less than 64 MB in all, and the provider's request is aborted; clients that disconnect: the
// provider's socket is closed within 50 ms each time.
//
//  node test/fault-injection/streams.ts [STREAMS=500] [SECONDS=20] [ABORTS=1000]
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { Agent, request, type IncomingMessage } from 'node:http';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { startProvider } from '../support/provider.ts';

const [streams = 500, seconds = 20, aborts = 1_000] = process.argv.slice(2).map(Number);
const eventsPerSecond = 20;
const stalledReaders = 20;
const megabyte = 1024 * 1024;

const folder = await mkdtemp(join(tmpdir(), 'townhall-streams-'));
const provider = await startProvider();
const modelsFile = join(folder, 'models.json');
await writeFile(
  modelsFile,
  provider.modelsFile({
    steady: `ok?chunks=${seconds * eventsPerSecond}&gap=${1000 / eventsPerSecond}`,
    flood: 'ok?chunks=700000',
    slow: 'ok?chunks=10000&gap=20',
  }),
);
const gateway = spawn(process.execPath, [join(import.meta.dirname, '../support/gateway-process.ts')], {
  env: {
    PATH: process.env['PATH'] ?? '',
    HOST: '127.0.0.1',
    PORT: '0',
    DATABASE_PATH: join(folder, 'townhall.db'),
    LOG_LEVEL: 'error',
    MODELS_FILE: modelsFile,
    ACME_API_KEY: 'key-of-the-script',
    NODE_OPTIONS: process.env['NODE_OPTIONS'] ?? '',
    RATE_LIMIT_USER: 'off',
    RATE_LIMIT_GUEST: 'off',
    TIMEOUT_STALLED_MS: '5000',
  },
  stdio: ['ignore', 'pipe', 'inherit'],
});
const [firstLine] = (await once(gateway.stdout, 'data')) as [Buffer];
const { url, userToken } = JSON.parse(firstLine.toString('utf8')) as { url: string; userToken: string };
const { hostname, port } = new URL(url);
const agent = new Agent({ keepAlive: true, maxSockets: Number.POSITIVE_INFINITY });

async function residentBytes(): Promise<number> {
  const status = await readFile(`/proc/${gateway.pid}/status`, 'utf8');
  return Number(/VmRSS:\s+(\d+)/.exec(status)?.[1] ?? Number.NaN) * 1024;
}

const bodyOf = (model: string): string =>
  JSON.stringify({ model: `acme/${model}`, stream: true, messages: [{ role: 'user', content: 'hi' }] });
const headers = { 'content-type': 'application/json', authorization: `Bearer ${userToken}` };

function ask(model: string): { call: ReturnType<typeof request>; answered: Promise<IncomingMessage> } {
  const call = request({ hostname, port, agent, path: '/v1/ai/chat/completions', method: 'POST', headers });
  const response = new Promise<IncomingMessage>((resolve, reject) =>
    call.on('response', resolve).on('error', reject),
  );
  response.catch(() => {});
  call.end(bodyOf(model));
  return { call, answered: response };
}

const failures: string[] = [];
const hold = (isHeld: boolean, promise: string): void => {
  console.log(`${isHeld ? 'held  ' : 'BROKEN'}  ${promise}`);
  if (!isHeld) failures.push(promise);
};
const at = (sorted: number[], share: number): number =>
  sorted[Math.min(Math.floor(sorted.length * share), sorted.length - 1)] ?? Number.NaN;

/**
 * Reads one stream to its end; returns the number of its tokens, their order and whether the end
 * was clean.
 */
async function readAll(): Promise<{ tokens: number; isOrdered: boolean; isWhole: boolean }> {
  const response = await ask('steady').answered;
  let [tokens, isOrdered, rest] = [0, true, ''];
  for await (const piece of response as AsyncIterable<Buffer>) {
    rest += piece.toString('utf8');
    const lines = rest.split('\n\n');
    rest = lines.pop() ?? '';
    for (const line of lines) {
      const token = /"content":"tok(\d+) "/.exec(line);
      if (token === null) continue;
      if (Number(token[1]) !== tokens) isOrdered = false;
      tokens += 1;
    }
    if (lines.includes('data: [DONE]')) return { tokens, isOrdered, isWhole: true };
  }
  return { tokens, isOrdered, isWhole: false };
}

try {
  // One call of each kind first, to compile its code before the measurement.
  for (let round = 0; round < 20; round += 1) (await ask('slow').answered).destroy();

  const idle = await residentBytes();
  let peak = idle;
  const watch = setInterval(() => void residentBytes().then((bytes) => (peak = Math.max(peak, bytes))), 500);
  const startedMs = performance.now();
  const read = await Promise.all(
    Array.from({ length: streams }, () =>
      readAll().catch(() => ({ tokens: 0, isOrdered: false, isWhole: false })),
    ),
  );
  clearInterval(watch);
  const expectedEvents = seconds * eventsPerSecond;
  const good = read.filter(
    ({ tokens, isOrdered, isWhole }) => tokens === expectedEvents && isOrdered && isWhole,
  ).length;
  hold(
    good === streams,
    `${streams} streams of ${eventsPerSecond} events/s: ${good} whole and in order, in ${((performance.now() - startedMs) / 1000).toFixed(1)} s`,
  );
  hold(
    peak < 400 * megabyte,
    `resident memory ${(idle / megabyte).toFixed(0)} MB idle, ${(peak / megabyte).toFixed(0)} MB at most`,
  );

  const before = await residentBytes();
  provider.reset();
  const sockets = await Promise.all(
    Array.from({ length: stalledReaders }, async () => {
      const socket = connect(Number(port), hostname);
      socket.on('error', () => {});
      await once(socket, 'connect');
      const body = bodyOf('flood');
      socket.write(
        `POST /v1/ai/chat/completions HTTP/1.1\r\nhost: ${hostname}:${port}\r\nauthorization: ${headers.authorization}\r\ncontent-type: application/json\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
      );
      socket.pause();
      return socket;
    }),
  );
  let highest = before;
  const watching = setInterval(
    () => void residentBytes().then((bytes) => (highest = Math.max(highest, bytes))),
    100,
  );
  await provider
    .until(
      (calls) => calls.length === stalledReaders && calls.every(({ abortedAt }) => abortedAt !== undefined),
      40_000,
    )
    .then(
      () =>
        hold(
          true,
          `${stalledReaders} readers that read nothing of 150 MB: each dropped, the provider let go`,
        ),
      () =>
        hold(
          false,
          `${stalledReaders} readers that read nothing of 150 MB: ${provider.calls.filter(({ abortedAt }) => abortedAt !== undefined).length} dropped`,
        ),
    );
  clearInterval(watching);
  for (const socket of sockets) socket.destroy();
  hold(highest - before < 64 * megabyte, `they cost ${((highest - before) / megabyte).toFixed(1)} MB in all`);

  const lives: number[] = [];
  for (let round = 0; round < aborts; round += 1) {
    provider.reset();
    const { call, answered: answer } = ask('slow');
    const response = await answer;
    response.on('error', () => {});
    await once(response, 'data');
    const leftMs = performance.now();
    call.destroy();
    await provider.until((calls) => calls[0]?.abortedAt !== undefined);
    lives.push((provider.lastCall().abortedAt ?? Number.POSITIVE_INFINITY) - leftMs);
  }
  lives.sort((a, b) => a - b);
  const lateCount = lives.filter((ms) => ms > 50).length;
  hold(
    lateCount === 0,
    `${aborts} clients gone: the provider's socket closed after ${at(lives, 0.5).toFixed(1)} ms (median), ${at(lives, 0.99).toFixed(1)} (p99), ${(lives.at(-1) ?? 0).toFixed(1)} (most); ${lateCount} later than 50 ms`,
  );
} finally {
  gateway.kill('SIGTERM');
  await once(gateway, 'close');
  agent.destroy();
  await provider.close();
  await rm(folder, { recursive: true, force: true });
}
console.log(failures.length === 0 ? 'held' : 'broken');
process.exit(failures.length === 0 ? 0 : 1);
