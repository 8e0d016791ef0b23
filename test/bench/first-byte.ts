// Time that the gateway adds to the first byte of an answer, for each format, and beside it the
// time that a bare relay adds (node:http in and out, nothing parsed).
//
//   first-byte.ts [--rounds N] [--paid] [--postgres | --alone] [--provider-ms MS]
//
// It runs on the embedded database, on a PostgreSQL server, or with the models' service alone,
// without accounts and ledger. `--provider-ms` is the provider's own time to its first byte. The
// ways alternate (A B C A B C), so that other work on the machine affects all. Prints medians in
// milliseconds and the added time as JSON; exits 1 when a stream's added time exceeds its limit.
import { spawn } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { Agent, createServer, request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { parseArgs } from 'node:util';
import { startServer } from '../support/postgres-server.ts';
import { startProvider } from '../support/provider.ts';

const promisedMs = 1;
const gatewayFile = join(import.meta.dirname, 'gateway-process.ts');

const {
  values: options,
  positionals: [role, providerAddress = ''],
} = parseArgs({
  allowPositionals: true,
  options: {
    rounds: { type: 'string', default: '300' },
    paid: { type: 'boolean', default: false },
    postgres: { type: 'boolean', default: false },
    alone: { type: 'boolean', default: false },
    'provider-ms': { type: 'string', default: '0' },
  },
});

interface Way {
  url: string;
  token: string;
  body: object;
}

const agent = new Agent({ keepAlive: true, maxSockets: 1 });

/** Milliseconds from the request to the first byte of the response body. */
function firstByteMs({ url, token, body }: Way): Promise<number> {
  return new Promise((resolve, reject) => {
    const text = JSON.stringify(body);
    const startedMs = performance.now();
    const headers = {
      'content-type': 'application/json',
      authorization: `Bearer ${token}`,
      'content-length': Buffer.byteLength(text),
    };
    const outgoing = request(url, { method: 'POST', agent, headers });
    outgoing.on('error', reject);
    outgoing.on('response', (response) => {
      let firstMs: number | undefined;
      response.on('data', () => (firstMs ??= performance.now() - startedMs));
      response.on('end', () =>
        response.statusCode === 200 && firstMs !== undefined
          ? resolve(firstMs)
          : reject(new Error(`${url} answered ${response.statusCode}`)),
      );
    });
    outgoing.end(text);
  });
}

// The provider and the relay run in processes of their own, as they do in production.
if (role === 'provider') {
  process.stdout.write(`${(await startProvider()).url}\n`);
} else if (role === 'bare') {
  const server = createServer((incoming, answer) => {
    const { 'content-length': length, 'content-type': type } = incoming.headers;
    const outgoing = request(
      `${providerAddress}${incoming.url}`,
      { method: 'POST', agent, headers: { 'content-type': type, 'content-length': length } },
      (response) => {
        answer.writeHead(response.statusCode ?? 500, { 'content-type': response.headers['content-type'] });
        response.pipe(answer);
      },
    );
    incoming.pipe(outgoing);
  });
  server.listen(0, '127.0.0.1', () =>
    process.stdout.write(`http://127.0.0.1:${(server.address() as AddressInfo).port}\n`),
  );
} else {
  await measure();
}

async function measure(): Promise<void> {
  const rounds = Number(options.rounds);
  const providerMs = Number(options['provider-ms']);
  const script = providerMs === 0 ? 'ok' : `delay?ms=${providerMs}`;
  const folder = await mkdtemp(join(tmpdir(), 'townhall-first-byte-'));
  const processes: ReturnType<typeof start>[] = [];
  const start = (file: string, parameters: string[], env: NodeJS.ProcessEnv = process.env) => {
    const flags = file === gatewayFile ? (process.env['NODE_FLAGS']?.split(' ') ?? []) : [];
    return spawn(process.execPath, [...flags, file, ...parameters], {
      stdio: ['ignore', 'pipe', 'inherit'],
      env,
    });
  };
  const awaitFirstLine = (processOutput: ReturnType<typeof start>) => (
    processes.push(processOutput),
    readFirstLine(processOutput.stdout as NodeJS.ReadableStream)
  );
  const database = options.postgres ? await startServer() : undefined;
  try {
    const providerUrl = await awaitFirstLine(start(import.meta.filename, ['provider']));
    const bareUrl = await awaitFirstLine(start(import.meta.filename, ['bare', providerUrl]));
    const modelsFile = join(folder, 'models.json');
    await writeFile(
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
        models: [
          {
            id: 'acme/ok',
            provider: 'acme',
            upstream_model: script,
            rates: options.paid ? { input: 1_000, output: 1_000 } : null,
            max_output_tokens: 1_000,
          },
        ],
      }),
    );
    const env = {
      ...process.env,
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
    };
    const { url, token } = JSON.parse(
      await awaitFirstLine(start(gatewayFile, options.alone ? ['alone'] : [], env)),
    ) as {
      url: string;
      token: string;
    };

    const messages = [{ role: 'user', content: 'hi' }];
    const prompt = [{ role: 'user', content: [{ type: 'text', text: 'hi' }] }];
    const directCall = (base: string, streams: boolean): Way => ({
      url: `${base}/chat/completions`,
      token: 'x',
      body: {
        model: script,
        messages,
        ...(streams ? { stream: true, stream_options: { include_usage: true } } : {}),
      },
    });
    const gatewayCall = (path: string, body: object): Way => ({
      url: `${url}/v1/ai/${path}`,
      token,
      body: { model: 'acme/ok', ...body },
    });
    const formats: { name: string; streams: boolean; way: Way }[] = [
      {
        name: 'chat/completions, streamed',
        streams: true,
        way: gatewayCall('chat/completions', { messages, stream: true }),
      },
      { name: 'stream', streams: true, way: gatewayCall('stream', { prompt }) },
      { name: 'text', streams: false, way: gatewayCall('text', { prompt: 'hi' }) },
      { name: 'chat/completions, whole', streams: false, way: gatewayCall('chat/completions', { messages }) },
    ];
    const result: Record<string, { directMs: number; bareAddsMs: number; gatewayAddsMs: number }> = {};
    for (const { name, streams, way } of formats) {
      const ways = [directCall(providerUrl, streams), directCall(bareUrl, streams), way];
      const times = ways.map((): number[] => []);
      for (let round = -rounds / 3; round < rounds; round += 1) {
        for (const [index, target] of ways.entries()) {
          const ms = await firstByteMs(target);
          // Rounds below 0 warm up.
          if (round >= 0) times[index]?.push(ms);
        }
      }
      const [direct = 0, bare = 0, whole = 0] = times.map(median);
      result[name] = {
        directMs: roundMs(direct),
        bareAddsMs: roundMs(bare - direct),
        gatewayAddsMs: roundMs(whole - direct),
      };
      if (streams && whole - direct > promisedMs) process.exitCode = 1;
    }
    const engine = options.postgres ? 'PostgreSQL' : 'embedded';
    const report = {
      rounds,
      providerMs,
      isPaid: options.paid,
      database: options.alone ? null : engine,
      result,
    };
    process.stdout.write(`${JSON.stringify(report, null, 1)}\n`);
  } finally {
    for (const entry of processes) entry.kill('SIGKILL');
    agent.destroy();
    await database?.stop();
    await rm(folder, { recursive: true, force: true });
  }
}

function median(values: readonly number[]): number {
  const sortedValues = [...values].sort((a, b) => a - b);
  return sortedValues[Math.floor(sortedValues.length / 2)] ?? Number.NaN;
}

function roundMs(ms: number): number {
  return Math.round(ms * 1_000) / 1_000;
}

async function readFirstLine(stream: NodeJS.ReadableStream): Promise<string> {
  for await (const line of createInterface({ input: stream })) return line;
  throw new Error('A process ended without a word.');
}
