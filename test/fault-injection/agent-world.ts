// Shared by the fault scripts of the agent: seeded random numbers, a model whose prompt sets the
// answer, and an agent in its own process, started like the command.
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

/** Numbers from 0 up to 1, the same for the same seed. */
export function chance(seed: number): () => number {
  let state = seed % 2147483647 || 1;
  return () => (state = (state * 48271) % 2147483647) / 2147483647;
}

/**
 * The seed given on the command line, or a new one. It is printed at once, so that a failure can be
 * repeated.
 */
export function readSeed(): number {
  const seedArgument = process.argv.slice(2).find((word) => !word.startsWith('--'));
  const seed = Number(seedArgument ?? (Date.now() % 1_000_000) + 1);
  if (!Number.isSafeInteger(seed) || seed < 1) throw new Error('The seed is a whole number from 1 on.');
  console.log(`seed ${seed}`);
  return seed;
}

export interface SpeakingGateway {
  url: string;
  /** The received prompts, in order; `<name> tool` for one answered with a tool call. */
  prompts: string[];
  /** Pieces of text that have been sent, by the prompt, with the time. */
  sent: Map<string, { text: string; atMs: number }[]>;
  close(): Promise<void>;
}

/**
 * A gateway whose model says `chunks` pieces with `gapMs` between them. A prompt
 * that holds `WRITE:name` first has a file of that name written.
 */
export async function speakingGateway({
  chunks,
  gapMs,
}: {
  chunks: number;
  gapMs: number;
}): Promise<SpeakingGateway> {
  const prompts: string[] = [];
  const sentPieces = new Map<string, { text: string; atMs: number }[]>();
  const server: Server = createServer((request, response) => {
    void (async () => {
      const body: Buffer[] = [];
      for await (const chunk of request) body.push(chunk as Buffer);
      if (request.url !== '/v1/ai/stream')
        return void response.writeHead(404, { 'content-type': 'application/json' }).end('{}');
      const { prompt } = JSON.parse(Buffer.concat(body).toString()) as {
        prompt: { role: string; content: unknown }[];
      };
      const lastMessage = prompt.findLast(({ role }) => role === 'user');
      const name = /item-\d+/.exec(JSON.stringify(lastMessage?.content))?.[0] ?? 'none';
      const wantsFile = /WRITE:([\w-]+)/.exec(JSON.stringify(lastMessage?.content))?.[1];
      const hasResult = prompt.at(-1)?.role === 'tool';
      const send = (part: object) => response.write(`data: ${JSON.stringify(part)}\n\n`);
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      send({ type: 'stream-start', warnings: [] });
      const usage = { inputTokens: { total: 1 }, outputTokens: { total: 1 } };
      if (wantsFile !== undefined && !hasResult) {
        prompts.push(`${name} tool`);
        send({
          type: 'tool-call',
          toolCallId: `call_${name}`,
          toolName: 'files_write',
          input: JSON.stringify({ path: `${wantsFile}.txt`, content: 'once' }),
        });
        send({ type: 'finish', finishReason: { unified: 'tool-calls' }, usage });
      } else {
        prompts.push(name);
        const pieces: { text: string; atMs: number }[] = [];
        sentPieces.set(name, pieces);
        send({ type: 'text-start', id: 't' });
        for (let index = 0; index < chunks && !response.destroyed; index += 1) {
          const text = `${name}:${index} `;
          send({ type: 'text-delta', id: 't', delta: text });
          pieces.push({ text, atMs: performance.now() });
          if (gapMs > 0) await new Promise((resolve) => setTimeout(resolve, gapMs));
        }
        send({ type: 'text-end', id: 't' });
        send({ type: 'finish', finishReason: { unified: 'stop' }, usage });
      }
      response.end('data: [DONE]\n\n');
    })().catch(() => response.destroy());
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    prompts,
    sent: sentPieces,
    async close() {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
}

export interface AgentProcess {
  url: string;
  token: string;
  startedInMs: number;
  child: ChildProcess;
  kill(): Promise<void>;
}

/**
 * On the embedded database, or on the PostgreSQL at `databaseUrl`, where a replica
 * is given up after `leaseMs`.
 */
export async function startAgentProcess(
  dataDir: string,
  gatewayUrl: string,
  server?: { databaseUrl: string; leaseMs: number },
): Promise<AgentProcess> {
  const startedMs = performance.now();
  const root = join(import.meta.dirname, '..', '..');
  const child = spawn(
    process.execPath,
    [
      join(root, 'src/cli/main.ts'),
      'agent',
      '--port',
      '0',
      '--data-dir',
      dataDir,
      '--gateway-url',
      gatewayUrl,
    ],
    {
      env: {
        PATH: process.env['PATH'],
        HOME: dataDir,
        AGENT_GATEWAY_TOKEN: 'th_usr_faults',
        LOG_LEVEL: 'info',
        ...(server ? { AGENT_DATABASE_URL: server.databaseUrl, AGENT_LEASE_MS: String(server.leaseMs) } : {}),
      },
      stdio: ['ignore', 'pipe', 'inherit'],
    },
  );
  for await (const line of createInterface({ input: child.stdout })) {
    const entry = JSON.parse(line) as { msg?: string; url?: string };
    if (entry.msg !== 'listening' || entry.url === undefined) continue;
    child.stdout.resume();
    const token = (await readFile(join(dataDir, 'agent.token'), 'utf8')).trim();
    return {
      url: entry.url,
      token,
      startedInMs: performance.now() - startedMs,
      child,
      async kill() {
        if (child.exitCode !== null || child.signalCode !== null) return;
        const exit = once(child, 'exit');
        child.kill('SIGKILL');
        await exit;
      },
    };
  }
  throw new Error('The agent ended before it listened.');
}
