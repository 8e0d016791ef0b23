// The two agent runtimes of the benchmark behind one interface, each a process of its own with a
// folder that it keeps across restarts. The interface hides their routes; where the peer has two,
// the faster one is used.
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { Agent, request, type IncomingMessage } from 'node:http';
import { createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';

/** The machine's monotonic clock, so times of different processes are comparable. */
export const monotonicMs = (): number => Number(process.hrtime.bigint()) / 1e6;

export interface TurnEvent {
  /** The text so far, or the end of the turn. */
  kind: 'text' | 'end';
  text: string;
  atMs: number;
}

export interface Stream {
  /** Resolves with the first matching event; throws after 30 seconds. */
  until(matches: (event: TurnEvent) => boolean): Promise<TurnEvent>;
  close(): void;
}

export interface Replay {
  events: number;
  firstMs: number;
  totalMs: number;
  bytes: number;
}

export interface RunningRuntime {
  startedMs: number;
  residentMb(): number;
  create(): Promise<string>;
  /** Resolves once the prompt is accepted and durable; the turn runs on. */
  admit(sessionId: string, text: string): Promise<void>;
  /** Runs a turn to its end. */
  turn(sessionId: string, text: string): Promise<void>;
  follow(sessionId: string): Promise<Stream>;
  /** The route that starts a turn for a follower. */
  begin(sessionId: string, text: string): Promise<void>;
  fork(sessionId: string): Promise<void>;
  /** Adds durable events to a session and returns its event count. */
  grow(sessionId: string): Promise<number>;
  /** Reads `count` durable events after a seq. */
  replay(sessionId: string, after: number, count: number): Promise<Replay>;
  stop(): Promise<void>;
}

export interface Runtime {
  name: string;
  start(): Promise<RunningRuntime>;
}

const eventTimeoutMs = 30_000;
const startTimeoutMs = 120_000;
const replayTimeoutMs = 60_000;

export function townhall(folder: string, providerUrl: string): Runtime {
  const root = join(import.meta.dirname, '..', '..');
  const sessions = '/api/sdk/sessions';
  return {
    name: 'townhall',
    async start() {
      const port = await freePort();
      const argumentList = [
        join(root, 'src/cli/main.ts'),
        'agent',
        '--port',
        String(port),
        '--data-dir',
        folder,
        '--gateway-url',
        providerUrl,
      ];
      const env = {
        PATH: process.env['PATH'],
        HOME: folder,
        AGENT_GATEWAY_TOKEN: 'th_usr_bench',
        LOG_LEVEL: 'info',
      };
      const { child, startedMs } = await launch(process.execPath, argumentList, {
        env,
        cwd: folder,
        health: `http://127.0.0.1:${port}/health`,
      });
      const client = createClient(port, `Bearer ${readFileSync(join(folder, 'agent.token'), 'utf8').trim()}`);
      const post = (path: string, body: object) => client.call('POST', `${sessions}${path}`, body);
      const prompt = (sessionId: string, text: string) => post(`/${sessionId}/prompt`, { text });
      const headOf = async (sessionId: string) =>
        (await client.call('GET', `${sessions}/${sessionId}`)) as { headSeq: number };
      const follow = async (sessionId: string) => {
        const { headSeq } = await headOf(sessionId);
        return client.stream(`${sessions}/${sessionId}/events?after=${headSeq}`, (event) => {
          const { type, delta } = event as { type: string; delta?: string };
          if (type === 'part.delta') return { kind: 'text', text: delta ?? '' };
          return type === 'run.settled' ? { kind: 'end', text: '' } : null;
        });
      };
      return {
        startedMs,
        residentMb: () => residentMb(child),
        create: async () => ((await post('', {})) as { id: string }).id,
        admit: async (sessionId, text) => void (await prompt(sessionId, text)),
        async turn(sessionId, text) {
          const stream = await follow(sessionId);
          await prompt(sessionId, text);
          await stream.until(({ kind }) => kind === 'end');
          stream.close();
        },
        follow,
        begin: async (sessionId, text) => void (await prompt(sessionId, text)),
        fork: async (sessionId) => void (await post(`/${sessionId}/fork`, {})),
        async grow(sessionId) {
          await Promise.all(Array.from({ length: 64 }, () => prompt(sessionId, 'TOK=1')));
          const stream = await client.stream(
            `${sessions}/${sessionId}/events?until=idle&after=0`,
            () => null,
          );
          await stream.ended;
          return (await headOf(sessionId)).headSeq;
        },
        replay: (sessionId, afterSeq, count) =>
          client.replay(`${sessions}/${sessionId}/events?after=${afterSeq}`, count, (line) =>
            line.startsWith('id: '),
          ),
        stop: () => stop(child),
      };
    },
  };
}

export function opencode(binary: string, folder: string, providerUrl: string): Runtime {
  return {
    name: 'opencode',
    async start() {
      const port = await freePort();
      const work = join(folder, 'work');
      mkdirSync(work, { recursive: true });
      const models = { 'fake-1': { name: 'fake-1', limit: { context: 1_000_000, output: 8_000 } } };
      const provider = {
        fake: {
          npm: '@ai-sdk/openai-compatible',
          name: 'Fake',
          options: { baseURL: `${providerUrl}/v1`, apiKey: 'x' },
          models,
        },
      };
      writeFileSync(
        join(work, 'opencode.json'),
        JSON.stringify({
          model: 'fake/fake-1',
          small_model: 'fake/fake-1',
          autoupdate: false,
          share: 'disabled',
          provider,
        }),
      );
      const pathOf = (name: string) => join(folder, name);
      const env = {
        PATH: process.env['PATH'],
        HOME: folder,
        XDG_DATA_HOME: pathOf('data'),
        XDG_CONFIG_HOME: pathOf('config'),
        XDG_CACHE_HOME: pathOf('cache'),
        XDG_STATE_HOME: pathOf('state'),
        OPENCODE_DISABLE_AUTOUPDATE: '1',
        OPENCODE_DISABLE_MODELS_FETCH: '1',
        OPENCODE_SERVER_PASSWORD: 'bench',
      };
      const authorization = `Basic ${Buffer.from('opencode:bench').toString('base64')}`;
      const { child, startedMs } = await launch(
        binary,
        ['serve', '--port', String(port), '--hostname', '127.0.0.1'],
        { env, cwd: work, health: `http://127.0.0.1:${port}/global/health`, authorization },
      );
      const client = createClient(port, authorization);
      const admit = (sessionId: string, text: string, resume: boolean) =>
        client.call('POST', `/api/session/${sessionId}/prompt`, { prompt: { text }, resume });
      const follow = (sessionId: string) =>
        client.stream('/event', (event) => {
          const { type, properties } = event as {
            type: string;
            properties?: { sessionID?: string; delta?: string };
          };
          if (properties?.sessionID !== sessionId) return null;
          if (type === 'message.part.delta') return { kind: 'text', text: properties.delta ?? '' };
          return type === 'session.idle' ? { kind: 'end', text: '' } : null;
        });
      const sessionIds: string[] = [];
      return {
        startedMs,
        residentMb: () => residentMb(child),
        async create() {
          const { id } = (await client.call('POST', '/session', {})) as { id: string };
          sessionIds.push(id);
          return id;
        },
        // The newer API makes an admission durable; `prompt_async` answers before it stores
        // anything.
        admit: async (sessionId, text) => void (await admit(sessionId, text, true)),
        turn: async (sessionId, text) =>
          void (await client.call('POST', `/session/${sessionId}/message`, {
            parts: [{ type: 'text', text }],
          })),
        follow,
        begin: async (sessionId, text) =>
          void (await client.call('POST', `/session/${sessionId}/prompt_async`, {
            parts: [{ type: 'text', text }],
          })),
        fork: async (sessionId) => void (await client.call('POST', `/session/${sessionId}/fork`, {})),
        async grow(sessionId) {
          const seqs = await Promise.all(
            Array.from(
              { length: 64 },
              async () =>
                ((await admit(sessionId, 'TOK=1', false)) as { data: { admittedSeq: number } }).data
                  .admittedSeq,
            ),
          );
          return Math.max(...seqs);
        },
        replay: (sessionId, afterSeq, count) =>
          client.replay(
            `/api/session/${sessionId}/event?after=${afterSeq}`,
            count,
            (line) => line.startsWith('data: ') && line.includes('"durable"'),
          ),
        stop: () => stop(child),
      };
    },
  };
}

async function freePort(): Promise<number> {
  const probe = createServer().listen(0, '127.0.0.1');
  await once(probe, 'listening');
  const { port } = probe.address() as AddressInfo;
  probe.close();
  await once(probe, 'close');
  return port;
}

/** Starts the process and polls its health every few milliseconds until the first 200. */
async function launch(
  command: string,
  argumentList: string[],
  {
    env,
    cwd,
    health,
    authorization,
  }: { env: Record<string, string | undefined>; cwd: string; health: string; authorization?: string },
): Promise<{ child: ChildProcess; startedMs: number }> {
  mkdirSync(cwd, { recursive: true });
  const startMs = performance.now();
  const child = spawn(command, argumentList, { env, cwd, stdio: ['ignore', 'ignore', 'inherit'] });
  for (;;) {
    if (hasExited(child))
      throw new Error(`${command} ended with ${child.exitCode ?? child.signalCode} before it answered.`);
    if (performance.now() - startMs > startTimeoutMs) {
      await stop(child);
      throw new Error(`${command} did not answer within ${startTimeoutMs / 1_000} seconds.`);
    }
    const answer = await fetch(health, {
      headers: authorization === undefined ? {} : { authorization },
      signal: AbortSignal.timeout(1_000),
    }).catch(() => null);
    await answer?.text().catch(() => null);
    if (answer?.status === 200) return { child, startedMs: performance.now() - startMs };
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

function hasExited({ exitCode, signalCode }: ChildProcess): boolean {
  return exitCode !== null || signalCode !== null;
}

async function stop(child: ChildProcess): Promise<void> {
  if (hasExited(child)) return;
  const exitPromise = once(child, 'exit');
  child.kill('SIGTERM');
  const timer = setTimeout(() => child.kill('SIGKILL'), 10_000);
  await exitPromise;
  clearTimeout(timer);
}

/** Resident memory of the process and its descendants. */
function residentMb({ pid }: ChildProcess): number {
  const family = new Set([pid]);
  const processes = readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .sort((a, b) => a - b);
  let kilobytes = 0;
  for (const pid of processes) {
    try {
      const status = readFileSync(`/proc/${pid}/status`, 'utf8');
      if (family.has(Number(/PPid:\s+(\d+)/.exec(status)?.[1]))) family.add(pid);
      if (family.has(pid)) kilobytes += Number(/VmRSS:\s+(\d+)/.exec(status)?.[1] ?? 0);
    } catch {
      // The process has ended since.
    }
  }
  return kilobytes / 1024;
}

function createClient(port: number, authorization: string) {
  const agent = new Agent({ keepAlive: true, maxSockets: 256 });

  function send(method: string, path: string, body?: object): Promise<IncomingMessage> {
    return new Promise((resolve, reject) => {
      const bytes = body === undefined ? undefined : Buffer.from(JSON.stringify(body));
      const headers = {
        authorization,
        ...(bytes ? { 'content-type': 'application/json', 'content-length': bytes.length } : {}),
      };
      const call = request(
        { host: '127.0.0.1', port, method, path, headers, agent: path.includes('/event') ? false : agent },
        resolve,
      );
      call.on('error', reject);
      call.end(bytes);
    });
  }

  async function requireSuccess(label: string, response: IncomingMessage): Promise<void> {
    if ((response.statusCode ?? 500) < 300) return;
    throw new Error(`${label} is ${response.statusCode}: ${(await read(response)).slice(0, 300)}`);
  }

  async function read(response: IncomingMessage): Promise<string> {
    const pieces: Buffer[] = [];
    for await (const piece of response) pieces.push(piece as Buffer);
    return Buffer.concat(pieces).toString('utf8');
  }

  /** Sends a GET request whose response is a stream. Throws for a status other than a success. */
  async function openStream(path: string): Promise<IncomingMessage> {
    const response = await send('GET', path);
    await requireSuccess(`GET ${path}`, response);
    return response;
  }

  async function* readLines(response: IncomingMessage): AsyncGenerator<string> {
    let unfinishedLine = '';
    for await (const piece of response) {
      const all = (unfinishedLine + (piece as Buffer).toString('utf8')).split('\n');
      unfinishedLine = all.pop() ?? '';
      yield* all;
    }
  }

  return {
    async call(method: string, path: string, body?: object): Promise<unknown> {
      const response = await send(method, path, body);
      await requireSuccess(`${method} ${path}`, response);
      const text = await read(response);
      return text === '' ? null : JSON.parse(text);
    },
    async stream(
      path: string,
      readEvent: (event: unknown) => Omit<TurnEvent, 'atMs'> | null,
    ): Promise<Stream & { ended: Promise<void> }> {
      const response = await openStream(path);
      const events: TurnEvent[] = [];
      let wake = () => {};
      const connection = Promise.withResolvers<void>();
      let isOpen = true;
      const ended = (async () => {
        for await (const line of readLines(response)) {
          connection.resolve();
          if (!line.startsWith('data: ')) continue;
          const event = readEvent(JSON.parse(line.slice(6)));
          if (event) events.push({ ...event, atMs: monotonicMs() });
          wake();
        }
      })()
        .catch(() => {})
        .finally(() => {
          isOpen = false;
          // A stream may end before its first line.
          connection.resolve();
          wake();
        });
      await connection.promise;
      return {
        ended,
        close: () => response.destroy(),
        async until(matches) {
          const deadlineMs = performance.now() + eventTimeoutMs;
          for (;;) {
            for (let event = events.shift(); event; event = events.shift()) if (matches(event)) return event;
            if (!isOpen) throw new Error(`The stream of ${path} ended before the event.`);
            if (performance.now() > deadlineMs)
              throw new Error(`${path} sent no such event within ${eventTimeoutMs / 1_000} seconds.`);
            await new Promise<void>((resolve) => {
              const timer = setTimeout(resolve, 1_000);
              wake = () => {
                clearTimeout(timer);
                resolve();
              };
              if (events.length > 0) wake();
            });
          }
        },
      };
    },
    async replay(path: string, count: number, isDurable: (line: string) => boolean): Promise<Replay> {
      const startMs = performance.now();
      const response = await openStream(path);
      let events = 0;
      let firstMs = 0;
      let bytes = 0;
      const timer = setTimeout(
        () => response.destroy(new Error(`Only ${events} of ${count} events came from ${path}.`)),
        replayTimeoutMs,
      );
      try {
        for await (const line of readLines(response)) {
          firstMs ||= performance.now() - startMs;
          bytes += line.length + 1;
          if (isDurable(line)) events += 1;
          if (events === count && line === '') break;
        }
      } finally {
        clearTimeout(timer);
        response.destroy();
      }
      const totalMs = performance.now() - startMs;
      if (events < count) throw new Error(`${path} ended after ${events} of ${count} events.`);
      return { events, firstMs, totalMs, bytes };
    },
  };
}
