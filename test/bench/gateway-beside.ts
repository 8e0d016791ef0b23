// Compares the gateway with Portkey's open gateway 1.15.2: one client sends chat completions through both to
// one scripted provider, in alternating rounds.
//
//   node test/bench/gateway-beside.ts [--peer FOLDER] [--rounds 3] [--postgres] [--free]
//
// The peer is `npm install @portkey-ai/gateway@1.15.2` in a folder of its own, whose package.json overrides
// "@hono/node-server" with 1.13.5 and "hono" with 4.9.7, since it cannot stream with newer versions.
// TOWNHALL_BENCH_PEER_GATEWAY can name the folder instead of --peer. Without the peer its column stays empty.
// Our gateway runs with its defaults: the token, validation, the hold and the settlement of a paid call in a
// durable database, its usage record. The peer stores nothing.
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { Agent, createServer, request, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { loadavg, tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface, type Interface } from 'node:readline';
import { parseCommandLine } from '../../scripts/command-line.ts';
import { freePort } from '../support/free-port.ts';
import { startServer } from '../support/postgres-server.ts';
import { until } from '../support/until.ts';
import { gatewaySettings } from './gateway-settings.ts';
import { monotonicMs } from './agent-runtimes.ts';
import { readResidentMb } from './calls/process-usage.ts';
import { median, quantile } from './statistics.ts';

const {
  values: options,
  positionals: [role],
} = parseCommandLine(import.meta.filename, {
  allowPositionals: true,
  options: {
    peer: { type: 'string' },
    rounds: { type: 'string', default: '3' },
    postgres: { type: 'boolean', default: false },
    free: { type: 'boolean', default: false },
  },
});

/** The number of chunks that the provider streams, by model name. */
const scripts = { whole: 0, burst: 20, drip: 50, long: 150, broken: 5 } as const;
type Script = keyof typeof scripts;
/** The pause between two chunks of every stream except `burst`. */
const gapMs = 20;

/** The beginning of the line that the provider prints when a caller has disconnected. */
const disconnectionMark = 'disconnected ';

/**
 * Starts the provider, a process of its own as in production. Its first line is its address; then
 * it prints a line for each caller that disconnected.
 */
function startProvider(): void {
  const server = createServer((incoming, response) => {
    response.on('close', () => {
      if (!response.writableFinished) console.log(`${disconnectionMark}${monotonicMs()}`);
    });
    readModel(incoming)
      .then((model) => (model === 'whole' ? sendWhole(response) : sendStream(response, model)))
      .catch(() => response.destroy());
  });
  server.listen(0, '127.0.0.1', () =>
    console.log(`http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`),
  );
}

const usage = { prompt_tokens: 10, completion_tokens: 20, total_tokens: 30 };

async function readModel(incoming: IncomingMessage): Promise<Script> {
  const pieces: Buffer[] = [];
  for await (const piece of incoming) pieces.push(piece as Buffer);
  return (JSON.parse(Buffer.concat(pieces).toString()) as { model: Script }).model;
}

function sendWhole(response: ServerResponse): void {
  const message = {
    role: 'assistant',
    content: 'An answer of an ordinary length for a short question.',
    refusal: null,
  };
  const choices = [{ index: 0, message, finish_reason: 'stop', logprobs: null }];
  const answer = { id: 'c', object: 'chat.completion', created: 1, model: 'whole', choices, usage };
  response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(answer));
}

async function sendStream(response: ServerResponse, model: Script): Promise<void> {
  const head = { id: 'c', object: 'chat.completion.chunk', created: 1, model };
  const send = (members: object) => response.write(`data: ${JSON.stringify({ ...head, ...members })}\n\n`);
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  for (let index = 0; index < scripts[model] && !response.destroyed; index += 1) {
    const delta = { content: `<${monotonicMs().toFixed(2)}>` };
    send({ choices: [{ index: 0, delta, finish_reason: null }] });
    if (model !== 'burst') await pause(gapMs);
  }
  if (model === 'broken') return void response.destroy();
  send({ choices: [{ index: 0, delta: {}, finish_reason: 'stop' }] });
  send({ choices: [], usage });
  response.end('data: [DONE]\n\n');
}

/** Where calls go: to the provider itself, or through a gateway. */
interface Route {
  name: string;
  url: string;
  headers: Record<string, string>;
  model(script: Script): string;
}

interface RunningGateway {
  route: Route;
  process: ChildProcess;
}

const agent = new Agent({ keepAlive: true, maxSockets: 64 });

