// The two agent runtimes of the benchmark behind one interface, each a process of its own with a folder that
// it keeps across restarts. The interface hides their routes; where the peer has two routes for an operation,
// the faster one is used.
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { Agent, request, type IncomingMessage } from 'node:http';
import { join } from 'node:path';
import { freePort } from '../support/free-port.ts';

/** The machine's monotonic clock, so times of different processes are comparable. */
export const monotonicMs = (): number => Number(process.hrtime.bigint()) / 1e6;

export interface TurnEvent {
  /** New text of the answer, or the end of the turn. */
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
}

export interface RunningRuntime {
  /** From the start of the process to its first answer. */
  startDurationMs: number;
  residentMb(): number;
  create(): Promise<string>;
  /** Resolves once the prompt is accepted and durable; the turn continues. */
  admit(sessionId: string, text: string): Promise<void>;
  /** Runs a turn to its end. */
  turn(sessionId: string, text: string): Promise<void>;
  follow(sessionId: string): Promise<Stream>;
  /** Starts a turn whose events a follower reads. */
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
/** The number of concurrent prompts with which a session grows. */
const growthPrompts = 64;

export function townhall(folder: string, providerUrl: string): Runtime {
  return { name: 'townhall', start: () => startTownhall(folder, providerUrl) };
}

async function startTownhall(folder: string, providerUrl: string): Promise<RunningRuntime> {
  const port = await freePort();
  const entry = join(import.meta.dirname, '../../src/cli/main.ts');
  const args = ['--port', String(port), '--data-dir', folder, '--gateway-url', providerUrl];
  const { child, startDurationMs } = await launch(process.execPath, [entry, 'agent', ...args], {
    env: {
      PATH: process.env['PATH'],
      HOME: folder,
      AGENT_GATEWAY_TOKEN: 'th_usr_bench',
      LOG_LEVEL: 'info',
    },
    cwd: folder,
    health: `http://127.0.0.1:${port}/health`,
  });
  const token = readFileSync(join(folder, 'agent.token'), 'utf8').trim();
  return {
    startDurationMs,
    residentMb: () => residentMb(child),
    stop: () => stop(child),
    ...townhallOperations(createClient(port, `Bearer ${token}`)),
  };
}

type Operations = Omit<RunningRuntime, 'startDurationMs' | 'residentMb' | 'stop'>;

function townhallOperations(client: Client): Operations {
  const sessions = '/api/sdk/sessions';
  const post = (path: string, body: object) => client.call('POST', `${sessions}${path}`, body);
  const prompt = async (sessionId: string, text: string) =>
    void (await post(`/${sessionId}/prompt`, { text }));
  const readHeadSeq = async (sessionId: string) =>
    ((await client.call('GET', `${sessions}/${sessionId}`)) as { headSeq: number }).headSeq;
  const follow = async (sessionId: string) =>
    client.stream(`${sessions}/${sessionId}/events?after=${await readHeadSeq(sessionId)}`, (event) => {
      const { type, delta } = event as { type: string; delta?: string };
      if (type === 'part.delta') return { kind: 'text', text: delta ?? '' };
      return type === 'run.settled' ? { kind: 'end', text: '' } : null;
    });
  return {
    create: async () => ((await post('', {})) as { id: string }).id,
    admit: prompt,
    begin: prompt,
    follow,
    async turn(sessionId, text) {
      const stream = await follow(sessionId);
      await prompt(sessionId, text);
      await stream.until(({ kind }) => kind === 'end');
      stream.close();
    },
    fork: async (sessionId) => void (await post(`/${sessionId}/fork`, {})),
    async grow(sessionId) {
      await Promise.all(Array.from({ length: growthPrompts }, () => prompt(sessionId, 'TOK=1')));
      const path = `${sessions}/${sessionId}/events?until=idle&after=0`;
      await (
        await client.stream(path, () => null)
      ).ended;
      return readHeadSeq(sessionId);
    },
    replay: (sessionId, afterSeq, count) =>
      client.replay(`${sessions}/${sessionId}/events?after=${afterSeq}`, count, (line) =>
        line.startsWith('id: '),
      ),
  };
}

export function opencode(binary: string, folder: string, providerUrl: string): Runtime {
  return { name: 'opencode', start: () => startOpencode(binary, folder, providerUrl) };
}

async function startOpencode(binary: string, folder: string, providerUrl: string): Promise<RunningRuntime> {
  const port = await freePort();
  const work = join(folder, 'work');
  mkdirSync(work, { recursive: true });
  writeFileSync(join(work, 'opencode.json'), JSON.stringify(opencodeSettings(providerUrl)));
  const authorization = `Basic ${Buffer.from('opencode:bench').toString('base64')}`;
  const args = ['serve', '--port', String(port), '--hostname', '127.0.0.1'];
  const { child, startDurationMs } = await launch(binary, args, {
    env: {
      PATH: process.env['PATH'],
      HOME: folder,
      XDG_DATA_HOME: join(folder, 'data'),
      XDG_CONFIG_HOME: join(folder, 'config'),
      XDG_CACHE_HOME: join(folder, 'cache'),
      XDG_STATE_HOME: join(folder, 'state'),
      OPENCODE_DISABLE_AUTOUPDATE: '1',
      OPENCODE_DISABLE_MODELS_FETCH: '1',
      OPENCODE_SERVER_PASSWORD: 'bench',
    },
    cwd: work,
    health: `http://127.0.0.1:${port}/global/health`,
    authorization,
  });
  return {
    startDurationMs,
    residentMb: () => residentMb(child),
    stop: () => stop(child),
    ...opencodeOperations(createClient(port, authorization)),
  };
}

function opencodeSettings(providerUrl: string): object {
  return {
    model: 'fake/fake-1',
    small_model: 'fake/fake-1',
    autoupdate: false,
    share: 'disabled',
    provider: {
      fake: {
        npm: '@ai-sdk/openai-compatible',
        name: 'Fake',
        options: { baseURL: `${providerUrl}/v1`, apiKey: 'x' },
        models: { 'fake-1': { name: 'fake-1', limit: { context: 1_000_000, output: 8_000 } } },
      },
    },
  };
}

function opencodeOperations(client: Client): Operations {
  // The newer API makes an admission durable; `prompt_async` answers before it stores anything.
  const admit = async (sessionId: string, text: string, resume: boolean) =>
    (await client.call('POST', `/api/session/${sessionId}/prompt`, { prompt: { text }, resume })) as {
      data: { admittedSeq: number };
    };
  const post = async (path: string, body: object): Promise<void> =>
    void (await client.call('POST', path, body));
  const partsOf = (text: string) => ({ parts: [{ type: 'text', text }] });
  return {
    create: async () => ((await client.call('POST', '/session', {})) as { id: string }).id,
    admit: async (sessionId, text) => void (await admit(sessionId, text, true)),
    turn: (sessionId, text) => post(`/session/${sessionId}/message`, partsOf(text)),
    follow: (sessionId) =>
      client.stream('/event', (event) => {
        const { type, properties } = event as {
          type: string;
          properties?: { sessionID?: string; delta?: string };
        };
        if (properties?.sessionID !== sessionId) return null;
        if (type === 'message.part.delta') return { kind: 'text', text: properties.delta ?? '' };
        return type === 'session.idle' ? { kind: 'end', text: '' } : null;
      }),
    begin: (sessionId, text) => post(`/session/${sessionId}/prompt_async`, partsOf(text)),
    fork: (sessionId) => post(`/session/${sessionId}/fork`, {}),
    async grow(sessionId) {
      const admissions = await Promise.all(
        Array.from({ length: growthPrompts }, () => admit(sessionId, 'TOK=1', false)),
      );
      return Math.max(...admissions.map(({ data }) => data.admittedSeq));
    },
    replay: (sessionId, afterSeq, count) =>
      client.replay(
        `/api/session/${sessionId}/event?after=${afterSeq}`,
        count,
        (line) => line.startsWith('data: ') && line.includes('"durable"'),
      ),
  };
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
): Promise<{ child: ChildProcess; startDurationMs: number }> {
  mkdirSync(cwd, { recursive: true });
  const startMs = performance.now();
  const child = spawn(command, argumentList, { env, cwd, stdio: ['ignore', 'ignore', 'inherit'] });
  for (;;) {
    if (hasExited(child))
      throw new Error(`${command} exited with ${child.exitCode ?? child.signalCode} before it answered.`);
    if (performance.now() - startMs > startTimeoutMs) {
      await stop(child);
      throw new Error(`${command} did not answer within ${startTimeoutMs / 1_000} seconds.`);
    }
    const answer = await fetch(health, {
      headers: authorization === undefined ? {} : { authorization },
      signal: AbortSignal.timeout(1_000),
    }).catch(() => null);
    await answer?.text().catch(() => null);
    if (answer?.status === 200) return { child, startDurationMs: performance.now() - startMs };
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
  // Ids ascend, so that a parent comes before its children.
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
      // The process has exited in the meantime.
    }
  }
  return kilobytes / 1024;
}

