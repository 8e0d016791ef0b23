// Time that the gateway adds to the first byte of an answer, for each format, compared with the time that a
// bare relay adds (node:http in and out, nothing parsed).
//
//   first-byte.ts [--rounds N] [--paid] [--postgres | --alone] [--provider-ms MS]
//
// It runs on the embedded database, on a PostgreSQL server, or with the models service alone, without
// accounts and ledger. `--provider-ms` is the provider's own time to its first byte. Calls to the provider,
// the relay and the gateway alternate, so that other work on the machine affects all of them. Prints medians
// in milliseconds and the added time as JSON; exits with 1 when a stream's added time exceeds its limit.
import { spawn, type ChildProcess } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { Agent, createServer, request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { parseCommandLine } from '../../scripts/command-line.ts';
import { startServer } from '../support/postgres-server.ts';
import { startProvider } from '../support/provider.ts';
import { gatewaySettings } from './gateway-settings.ts';
import { median } from './statistics.ts';

/** The limit for streams; docs/decisions/2026-11-21-first-byte.md has the reasons. */
const maxAddedMs = 1;
const gatewayFile = join(import.meta.dirname, 'gateway-process.ts');

const {
  values: options,
  positionals: [role, providerAddress = ''],
} = parseCommandLine(import.meta.filename, {
  allowPositionals: true,
  options: {
    rounds: { type: 'string', default: '300' },
    paid: { type: 'boolean', default: false },
    postgres: { type: 'boolean', default: false },
    alone: { type: 'boolean', default: false },
    'provider-ms': { type: 'string', default: '0' },
  },
});

const rounds = Number(options.rounds);
const providerMs = Number(options['provider-ms']);
const providerScript = providerMs === 0 ? 'ok' : `delay?ms=${providerMs}`;

interface Call {
  url: string;
  token: string;
  body: object;
}

const agent = new Agent({ keepAlive: true, maxSockets: 1 });

/** Milliseconds from the request to the first byte of the response body. */
function measureFirstByteMs({ url, token, body }: Call): Promise<number> {
  return new Promise((resolve, reject) => {
    const text = JSON.stringify(body);
    const startMs = performance.now();
    const headers = {
      'content-type': 'application/json',
      authorization: `Bearer ${token}`,
      'content-length': Buffer.byteLength(text),
    };
    const outgoing = request(url, { method: 'POST', agent, headers });
    outgoing.on('error', reject);
    outgoing.on('response', (response) => {
      let firstMs: number | undefined;
      response.on('data', () => (firstMs ??= performance.now() - startMs));
      response.on('end', () =>
        response.statusCode === 200 && firstMs !== undefined
          ? resolve(firstMs)
          : reject(new Error(`${url} answered ${response.statusCode}`)),
      );
    });
    outgoing.end(text);
  });
}

/** Forwards requests and answers to the provider without parsing them. */
function startRelay(): void {
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
}

async function measure(): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), 'townhall-first-byte-'));
  const processes: ChildProcess[] = [];
  /** Starts a script and resolves with the first line of its output. */
  const launch = async (file: string, parameters: string[], env = process.env): Promise<string> => {
    const flags = file === gatewayFile ? (process.env['NODE_FLAGS']?.split(' ') ?? []) : [];
    const child = spawn(process.execPath, [...flags, file, ...parameters], {
      stdio: ['ignore', 'pipe', 'inherit'],
      env,
    });
    processes.push(child);
    return readFirstLine(child.stdout);
  };
  const database = options.postgres ? await startServer() : undefined;
  try {
    const providerUrl = await launch(import.meta.filename, ['provider']);
    const relayUrl = await launch(import.meta.filename, ['bare', providerUrl]);
    const modelsFile = join(folder, 'models.json');
    await writeFile(modelsFile, JSON.stringify(modelSettings(providerUrl)));
    const env = { ...process.env, ...gatewaySettings({ folder, modelsFile, databaseUrl: database?.url }) };
    const line = await launch(gatewayFile, options.alone ? ['alone'] : [], env);
    const gateway = JSON.parse(line) as { url: string; token: string };
    const result: Record<string, Figures> = {};
    for (const { name, streams, call } of formatsOf(gateway)) {
      const figures = await measureInTurns([
        directCall(providerUrl, streams),
        directCall(relayUrl, streams),
        call,
      ]);
      result[name] = figures;
      if (streams && figures.gatewayAddsMs > maxAddedMs) process.exitCode = 1;
    }
    printReport(result);
  } finally {
    for (const child of processes) child.kill('SIGKILL');
    agent.destroy();
    await database?.stop();
    await rm(folder, { recursive: true, force: true });
  }
}