function call(route: Route, script: Script): Promise<{ response: IncomingMessage; disconnect(): void }> {
  return new Promise((resolve, reject) => {
    const streamOptions = script === 'whole' ? {} : { stream: true, stream_options: { include_usage: true } };
    const body = Buffer.from(
      JSON.stringify({
        model: route.model(script),
        messages: [{ role: 'user', content: 'What does a town hall keep under its floor?' }],
        ...streamOptions,
      }),
    );
    const outgoing = request(
      route.url,
      {
        method: 'POST',
        agent,
        headers: { ...route.headers, 'content-type': 'application/json', 'content-length': body.length },
      },
      (response) => {
        if (response.statusCode !== 200)
          return reject(new Error(`${route.name} answered ${response.statusCode} to ${script}`));
        resolve({ response, disconnect: () => outgoing.destroy() });
      },
    );
    outgoing.on('error', reject);
    outgoing.end(body);
  });
}

interface Exchange {
  firstByteMs: number;
  chunkDelaysMs: number[];
  /** Whether the answer ended as a complete one, without an error event. */
  endsAsComplete: boolean;
}

async function exchange(route: Route, script: Script): Promise<Exchange> {
  const startMs = performance.now();
  const { response } = await call(route, script);
  let firstByteMs = Number.NaN;
  let text = '';
  const chunkDelaysMs: number[] = [];
  try {
    for await (const piece of response) {
      if (Number.isNaN(firstByteMs)) firstByteMs = performance.now() - startMs;
      const [arrivalMs, pieceText] = [monotonicMs(), (piece as Buffer).toString()];
      for (const [, stamp] of pieceText.matchAll(/<([\d.]+)>/g))
        chunkDelaysMs.push(arrivalMs - Number(stamp));
      text += pieceText;
    }
  } catch {
    return { firstByteMs, chunkDelaysMs, endsAsComplete: false };
  }
  return { firstByteMs, chunkDelaysMs, endsAsComplete: !text.includes('"error"') };
}

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

async function repeat<T>(count: number, work: () => Promise<T>): Promise<T[]> {
  const results: T[] = [];
  for (let index = 0; index < count; index += 1) results.push(await work());
  return results;
}

/** Measures the completed answers a second over a number of connections that are never idle. */
async function measureLoad(
  route: Route,
  script: Script,
  { connections, seconds }: { connections: number; seconds: number },
): Promise<number> {
  const startMs = performance.now();
  let answers = 0;
  await Promise.all(
    Array.from({ length: connections }, async () => {
      for (; performance.now() - startMs < seconds * 1_000; answers += 1) await exchange(route, script);
    }),
  );
  return answers / ((performance.now() - startMs) / 1_000);
}

const rows = {
  'streamed, added to the first byte, ms': 'less',
  'whole, added to the answer, ms': 'less',
  'chunk, provider writes to client reads, p50 ms': 'less',
  'chunk, p99 ms': 'less',
  'whole answers a second, 32 connections': 'more',
  'streams of 20 chunks a second, 32 connections': 'more',
  'client gone → provider told, p50 ms': 'less',
  'share of them told within a second, %': 'more',
  'broken streams that end as if whole, %': 'less',
  'memory of the process after all that, MB': 'less',
} as const;
type Row = keyof typeof rows;
type Figures = Map<Row, number[]>;

/** Starts a script of Node in the bench's folder. */
type Launch = (
  file: string,
  parameters: readonly string[],
  options?: { env?: NodeJS.ProcessEnv; isQuiet?: boolean },
) => ChildProcess;

interface Provider {
  url: string;
  /** When its callers disconnected, by the machine's monotonic clock. */
  disconnectionsMs: number[];
  route: Route;
}

async function measure(): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), 'townhall-beside-'));
  const processes: ChildProcess[] = [];
  const launch: Launch = (file, parameters, { env = {}, isQuiet = false } = {}) => {
    const child = spawn(process.execPath, [file, ...parameters], {
      stdio: ['ignore', 'pipe', isQuiet ? 'ignore' : 'inherit'],
      cwd: folder,
      env: { PATH: process.env['PATH'], HOME: folder, ...env },
    });
    processes.push(child);
    return child;
  };
  const database = options.postgres ? await startServer() : undefined;
  try {
    const provider = await launchProvider(launch);
    const gateways = [
      await launchTownhall(launch, { folder, providerUrl: provider.url, databaseUrl: database?.url }),
    ];
    const peer = options.peer ?? process.env['TOWNHALL_BENCH_PEER_GATEWAY'];
    if (peer === undefined)
      console.error(
        'NO PEER: its column stays empty. Name its folder with --peer or TOWNHALL_BENCH_PEER_GATEWAY.',
      );
    else gateways.push(await launchPortkey(launch, peer, provider.url));
    printTable(await measureInTurns(gateways, provider));
  } finally {
    agent.destroy();
    for (const child of processes) child.kill('SIGKILL');
    await database?.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}