interface Client {
  /** Resolves with the parsed body; rejects for a status other than a success. */
  call(method: string, path: string, body?: object): Promise<unknown>;
  stream(path: string, readEvent: EventReader): Promise<Stream & { ended: Promise<void> }>;
  replay(path: string, count: number, isDurable: (line: string) => boolean): Promise<Replay>;
}

/** Null for an event that no measurement needs. */
type EventReader = (event: unknown) => Omit<TurnEvent, 'atMs'> | null;

function createClient(port: number, authorization: string): Client {
  const agent = new Agent({ keepAlive: true, maxSockets: 256 });

  /** Rejects for a status other than a success. */
  async function send(method: string, path: string, body?: object): Promise<IncomingMessage> {
    const bytes = body === undefined ? undefined : Buffer.from(JSON.stringify(body));
    const headers = {
      authorization,
      ...(bytes ? { 'content-type': 'application/json', 'content-length': bytes.length } : {}),
    };
    const response = await new Promise<IncomingMessage>((resolve, reject) => {
      // A stream keeps its connection, so it gets one of its own and leaves the pool to the calls.
      const call = request(
        { host: '127.0.0.1', port, method, path, headers, agent: path.includes('/event') ? false : agent },
        resolve,
      );
      call.on('error', reject);
      call.end(bytes);
    });
    if ((response.statusCode ?? 500) < 300) return response;
    throw new Error(
      `${method} ${path} is ${response.statusCode}: ${(await readText(response)).slice(0, 300)}`,
    );
  }

  return {
    async call(method, path, body) {
      const text = await readText(await send(method, path, body));
      return text === '' ? null : JSON.parse(text);
    },
    stream: async (path, readEvent) => followStream(path, await send('GET', path), readEvent),
    async replay(path, count, isDurable) {
      const startMs = performance.now();
      return readReplay(path, await send('GET', path), { startMs, count, isDurable });
    },
  };
}

