// How much later the first byte of an answer comes through the gateway than from the provider itself, for each wire.
// Run as `first-byte.ts [ROUNDS] [free|paid] [alone]`; with DATABASE_URL the gateway runs on that PostgreSQL, with `alone`
// it is the models' service by itself, without accounts and ledger. The provider answers at once; direct and through are asked in turns (A B A B), so
// that whatever else the machine does falls on both. Prints medians in milliseconds and the added time, as JSON.
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { Agent, request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { startProvider } from '../support/provider.ts';

const [rounds = '300', price = 'free', ...parts] = process.argv.slice(2);
const promisedMs = 1;

interface Way {
  url: string;
  token: string;
  body: object;
}

const agent = new Agent({ keepAlive: true, maxSockets: 1 });

/** Milliseconds from the request to the first byte of the answer's body. */
function firstByteMs({ url, token, body }: Way): Promise<number> {
  return new Promise((resolve, reject) => {
    const text = JSON.stringify(body);
    const startedMs = performance.now();
    const outgoing = request(url, { method: 'POST', agent, headers: { 'content-type': 'application/json', authorization: `Bearer ${token}`, 'content-length': Buffer.byteLength(text) } });
    outgoing.on('error', reject);
    outgoing.on('response', (response) => {
      let firstMs: number | undefined;
      response.on('data', () => (firstMs ??= performance.now() - startedMs));
      response.on('end', () => (response.statusCode === 200 && firstMs !== undefined ? resolve(firstMs) : reject(new Error(`${url} answered ${response.statusCode}`))));
    });
    outgoing.end(text);
  });
}

function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)] ?? Number.NaN;
}

const folder = await mkdtemp(join(tmpdir(), 'townhall-first-byte-'));
// The provider has a process of its own, as it has in life: `first-byte.ts provider` is that process.
if (rounds === 'provider') {
  const provider = await startProvider();
  process.stdout.write(`${provider.url}\n`);
} else {
  const node = process.execPath;
  const providerProcess = spawn(node, [import.meta.filename, 'provider'], { stdio: ['ignore', 'pipe', 'inherit'] });
  const providerUrl = await firstLine(providerProcess.stdout);
  const modelsFile = join(folder, 'models.json');
  const rates = price === 'paid' ? { input: 1_000, output: 1_000 } : null;
  await writeFile(modelsFile, JSON.stringify({
    providers: [{ id: 'acme', kind: 'openai-compatible', base_url: providerUrl, usage: 'ask', output_limit_member: 'max_tokens' }],
    models: [{ id: 'acme/ok', provider: 'acme', upstream_model: 'ok', rates, max_output_tokens: 1_000 }],
  }));
  const gateway = spawn(node, [...(process.env['NODE_FLAGS']?.split(' ') ?? []), join(import.meta.dirname, 'first-byte-gateway.ts'), ...parts], {
    stdio: ['ignore', 'pipe', 'inherit'],
    env: { ...process.env, HOST: '127.0.0.1', PORT: '0', LOG_LEVEL: 'error', RATE_LIMIT_USER: 'off', MODELS_FILE: modelsFile, DATABASE_PATH: join(folder, 'data'), STARTING_CREDITS: '1000000000' },
  });
  let isBroken = false;
  try {
    const { url, token } = JSON.parse(await firstLine(gateway.stdout)) as { url: string; token: string };
    const messages = [{ role: 'user', content: 'hi' }];
    const prompt = [{ role: 'user', content: [{ type: 'text', text: 'hi' }] }];
    const direct = (streams: boolean): Way => ({ url: `${providerUrl}/chat/completions`, token: 'x', body: { model: 'ok', messages, ...(streams ? { stream: true, stream_options: { include_usage: true } } : {}) } });
    const through = (path: string, body: object): Way => ({ url: `${url}/v1/ai/${path}`, token, body: { model: 'acme/ok', ...body } });
    const wires: [string, Way, Way][] = [
      ['chat/completions, streamed', direct(true), through('chat/completions', { messages, stream: true })],
      ['stream', direct(true), through('stream', { prompt })],
      ['text', direct(false), through('text', { prompt: 'hi' })],
      ['chat/completions, whole', direct(false), through('chat/completions', { messages })],
    ];
    const result: Record<string, { directMs: number; throughMs: number; addedMs: number }> = {};
    for (const [name, a, b] of wires) {
      const [directMs, throughMs]: [number[], number[]] = [[], []];
      for (let round = -Number(rounds) / 3; round < Number(rounds); round += 1) {
        const [one, other] = [await firstByteMs(a), await firstByteMs(b)];
        // What comes before 0 warms both up.
        if (round < 0) continue;
        directMs.push(one);
        throughMs.push(other);
      }
      const [base, whole] = [median(directMs), median(throughMs)];
      result[name] = { directMs: rounded(base), throughMs: rounded(whole), addedMs: rounded(whole - base) };
      if (name !== 'text' && name !== 'chat/completions, whole' && whole - base > promisedMs) isBroken = true;
    }
    process.stdout.write(`${JSON.stringify({ rounds: Number(rounds), price, parts, result }, null, 1)}\n`);
  } finally {
    gateway.kill('SIGKILL');
    providerProcess.kill('SIGKILL');
    agent.destroy();
    await rm(folder, { recursive: true, force: true });
  }
  process.exitCode = isBroken ? 1 : 0;
}

function rounded(ms: number): number {
  return Math.round(ms * 1_000) / 1_000;
}

async function firstLine(stream: NodeJS.ReadableStream): Promise<string> {
  for await (const line of createInterface({ input: stream })) return line;
  throw new Error('A process ended without a word.');
}