async function launchProvider(launch: Launch): Promise<Provider> {
  const lines = linesOf(launch(import.meta.filename, ['provider']));
  const [url] = (await once(lines, 'line')) as [string];
  const disconnectionsMs: number[] = [];
  lines.on('line', (line: string) => {
    if (line.startsWith(disconnectionMark))
      disconnectionsMs.push(Number(line.slice(disconnectionMark.length)));
  });
  const route: Route = {
    name: 'the provider',
    url: `${url}/chat/completions`,
    headers: {},
    model: (script) => script,
  };
  return { url, disconnectionsMs, route };
}

function linesOf({ stdout }: ChildProcess): Interface {
  if (stdout === null) throw new Error('The process has no output.');
  return createInterface({ input: stdout });
}

async function launchTownhall(
  launch: Launch,
  {
    folder,
    providerUrl,
    databaseUrl,
  }: { folder: string; providerUrl: string; databaseUrl: string | undefined },
): Promise<RunningGateway> {
  const modelsFile = join(folder, 'models.json');
  writeFileSync(modelsFile, JSON.stringify(modelSettings(providerUrl)));
  const child = launch(join(import.meta.dirname, 'gateway-process.ts'), [], {
    env: gatewaySettings({ folder, modelsFile, databaseUrl }),
  });
  const [line] = (await once(linesOf(child), 'line')) as [string];
  const { url, token } = JSON.parse(line) as { url: string; token: string };
  const route: Route = {
    name: 'townhall',
    url: `${url}/v1/ai/chat/completions`,
    headers: { authorization: `Bearer ${token}` },
    model: (script) => `acme/${script}`,
  };
  return { route, process: child };
}

function modelSettings(providerUrl: string): object {
  const provider = {
    id: 'acme',
    kind: 'openai-compatible',
    base_url: providerUrl,
    usage: 'ask',
    output_limit_member: 'max_tokens',
  };
  const models = Object.keys(scripts).map((script) => ({
    id: `acme/${script}`,
    provider: 'acme',
    upstream_model: script,
    rates: options.free ? null : { input: 1_000, output: 1_000 },
    max_output_tokens: 1_000,
  }));
  return { providers: [provider], models };
}

async function launchPortkey(
  launch: Launch,
  installedFolder: string,
  providerUrl: string,
): Promise<RunningGateway> {
  const port = await freePort();
  const child = launch(
    join(installedFolder, 'node_modules/@portkey-ai/gateway/build/start-server.js'),
    [`--port=${port}`, '--headless'],
    { isQuiet: true },
  );
  child.stdout?.resume();
  const route: Route = {
    name: 'portkey',
    url: `http://127.0.0.1:${port}/v1/chat/completions`,
    headers: {
      authorization: 'Bearer x',
      'x-portkey-provider': 'openai',
      'x-portkey-custom-host': providerUrl,
    },
    model: (script) => script,
  };
  const isReady = () => {
    if (child.exitCode !== null) throw new Error(`The peer exited with ${child.exitCode}.`);
    return exchange(route, 'whole').then(
      () => true,
      () => false,
    );
  };
  await until(isReady, 'the peer answers', 60_000);
  return { route, process: child };
}

/** The figures of each gateway, from all rounds but the first, which only warms up. */
async function measureInTurns(gateways: readonly RunningGateway[], provider: Provider): Promise<Figures[]> {
  const figures = gateways.map((): Figures => new Map());
  for (let round = 0; round <= Number(options.rounds); round += 1) {
    for (const [index, gateway] of gateways.entries()) {
      const roundFigures = await measureGateway(gateway, provider);
      if (round > 0)
        for (const [row, figure] of roundFigures)
          figures[index]?.set(row, [...(figures[index].get(row) ?? []), figure]);
      console.error(`round ${round}, ${gateway.route.name}: load ${loadavg()[0]?.toFixed(1)}`);
    }
  }
  return figures;
}