async function readText(response: IncomingMessage): Promise<string> {
  const pieces: Buffer[] = [];
  for await (const piece of response) pieces.push(piece as Buffer);
  return Buffer.concat(pieces).toString('utf8');
}

async function* readLines(response: IncomingMessage): AsyncGenerator<string> {
  let unfinishedLine = '';
  for await (const piece of response) {
    const lines = (unfinishedLine + (piece as Buffer).toString('utf8')).split('\n');
    unfinishedLine = lines.pop() ?? '';
    yield* lines;
  }
}

/** Resolves at the first line of the stream, or at its end. */
async function followStream(
  path: string,
  response: IncomingMessage,
  readEvent: EventReader,
): Promise<Stream & { ended: Promise<void> }> {
  const events: TurnEvent[] = [];
  const firstLine = Promise.withResolvers<void>();
  let wake = () => {};
  let isOpen = true;
  const readAll = async (): Promise<void> => {
    for await (const line of readLines(response)) {
      firstLine.resolve();
      if (!line.startsWith('data: ')) continue;
      const event = readEvent(JSON.parse(line.slice(6)));
      if (event) events.push({ ...event, atMs: monotonicMs() });
      wake();
    }
  };
  const ended = readAll()
    // `close` breaks the stream; `until` reports a stream that ends before its event.
    .catch(() => {})
    .finally(() => {
      isOpen = false;
      firstLine.resolve();
      wake();
    });
  /** Resolves with the next event, or after a second. */
  const nextEvent = (): Promise<void> =>
    new Promise((resolve) => {
      const timer = setTimeout(resolve, 1_000);
      wake = () => {
        clearTimeout(timer);
        resolve();
      };
      if (events.length > 0) wake();
    });
  await firstLine.promise;
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
        await nextEvent();
      }
    },
  };
}

async function readReplay(
  path: string,
  response: IncomingMessage,
  { startMs, count, isDurable }: { startMs: number; count: number; isDurable: (line: string) => boolean },
): Promise<Replay> {
  let events = 0;
  let firstMs = 0;
  const timer = setTimeout(
    () => response.destroy(new Error(`Only ${events} of ${count} events came from ${path}.`)),
    replayTimeoutMs,
  );
  try {
    for await (const line of readLines(response)) {
      firstMs ||= performance.now() - startMs;
      if (isDurable(line)) events += 1;
      if (events === count && line === '') break;
    }
  } finally {
    clearTimeout(timer);
    response.destroy();
  }
  const totalMs = performance.now() - startMs;
  if (events < count) throw new Error(`${path} ended after ${events} of ${count} events.`);
  return { events, firstMs, totalMs };
}
