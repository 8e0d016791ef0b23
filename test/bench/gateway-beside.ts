// The gateway beside Portkey's open gateway 1.15.2: chat completions through both to
// one scripted provider, in turns A B A B, by one client.
//
//   node test/bench/gateway-beside.ts [--peer FOLDER] [--rounds 3] [--postgres] [--free]
//
// The peer is `npm install @portkey-ai/gateway@1.15.2` in a folder of its own, whose package.json
// overrides "@hono/node-server" with 1.13.5 and "hono" with 4.9.7: without that it cannot stream.
// TOWNHALL_BENCH_PEER_GATEWAY names the folder too. Without it the peer's column stays empty. On
// our side everything is on as it is by default: the token, validation, the hold and the
// settlement of a paid call in a durable database, its usage record. The peer keeps nothing.
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { Agent, createServer, request, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { loadavg, tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { parseArgs } from 'node:util';
import { freePort } from '../support/free-port.ts';
import { startServer } from '../support/postgres-server.ts';
import { monotonicMs } from './agent-runtimes.ts';

const {
  values: options,
  positionals: [role],
} = parseArgs({
  allowPositionals: true,
  options: {
    peer: { type: 'string' },
    rounds: { type: 'string', default: '3' },
    postgres: { type: 'boolean', default: false },
    free: { type: 'boolean', default: false },
    help: { type: 'boolean', short: 'h' },
  },
});

// What the provider streams, by model name.
const scripts = { whole: 0, burst: 20, drip: 50, long: 150, broken: 5 } as const;
type Script = keyof typeof scripts;
const gapMs = 20;

/**
 * Starts the provider, a process of its own as in production. Its first line is its address; then
 * it prints a line for each caller that disconnected.
 */
function provide(): void {
  const server = createServer((incoming, answer) => {
    void (async () => {
      const pieces: Buffer[] = [];
      for await (const piece of incoming) pieces.push(piece as Buffer);
      const { model } = JSON.parse(Buffer.concat(pieces).toString()) as { model: Script };
      const usage = { prompt_tokens: 10, completion_tokens: 20, total_tokens: 30 };
      if (model === 'whole') {
        const choices = [
          {
            index: 0,
            message: {
              role: 'assistant',
              content: 'An answer of an ordinary length for a short question.',
              refusal: null,
            },
            finish_reason: 'stop',
            logprobs: null,
          },
        ];
        return void answer
          .writeHead(200, { 'content-type': 'application/json' })
          .end(JSON.stringify({ id: 'c', object: 'chat.completion', created: 1, model, choices, usage }));
      }
      answer.on('close', () => !answer.writableFinished && console.log(`left ${monotonicMs()}`));
      answer.writeHead(200, { 'content-type': 'text/event-stream' });
      const say = (members: object) =>
        answer.write(
          `data: ${JSON.stringify({ id: 'c', object: 'chat.completion.chunk', created: 1, model, ...members })}\n\n`,
        );
      for (let index = 0; index < scripts[model] && !answer.destroyed; index += 1) {
        say({
          choices: [{ index: 0, delta: { content: `<${monotonicMs().toFixed(2)}>` }, finish_reason: null }],
        });
        if (model !== 'burst') await new Promise((resolve) => setTimeout(resolve, gapMs));
      }
      if (model === 'broken') return void answer.destroy();
      say({ choices: [{ index: 0, delta: {}, finish_reason: 'stop' }] });
      say({ choices: [], usage });
      answer.end('data: [DONE]\n\n');
    })().catch(() => answer.destroy());
  });
  server.listen(0, '127.0.0.1', () =>
    console.log(`http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`),
  );
}

interface Way {
  name: string;
  url: string;
  headers: Record<string, string>;
  model(script: Script): string;
}

interface Runtime {
  way: Way;
  process: ChildProcess;
}

const agent = new Agent({ keepAlive: true, maxSockets: 64 });

function ask(way: Way, script: Script): Promise<{ response: IncomingMessage; leave(): void }> {
  return new Promise((resolve, reject) => {
    const streams = script === 'whole' ? {} : { stream: true, stream_options: { include_usage: true } };
    const body = Buffer.from(
      JSON.stringify({
        model: way.model(script),
        messages: [{ role: 'user', content: 'What does a town hall keep under its floor?' }],
        ...streams,
      }),
    );
    const outgoing = request(
      way.url,
      {
        method: 'POST',
        agent,
        headers: { ...way.headers, 'content-type': 'application/json', 'content-length': body.length },
      },
      (response) => {
        if (response.statusCode !== 200)
          return reject(new Error(`${way.name} answered ${response.statusCode} to ${script}`));
        resolve({ response, leave: () => outgoing.destroy() });
      },
    );
    outgoing.on('error', reject);
    outgoing.end(body);
  });
}

/**
 * One request: time to the first byte, delay of each chunk, and whether the answer ended without an
 * error event.
 */
async function exchange(
  way: Way,
  script: Script,
): Promise<{ firstMs: number; chunksMs: number[]; endsClean: boolean }> {
  const begunMs = performance.now();
  const { response } = await ask(way, script);
  let firstMs: number | undefined;
  let text = '';
  const chunksMs: number[] = [];
  try {
    for await (const piece of response) {
      firstMs ??= performance.now() - begunMs;
      const [arrivedMs, pieceText] = [monotonicMs(), (piece as Buffer).toString()];
      for (const [, stamp] of pieceText.matchAll(/<([\d.]+)>/g)) chunksMs.push(arrivedMs - Number(stamp));
      text += pieceText;
    }
  } catch {
    return { firstMs: firstMs ?? Number.NaN, chunksMs, endsClean: false };
  }
  return { firstMs: firstMs ?? Number.NaN, chunksMs, endsClean: !text.includes('"error"') };
}

const sortedValues = (values: readonly number[]) => [...values].sort((a, b) => a - b);
const share = (values: readonly number[], part: number) =>
  sortedValues(values)[Math.min(values.length - 1, Math.floor(values.length * part))] ?? Number.NaN;
const median = (values: readonly number[]) => share(values, 0.5);
const repeat = async <T>(count: number, work: () => Promise<T>): Promise<T[]> => {
  const results: T[] = [];
  for (let index = 0; index < count; index += 1) results.push(await work());
  return results;
};

/** Measures the completed answers a second over a number of connections that are never idle. */
async function measureLoad(
  way: Way,
  script: Script,
  { connections, seconds }: { connections: number; seconds: number },
): Promise<number> {
  const begunMs = performance.now();
  let answers = 0;
  await Promise.all(
    Array.from({ length: connections }, async () => {
      for (; performance.now() - begunMs < seconds * 1_000; answers += 1) await exchange(way, script);
    }),
  );
  return answers / ((performance.now() - begunMs) / 1_000);
}

function residentMb({ pid }: ChildProcess): number {
  return Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? 0) / 1024;
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

async function measure(): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), 'townhall-beside-'));
  const processes: ChildProcess[] = [];
  const run = (
    file: string,
    parameters: string[],
    { env = {}, quiet = false }: { env?: NodeJS.ProcessEnv; quiet?: boolean } = {},
  ): ChildProcess => {
    const child = spawn(process.execPath, [file, ...parameters], {
      stdio: ['ignore', 'pipe', quiet ? 'ignore' : 'inherit'],
      cwd: folder,
      env: { PATH: process.env['PATH'], HOME: folder, ...env },
    });
    processes.push(child);
    return child;
  };
  const database = options.postgres ? await startServer() : undefined;
  try {
    const provider = run(import.meta.filename, ['provider']);
    const providerLines = createInterface({ input: provider.stdout as NodeJS.ReadableStream });
    const [providerUrl] = (await once(providerLines, 'line')) as [string];
    const abortedAtMs: number[] = [];
    providerLines.on(
      'line',
      (line: string) => line.startsWith('left ') && abortedAtMs.push(Number(line.slice(5))),
    );
    const directWay: Way = {
      name: 'the provider',
      url: `${providerUrl}/chat/completions`,
      headers: {},
      model: (script) => script,
    };

    const startTownhall = async (): Promise<Runtime> => {
      const modelsFile = join(folder, 'models.json');
      writeFileSync(
        modelsFile,
        JSON.stringify({
          providers: [
            {
              id: 'acme',
              kind: 'openai-compatible',
              base_url: providerUrl,
              usage: 'ask',
              output_limit_member: 'max_tokens',
            },
          ],
          models: Object.keys(scripts).map((script) => ({
            id: `acme/${script}`,
            provider: 'acme',
            upstream_model: script,
            rates: options.free ? null : { input: 1_000, output: 1_000 },
            max_output_tokens: 1_000,
          })),
        }),
      );
      const child = run(join(import.meta.dirname, 'gateway-process.ts'), [], {
        env: {
          HOST: '127.0.0.1',
          PORT: '0',
          LOG_LEVEL: 'error',
          RATE_LIMIT_USER: 'off',
          MODELS_FILE: modelsFile,
          DATABASE_PATH: join(folder, 'data'),
          STARTING_CREDITS: '1000000000',
          ...(database && {
            DATABASE_URL: database.url,
            TOWNHALL_MASTER_KEY: Buffer.alloc(32, 7).toString('base64'),
            ADMIN_ID: 'admin',
            ADMIN_PASSWORD: 'a rather long secret',
          }),
        },
      });
      const [line] = (await once(
        createInterface({ input: child.stdout as NodeJS.ReadableStream }),
        'line',
      )) as [string];
      const { url, token } = JSON.parse(line) as { url: string; token: string };
      const way: Way = {
        name: 'townhall',
        url: `${url}/v1/ai/chat/completions`,
        headers: { authorization: `Bearer ${token}` },
        model: (script) => `acme/${script}`,
      };
      return { way, process: child };
    };
    const portkey = async (installedFolder: string): Promise<Runtime> => {
      const port = await freePort();
      const begunMs = performance.now();
      const child = run(
        join(installedFolder, 'node_modules/@portkey-ai/gateway/build/start-server.js'),
        [`--port=${port}`, '--headless'],
        { quiet: true },
      );
      child.stdout?.resume();
      const way: Way = {
        name: 'portkey',
        url: `http://127.0.0.1:${port}/v1/chat/completions`,
        headers: {
          authorization: 'Bearer x',
          'x-portkey-provider': 'openai',
          'x-portkey-custom-host': providerUrl,
        },
        model: (script) => script,
      };
      for (;;) {
        const isReady = await exchange(way, 'whole').then(
          () => true,
          () => false,
        );
        if (isReady) return { way, process: child };
        if (child.exitCode !== null || performance.now() - begunMs > 60_000)
          throw new Error('The peer does not answer.');
        await new Promise((resolve) => setTimeout(resolve, 10));
      }
    };

    const peer = options.peer ?? process.env['TOWNHALL_BENCH_PEER_GATEWAY'];
    if (peer === undefined)
      console.error(
        'NO PEER: neither --peer nor TOWNHALL_BENCH_PEER_GATEWAY names its folder, so its column stays empty.',
      );
    const runtimes = [await startTownhall(), ...(peer === undefined ? [] : [await portkey(peer)])];
    const figures = runtimes.map(() => new Map<Row, number[]>());
    for (let round = 0; round <= Number(options.rounds); round += 1) {
      for (const [index, runtime] of runtimes.entries()) {
        const { way } = runtime;
        // The first visit only warms up, on both sides.
        const note = (row: Row, figure: number) =>
          round > 0 && figures[index]?.set(row, [...(figures[index].get(row) ?? []), figure]);
        const addedMs = async (script: Script) => {
          const [bare, through]: number[][] = [[], []];
          for (let round = 0; round < 100; round += 1) {
            bare?.push((await exchange(directWay, script)).firstMs);
            through?.push((await exchange(way, script)).firstMs);
          }
          return median(through ?? []) - median(bare ?? []);
        };
        note('streamed, added to the first byte, ms', await addedMs('burst'));
        note('whole, added to the answer, ms', await addedMs('whole'));
        const chunks = (await repeat(2, () => exchange(way, 'drip'))).flatMap(({ chunksMs }) => chunksMs);
        note('chunk, provider writes to client reads, p50 ms', median(chunks));
        note('chunk, p99 ms', share(chunks, 0.99));
        note(
          'whole answers a second, 32 connections',
          await measureLoad(way, 'whole', { connections: 32, seconds: 5 }),
        );
        note(
          'streams of 20 chunks a second, 32 connections',
          await measureLoad(way, 'burst', { connections: 32, seconds: 5 }),
        );
        const delays = await repeat(20, async () => {
          const { response, leave } = await ask(way, 'long');
          await once(response, 'data');
          response.on('error', () => {});
          abortedAtMs.length = 0;
          const leftMs = monotonicMs();
          leave();
          while (abortedAtMs.length === 0 && monotonicMs() - leftMs < 1_000)
            await new Promise((resolve) => setTimeout(resolve, 5));
          return (abortedAtMs[0] ?? Infinity) - leftMs;
        });
        note('client gone → provider told, p50 ms', median(delays));
        note(
          'share of them told within a second, %',
          (delays.filter(Number.isFinite).length / delays.length) * 100,
        );
        const brokenStreams = await repeat(10, () => exchange(way, 'broken'));
        note(
          'broken streams that end as if whole, %',
          (brokenStreams.filter(({ endsClean }) => endsClean).length / brokenStreams.length) * 100,
        );
        note('memory of the process after all that, MB', residentMb(runtime.process));
        console.error(`round ${round}, ${way.name}: load ${loadavg()[0]?.toFixed(1)}`);
      }
    }

    console.log(
      `node ${process.version}, load ${loadavg()
        .map((load) => load.toFixed(1))
        .join(
          ' ',
        )}, ${options.rounds} visits each in turns, medians; ours: ${options.free ? 'free' : 'paid'} calls on ${database ? 'PostgreSQL' : 'the embedded database'}`,
    );
    console.log(
      `${'row'.padEnd(48)} ${'townhall'.padStart(10)} ${'portkey'.padStart(10)} ${'ahead'.padStart(7)}`,
    );
    for (const [row, better] of Object.entries(rows) as [Row, 'less' | 'more'][]) {
      const [us = Number.NaN, them = Number.NaN] = figures.map((all) => median(all.get(row) ?? []));
      const show = (figure: number) => {
        if (Number.isNaN(figure)) return '–';
        if (figure === Infinity) return 'never';
        return figure.toFixed(figure >= 100 ? 0 : 1);
      };
      const ratio = better === 'less' ? them / us : us / them;
      console.log(
        `${row.padEnd(48)} ${show(us).padStart(10)} ${show(them).padStart(10)} ${(Number.isFinite(ratio) ? `${ratio.toFixed(2)}×` : '–').padStart(7)}`,
      );
    }
  } finally {
    agent.destroy();
    for (const child of processes) child.kill('SIGKILL');
    await database?.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}

if (options.help)
  console.log(
    'Usage: node test/bench/gateway-beside.ts [--peer FOLDER] [--rounds N] [--postgres] [--free]\nWithout --peer or TOWNHALL_BENCH_PEER_GATEWAY only our own column is measured.',
  );
else if (role === 'provider') provide();
else await measure();