async function measureGateway(gateway: RunningGateway, provider: Provider): Promise<Map<Row, number>> {
  const { route } = gateway;
  const load = { connections: 32, seconds: 5 };
  const figures = new Map<Row, number>();
  figures.set('streamed, added to the first byte, ms', await measureAddedMs(route, provider.route, 'burst'));
  figures.set('whole, added to the answer, ms', await measureAddedMs(route, provider.route, 'whole'));
  const chunks = (await repeat(2, () => exchange(route, 'drip'))).flatMap(
    ({ chunkDelaysMs }) => chunkDelaysMs,
  );
  figures.set('chunk, provider writes to client reads, p50 ms', median(chunks));
  figures.set('chunk, p99 ms', quantile(chunks, 0.99));
  figures.set('whole answers a second, 32 connections', await measureLoad(route, 'whole', load));
  figures.set('streams of 20 chunks a second, 32 connections', await measureLoad(route, 'burst', load));
  const delays = await repeat(20, () => measureDisconnection(route, provider));
  figures.set('client gone → provider told, p50 ms', median(delays));
  figures.set('share of them told within a second, %', percentageOf(delays, Number.isFinite));
  // An error status also tells the client that the stream is broken.
  const brokenStreams = await repeat(10, () =>
    exchange(route, 'broken').catch(() => ({ endsAsComplete: false })),
  );
  figures.set(
    'broken streams that end as if whole, %',
    percentageOf(brokenStreams, ({ endsAsComplete }) => endsAsComplete),
  );
  const { pid } = gateway.process;
  figures.set(
    'memory of the process after all that, MB',
    pid === undefined ? Number.NaN : readResidentMb(pid),
  );
  return figures;
}

function percentageOf<T>(values: readonly T[], isCounted: (value: T) => boolean): number {
  return (values.filter(isCounted).length / values.length) * 100;
}

/** The time to the first byte beyond that of the provider itself, in alternating calls. */
async function measureAddedMs(route: Route, directRoute: Route, script: Script): Promise<number> {
  const directMs: number[] = [];
  const routedMs: number[] = [];
  for (let index = 0; index < 100; index += 1) {
    directMs.push((await exchange(directRoute, script)).firstByteMs);
    routedMs.push((await exchange(route, script)).firstByteMs);
  }
  return median(routedMs) - median(directMs);
}

/** The time from the client's disconnection to the provider's; infinite when it exceeds a second. */
async function measureDisconnection(route: Route, { disconnectionsMs }: Provider): Promise<number> {
  const { response, disconnect } = await call(route, 'long');
  await once(response, 'data');
  // The disconnection below is an error of this response.
  response.on('error', () => {});
  disconnectionsMs.length = 0;
  const startMs = monotonicMs();
  disconnect();
  const waitUntil = async (endMs: number) => {
    while (disconnectionsMs.length === 0 && monotonicMs() < endMs) await pause(5);
  };
  await waitUntil(startMs + 1_000);
  const delayMs = (disconnectionsMs[0] ?? Infinity) - startMs;
  // A later disconnection of this call must not count for the next one: wait for it, or until the stream has
  // ended by itself.
  await waitUntil(startMs + scripts.long * gapMs + 1_000);
  return delayMs;
}

function printTable(figures: readonly Figures[]): void {
  const load = loadavg()
    .map((value) => value.toFixed(1))
    .join(' ');
  const price = options.free ? 'free' : 'paid';
  const database = options.postgres ? 'PostgreSQL' : 'the embedded database';
  console.log(
    `node ${process.version}, load ${load}, ${options.rounds} rounds in turns, medians; ` +
      `ours: ${price} calls on ${database}`,
  );
  printRow(['row', 'townhall', 'portkey', 'ahead']);
  for (const [row, better] of Object.entries(rows) as [Row, 'less' | 'more'][]) {
    const [ours = Number.NaN, theirs = Number.NaN] = figures.map((all) => median(all.get(row) ?? []));
    const ratio = better === 'less' ? theirs / ours : ours / theirs;
    const ratioText = Number.isFinite(ratio) ? `${ratio.toFixed(2)}×` : '–';
    printRow([row, formatFigure(ours), formatFigure(theirs), ratioText]);
  }
}

function formatFigure(figure: number): string {
  if (Number.isNaN(figure)) return '–';
  if (figure === Infinity) return 'never';
  return figure.toFixed(figure >= 100 ? 0 : 1);
}

function printRow([row = '', ours = '', theirs = '', ratio = '']: readonly string[]): void {
  console.log([row.padEnd(48), ours.padStart(10), theirs.padStart(10), ratio.padStart(7)].join(' '));
}

if (role === 'provider') startProvider();
else await measure();
