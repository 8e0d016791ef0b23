// Measures a gateway with many streams and with misbehaving clients. The gateway runs in its own
// process on the embedded database; the provider and the clients run in this process. Exits 1 when
// one of three checks fails:
// - Streams that are read completely lose no event and keep their order, in less than 400 MB of
//   memory.
// - Clients that read nothing of a fast answer are disconnected, the requests to the provider are
//   aborted, and memory grows by less than 64 MB in all.
// - When a client disconnects, the socket to the provider is closed within 50 ms, every time.
//
//  node test/fault-injection/streams.ts [STREAMS=500] [SECONDS=20] [ABORTS=1000]
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { Agent, request, type ClientRequest, type IncomingMessage } from 'node:http';
import { connect, type Socket } from 'node:net';
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

const inMegabytes = (bytes: number): string => (bytes / megabyte).toFixed(1);

async function readResidentBytes(): Promise<number> {
  const status = await readFile(`/proc/${gateway.pid}/status`, 'utf8');
  return Number(/VmRSS:\s+(\d+)/.exec(status)?.[1] ?? Number.NaN) * 1024;
}

const bodyOf = (model: string): string =>
  JSON.stringify({ model: `acme/${model}`, stream: true, messages: [{ role: 'user', content: 'hi' }] });
const headers = { 'content-type': 'application/json', authorization: `Bearer ${userToken}` };

function requestStream(model: string): { call: ClientRequest; answer: Promise<IncomingMessage> } {
  const call = request({ hostname, port, agent, path: '/v1/ai/chat/completions', method: 'POST', headers });
  const response = new Promise<IncomingMessage>((resolve, reject) =>
    call.on('response', resolve).on('error', reject),
  );
  response.catch(() => {});
  call.end(bodyOf(model));
  return { call, answer: response };
}

const failures: string[] = [];
const check = (isKept: boolean, promise: string): void => {
  console.log(`${isKept ? 'ok    ' : 'BROKEN'} ${promise}`);
  if (!isKept) failures.push(promise);
};
const percentile = (sortedTimes: number[], share: number): number =>
  sortedTimes[Math.min(Math.floor(sortedTimes.length * share), sortedTimes.length - 1)] ?? Number.NaN;

/**
 * Reads one stream to its end; returns the number of its tokens, whether they were in order, and
 * whether the stream was complete.
 */
async function readAll(): Promise<{ tokens: number; isOrdered: boolean; isWhole: boolean }> {
  const response = await requestStream('steady').answer;
  let [tokens, isOrdered, unfinishedText] = [0, true, ''];
  for await (const piece of response as AsyncIterable<Buffer>) {
    unfinishedText += piece.toString('utf8');
    const lines = unfinishedText.split('\n\n');
    unfinishedText = lines.pop() ?? '';
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

/** Follows the resident memory of the gateway until `stop`, which returns the highest value. */
function watchMemory(intervalMs: number): { stop(): number } {
  let peakBytes = 0;
  const timer = setInterval(
    () => void readResidentBytes().then((bytes) => (peakBytes = Math.max(peakBytes, bytes))),
    intervalMs,
  );
  return {
    stop() {
      clearInterval(timer);
      return peakBytes;
    },
  };
}

async function checkReadStreams(): Promise<void> {
  const idleBytes = await readResidentBytes();
  const memory = watchMemory(500);
  const startedMs = performance.now();
  const results = await Promise.all(
    Array.from({ length: streams }, () =>
      readAll().catch(() => ({ tokens: 0, isOrdered: false, isWhole: false })),
    ),
  );
  const peakBytes = Math.max(idleBytes, memory.stop());
  const elapsedSeconds = ((performance.now() - startedMs) / 1000).toFixed(1);
  const expectedEvents = seconds * eventsPerSecond;
  const completeStreams = results.filter(
    ({ tokens, isOrdered, isWhole }) => tokens === expectedEvents && isOrdered && isWhole,
  ).length;
  check(
    completeStreams === streams,
    `${streams} streams of ${eventsPerSecond} events/s: ${completeStreams} whole, in ${elapsedSeconds} s`,
  );
  check(
    peakBytes < 400 * megabyte,
    `resident memory ${inMegabytes(idleBytes)} MB idle, ${inMegabytes(peakBytes)} MB at most`,
  );
}

/** A connection that requests a fast answer and reads nothing of it. */
async function openStalledReader(): Promise<Socket> {
  const socket = connect(Number(port), hostname);
  socket.on('error', () => {});
  await once(socket, 'connect');
  const body = bodyOf('flood');
  const head = [
    'POST /v1/ai/chat/completions HTTP/1.1',
    `host: ${hostname}:${port}`,
    `authorization: ${headers.authorization}`,
    'content-type: application/json',
    `content-length: ${Buffer.byteLength(body)}`,
  ];
  socket.write(`${head.join('\r\n')}\r\n\r\n${body}`);
  socket.pause();
  return socket;
}

async function checkStalledReaders(): Promise<void> {
  const bytesBefore = await readResidentBytes();
  provider.reset();
  const sockets = await Promise.all(Array.from({ length: stalledReaders }, openStalledReader));
  const memory = watchMemory(100);
  const countAborted = () => provider.calls.filter(({ abortedAt }) => abortedAt !== undefined).length;
  await provider.until(() => countAborted() === stalledReaders, 40_000).catch(() => {});
  check(
    countAborted() === stalledReaders,
    `${stalledReaders} readers that read nothing of 150 MB: ${countAborted()} provider requests aborted`,
  );
  const addedBytes = Math.max(bytesBefore, memory.stop()) - bytesBefore;
  for (const socket of sockets) socket.destroy();
  check(addedBytes < 64 * megabyte, `they cost ${inMegabytes(addedBytes)} MB in all`);
}

async function checkDisconnections(): Promise<void> {
  const abortTimesMs: number[] = [];
  for (let round = 0; round < aborts; round += 1) {
    provider.reset();
    const { call, answer } = requestStream('slow');
    const response = await answer;
    response.on('error', () => {});
    await once(response, 'data');
    const abortedMs = performance.now();
    call.destroy();
    await provider.until((calls) => calls[0]?.abortedAt !== undefined);
    abortTimesMs.push((provider.lastCall().abortedAt ?? Number.POSITIVE_INFINITY) - abortedMs);
  }
  abortTimesMs.sort((a, b) => a - b);
  const [median, p99, maximum] = [0.5, 0.99, 1].map((share) => percentile(abortTimesMs, share).toFixed(1));
  const lateCount = abortTimesMs.filter((ms) => ms > 50).length;
  check(
    lateCount === 0,
    `${aborts} clients disconnected: provider's socket closed after ${median} ms (p50), ${p99} ms (p99), ` +
      `${maximum} ms (maximum); ${lateCount} later than 50 ms`,
  );
}

try {
  // Twenty calls to warm up, so that the code is compiled before the measurement.
  for (let round = 0; round < 20; round += 1) (await requestStream('slow').answer).destroy();
  await checkReadStreams();
  await checkStalledReaders();
  await checkDisconnections();
} finally {
  // A gateway that crashed has closed already.
  if (gateway.exitCode === null && gateway.signalCode === null) {
    gateway.kill('SIGTERM');
    await once(gateway, 'close');
  }
  agent.destroy();
  await provider.close();
  await rm(folder, { recursive: true, force: true });
}
console.log(failures.length === 0 ? 'passed' : 'failed');
process.exit(failures.length === 0 ? 0 : 1);
