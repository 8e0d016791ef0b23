// Shared by the fault scripts of the agent: a gateway double whose model does what the prompt
// names, and an agent in a process of its own, started with the command line.
import { spawn } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { readListeningUrl } from '../support/listening-url.ts';
import { closeServer, listen, readBody } from '../support/local-server.ts';
import { kill } from '../support/processes.ts';

export interface GatewayDouble {
  url: string;
  /**
   * The received prompts, in order; `<name> tool` for a prompt that was answered with a tool call.
   */
  prompts: string[];
  /** The pieces of text that were sent for each prompt, with their times. */
  sentPieces: Map<string, { text: string; atMs: number }[]>;
  close(): Promise<void>;
}

interface Prompt {
  name: string;
  /** The name of the file to write; undefined without a tool call or after it. */
  file: string | undefined;
}

const usage = { inputTokens: { total: 1 }, outputTokens: { total: 1 } };

/**
 * A gateway whose model streams `chunks` pieces of text with `gapMs` between them. For a prompt with
 * `WRITE:name` the model first calls the tool that writes a file of that name.
 */
export async function startGatewayDouble({
  chunks,
  gapMs,
}: {
  chunks: number;
  gapMs: number;
}): Promise<GatewayDouble> {
  const prompts: string[] = [];
  const sentPieces: GatewayDouble['sentPieces'] = new Map();

  async function streamText(response: ServerResponse, name: string): Promise<void> {
    const pieces: { text: string; atMs: number }[] = [];
    sentPieces.set(name, pieces);
    sendPart(response, { type: 'text-start', id: 't' });
    for (let index = 0; index < chunks && !response.destroyed; index += 1) {
      const text = `${name}:${index} `;
      sendPart(response, { type: 'text-delta', id: 't', delta: text });
      pieces.push({ text, atMs: performance.now() });
      await sleep(gapMs);
    }
    sendPart(response, { type: 'text-end', id: 't' });
    sendPart(response, { type: 'finish', finishReason: { unified: 'stop' }, usage });
  }

  async function serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const body = await readBody(request);
    if (request.url !== '/v1/ai/stream')
      return void response.writeHead(404, { 'content-type': 'application/json' }).end('{}');
    const { name, file } = readPrompt(body);
    prompts.push(file === undefined ? name : `${name} tool`);
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    sendPart(response, { type: 'stream-start', warnings: [] });
    if (file === undefined) await streamText(response, name);
    else sendToolCall(response, name, file);
    response.end('data: [DONE]\n\n');
  }

  const server = createServer((request, response) => {
    serve(request, response).catch(() => response.destroy());
  });
  return { url: (await listen(server)).url, prompts, sentPieces, close: () => closeServer(server) };
}

function readPrompt(body: Buffer): Prompt {
  const { prompt } = JSON.parse(body.toString()) as { prompt: { role: string; content: unknown }[] };
  const text = JSON.stringify(prompt.findLast(({ role }) => role === 'user')?.content);
  const hasResult = prompt.at(-1)?.role === 'tool';
  return {
    name: /item-\d+/.exec(text)?.[0] ?? 'none',
    file: hasResult ? undefined : /WRITE:([\w-]+)/.exec(text)?.[1],
  };
}

function sendToolCall(response: ServerResponse, name: string, file: string): void {
  sendPart(response, {
    type: 'tool-call',
    toolCallId: `call_${name}`,
    toolName: 'files_write',
    input: JSON.stringify({ path: `${file}.txt`, content: 'once' }),
  });
  sendPart(response, { type: 'finish', finishReason: { unified: 'tool-calls' }, usage });
}

function sendPart(response: ServerResponse, part: object): void {
  response.write(`data: ${JSON.stringify(part)}\n\n`);
}

export interface AgentProcess {
  url: string;
  token: string;
  /** Time from the spawn to the first accepted request. */
  startMs: number;
  kill(): Promise<void>;
}

/**
 * Uses the embedded database, or the PostgreSQL at `databaseUrl`, where leases expire after
 * `leaseMs`.
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
  const url = await readListeningUrl(child);
  const token = (await readFile(join(dataDir, 'agent.token'), 'utf8')).trim();
  return { url, token, startMs: performance.now() - startedMs, kill: () => kill(child) };
}