function modelSettings(providerUrl: string): object {
  const provider = {
    id: 'acme',
    kind: 'openai-compatible',
    base_url: providerUrl,
    usage: 'ask',
    output_limit_member: 'max_tokens',
  };
  const model = {
    id: 'acme/ok',
    provider: 'acme',
    upstream_model: providerScript,
    rates: options.paid ? { input: 1_000, output: 1_000 } : null,
    max_output_tokens: 1_000,
  };
  return { providers: [provider], models: [model] };
}

const messages = [{ role: 'user', content: 'hi' }];

/** The call without a gateway that a gateway's call is compared with. */
function directCall(baseUrl: string, streams: boolean): Call {
  return {
    url: `${baseUrl}/chat/completions`,
    token: 'x',
    body: {
      model: providerScript,
      messages,
      ...(streams ? { stream: true, stream_options: { include_usage: true } } : {}),
    },
  };
}

function formatsOf({ url, token }: { url: string; token: string }): {
  name: string;
  streams: boolean;
  call: Call;
}[] {
  const callOf = (path: string, body: object): Call => ({
    url: `${url}/v1/ai/${path}`,
    token,
    body: { model: 'acme/ok', ...body },
  });
  const prompt = [{ role: 'user', content: [{ type: 'text', text: 'hi' }] }];
  return [
    {
      name: 'chat/completions, streamed',
      streams: true,
      call: callOf('chat/completions', { messages, stream: true }),
    },
    { name: 'stream', streams: true, call: callOf('stream', { prompt }) },
    { name: 'text', streams: false, call: callOf('text', { prompt: 'hi' }) },
    { name: 'chat/completions, whole', streams: false, call: callOf('chat/completions', { messages }) },
  ];
}

interface Figures {
  directMs: number;
  bareAddsMs: number;
  gatewayAddsMs: number;
}

/** Alternates between the provider, the relay and the gateway. */
async function measureInTurns(calls: readonly [Call, Call, Call]): Promise<Figures> {
  const timesMs = calls.map((): number[] => []);
  // Rounds below 0 warm up.
  for (let round = -rounds / 3; round < rounds; round += 1) {
    for (const [index, call] of calls.entries()) {
      const firstByteMs = await measureFirstByteMs(call);
      if (round >= 0) timesMs[index]?.push(firstByteMs);
    }
  }
  const [direct = 0, relay = 0, gateway = 0] = timesMs.map(median);
  return {
    directMs: roundMs(direct),
    bareAddsMs: roundMs(relay - direct),
    gatewayAddsMs: roundMs(gateway - direct),
  };
}

function printReport(result: Record<string, Figures>): void {
  const engine = options.postgres ? 'PostgreSQL' : 'embedded';
  const report = {
    rounds,
    providerMs,
    isPaid: options.paid,
    database: options.alone ? null : engine,
    result,
  };
  process.stdout.write(`${JSON.stringify(report, null, 1)}\n`);
}

function roundMs(ms: number): number {
  return Math.round(ms * 1_000) / 1_000;
}

async function readFirstLine(stream: NodeJS.ReadableStream): Promise<string> {
  for await (const line of createInterface({ input: stream })) return line;
  throw new Error('A process exited without any output.');
}

// The provider and the relay run in processes of their own, as they do in production.
if (role === 'provider') process.stdout.write(`${(await startProvider()).url}\n`);
else if (role === 'bare') startRelay();
else await measure();
