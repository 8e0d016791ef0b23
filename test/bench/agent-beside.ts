// Compares the agent with opencode 1.18. One client measures both in one run, in alternating rounds, with one
// scripted model:
//
//   node test/bench/agent-beside.ts [--peer BINARY] [--rounds 3] [--events 10000] [--sessions 1000]
//
// The peer is `npm install opencode-ai@1.18.33` in a folder of its own; its binary is in the package of the
// platform, opencode-<os>-<arch>/bin/opencode. TOWNHALL_BENCH_PEER can name it instead of --peer. Without the
// peer its column stays empty. Each round starts each process on the data of its earlier rounds, so all
// starts but the first are starts with data. Our agent runs with its defaults: durable commits, the guard,
// the token, validation, the access log.
import { mkdtempSync, rmSync } from 'node:fs';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { loadavg, tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseCommandLine } from '../../scripts/command-line.ts';
import {
  monotonicMs,
  opencode,
  townhall,
  type Replay,
  type RunningRuntime,
  type Runtime,
} from './agent-runtimes.ts';
import { median, quantile } from './statistics.ts';

const { values: options } = parseCommandLine(import.meta.filename, {
  options: {
    peer: { type: 'string' },
    rounds: { type: 'string', default: '3' },
    events: { type: 'string', default: '10000' },
    sessions: { type: 'string', default: '1000' },
  },
});
const peer = options.peer ?? process.env['TOWNHALL_BENCH_PEER'];
/** Turns, and created sessions, before a round measures anything. */
const warmUpCount = 20;
/** Sessions that one client creates. */
const creationCount = 100;
const clients = 16;
const rounds = Number(options.rounds);
const replayedEvents = Number(options.events);
const idleSessions = Number(options.sessions);

// The measured figures, with our own targets. The peer has none.
const rows = {
  'start with data → first 200 on health, ms': {
    how: 'spawn to the first 200, polled every 10 ms',
    target: 1_000,
  },
  'create a session, one client, ms': { how: 'POST /api/sdk/sessions · POST /session', target: 3 },
  'create, 16 clients, ms each of them': {
    how: 'the same over 16 connections; time divided by the number of sessions',
    target: 1,
  },
  'memory of the process with the idle sessions, MB': {
    how: 'resident, children included, 2 s after the last creation',
    target: 250,
  },
  'admit a prompt, ms': {
    how: 'POST …/prompt to 202 · POST /api/session/:id/prompt to 200, to an idle session each',
    target: 4,
  },
  '100 prompts at once into one session, ms until each answer': {
    how: 'the same routes over 100 open connections',
    target: 50,
  },
  'one-token turn, accepted to first text at the client, ms': {
    how: 'POST …/prompt and its event stream · POST /session/:id/prompt_async and /event',
    target: 20,
  },
  'one-token turn, whole, ms': {
    how: 'prompt to run.settled on the stream · POST /session/:id/message to its answer',
    target: 20,
  },
  'chunk, model writes to client reads, p50 ms': {
    how: '100 chunks with 20 ms between them, the time of writing in each',
    target: 1,
  },
  'chunk, p99 ms': { how: 'the same', target: 5 },
  'replay of the events, whole, ms': {
    how: 'GET …/events?after=0 · GET /api/session/:id/event?after=0, up to the number of --events',
    target: 250,
  },
  'replay, first byte, ms': { how: 'the same', target: 20 },
  'resume with 100 missed, ms': { how: 'the same, from 100 before the newest', target: 5 },
  'fork of a session of 200 messages, ms': { how: 'POST …/fork · POST /session/:id/fork', target: 5 },
} as const;
type Row = keyof typeof rows;

async function measureMs(work: () => Promise<unknown>): Promise<number> {
  const startMs = performance.now();
  await work();
  return performance.now() - startMs;
}

async function measureTimes(count: number, work: (index: number) => Promise<unknown>): Promise<number[]> {
  const durationsMs: number[] = [];
  for (let index = 0; index < count; index += 1) durationsMs.push(await measureMs(() => work(index)));
  return durationsMs;
}

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

const textOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));

/** The measurements of one runtime, and the sessions that its later rounds use again. */
interface Side {
  figures: Map<Row, number[]>;
  failures: Set<string>;
  /** A session of 200 messages. */
  longSession?: string;
  /** A session with at least as many events as a replay reads. */
  eventSession?: { sessionId: string; headSeq: number };
}

/** One start of a runtime and its measurements. */
interface Measurement {
  runtime: RunningRuntime;
  side: Side;
  isFirst: boolean;
  /** The session whose turns warm up the runtime. */
  warmSession: string;
}

function note({ figures }: Side, row: Row, figure: number): void {
  figures.set(row, [...(figures.get(row) ?? []), figure]);
}

/** A measurement that fails is reported at the end; the others continue. */
async function measure(side: Side, row: Row, work: () => Promise<number>): Promise<void> {
  try {
    note(side, row, await work());
  } catch (error) {
    side.failures.add(`${row}: ${textOf(error)}`);
  }
}

async function measureRuntime(runtime: RunningRuntime, side: Side, isFirst: boolean): Promise<void> {
  if (!isFirst) note(side, 'start with data → first 200 on health, ms', runtime.startDurationMs);
  // The first calls are slower on both sides. They are not measured, because a server runs for weeks.
  const warmSession = await runtime.create();
  await measureTimes(warmUpCount, () => runtime.turn(warmSession, 'TOK=1'));
  await measureTimes(warmUpCount, () => runtime.create());
  const measurement = { runtime, side, isFirst, warmSession };
  await measureCreation(measurement);
  await measureTurns(measurement);
  await measureChunks(measurement);
  await measureAdmission(measurement);
  await measureFork(measurement);
  await measureReplay(measurement);
}

async function measureCreation({ runtime, side, isFirst }: Measurement): Promise<void> {
  await measure(side, 'create a session, one client, ms', async () =>
    median(await measureTimes(creationCount, () => runtime.create())),
  );
  await measure(side, 'create, 16 clients, ms each of them', async () => {
    // The first round creates the rest of the idle sessions; the session that warms up is one of them.
    const remaining = isFirst ? idleSessions - creationCount - warmUpCount - 1 : 10 * clients;
    const perClient = Math.ceil(Math.max(clients, remaining) / clients);
    const totalMs = await measureMs(() =>
      Promise.all(Array.from({ length: clients }, () => measureTimes(perClient, () => runtime.create()))),
    );
    return totalMs / (perClient * clients);
  });
  // The memory is read 2 s after the last creation, as its row says.
  await pause(2_000);
  if (isFirst)
    await measure(side, 'memory of the process with the idle sessions, MB', async () => runtime.residentMb());
}

async function measureTurns({ runtime, side, warmSession }: Measurement): Promise<void> {
  const turns = 30;
  await measure(side, 'one-token turn, whole, ms', async () =>
    median(await measureTimes(turns, () => runtime.turn(warmSession, 'TOK=1'))),
  );
  await measure(side, 'one-token turn, accepted to first text at the client, ms', async () => {
    const stream = await runtime.follow(warmSession);
    const firstTextsMs: number[] = [];
    for (let index = 0; index < turns; index += 1) {
      const startMs = monotonicMs();
      await runtime.begin(warmSession, 'TOK=1');
      firstTextsMs.push((await stream.until(({ kind }) => kind === 'text')).atMs - startMs);
      await stream.until(({ kind }) => kind === 'end');
    }
    stream.close();
    return median(firstTextsMs);
  });
}

async function measureChunks({ runtime, side, warmSession }: Measurement): Promise<void> {
  const delaysMs: number[] = [];
  await measure(side, 'chunk, model writes to client reads, p50 ms', async () => {
    const stream = await runtime.follow(warmSession);
    await runtime.begin(warmSession, 'TOK=100 GAP=20 STAMP');
    await stream.until(({ kind, text, atMs }) => {
      for (const [, stamp] of text.matchAll(/<([\d.]+)>/g)) delaysMs.push(atMs - Number(stamp));
      return kind === 'end';
    });
    stream.close();
    if (delaysMs.length < 90) throw new Error(`only ${delaysMs.length} of 100 chunks were seen one by one`);
    return median(delaysMs);
  });
  if (delaysMs.length > 0) note(side, 'chunk, p99 ms', quantile(delaysMs, 0.99));
}

async function measureAdmission({ runtime, side }: Measurement): Promise<void> {
  await measure(side, 'admit a prompt, ms', async () => {
    const sessionIds: string[] = [];
    for (let index = 0; index < 20; index += 1) sessionIds.push(await runtime.create());
    const durationsMs: number[] = [];
    for (const sessionId of sessionIds) {
      durationsMs.push(await measureMs(() => runtime.admit(sessionId, 'TOK=1')));
      // Let the turn end, so that it does not slow down the next admission.
      await pause(150);
    }
    return median(durationsMs);
  });
  await measure(side, '100 prompts at once into one session, ms until each answer', async () => {
    const sessionId = await runtime.create();
    // Open the hundred connections first: connecting is not part of the admission.
    await Promise.all(Array.from({ length: 100 }, () => runtime.create()));
    const durationsMs = await Promise.all(
      Array.from({ length: 100 }, () => measureMs(() => runtime.admit(sessionId, 'TOK=1'))),
    );
    // Let the hundred turns end before the next measurement.
    await pause(3_000);
    return median(durationsMs);
  });
}

async function measureFork({ runtime, side }: Measurement): Promise<void> {
  side.longSession ??= await createLongSession(runtime);
  const { longSession } = side;
  await measure(side, 'fork of a session of 200 messages, ms', async () =>
    median(await measureTimes(5, () => runtime.fork(longSession))),
  );
}

async function createLongSession(runtime: RunningRuntime): Promise<string> {
  const sessionId = await runtime.create();
  for (let index = 0; index < 100; index += 1) await runtime.turn(sessionId, 'TOK=1');
  return sessionId;
}

async function measureReplay({ runtime, side }: Measurement): Promise<void> {
  try {
    side.eventSession ??= await createEventSession(runtime);
    const { sessionId, headSeq } = side.eventSession;
    const replays: Replay[] = [];
    for (let index = 0; index < 3; index += 1)
      replays.push(await runtime.replay(sessionId, 0, replayedEvents));
    note(side, 'replay of the events, whole, ms', median(replays.map(({ totalMs }) => totalMs)));
    note(side, 'replay, first byte, ms', median(replays.map(({ firstMs }) => firstMs)));
    const resumesMs = await measureTimes(10, () => runtime.replay(sessionId, headSeq - 100, 100));
    note(side, 'resume with 100 missed, ms', median(resumesMs));
  } catch (error) {
    side.failures.add(`replay: ${textOf(error)}`);
  }
}

async function createEventSession(runtime: RunningRuntime): Promise<{ sessionId: string; headSeq: number }> {
  const sessionId = await runtime.create();
  let headSeq = 0;
  while (headSeq < replayedEvents) headSeq = await runtime.grow(sessionId);
  return { sessionId, headSeq };
}

/** Measures all runtimes in turns; the first round creates the data of the later ones. */
async function measureInTurns(runtimes: readonly Runtime[], sides: readonly Side[]): Promise<void> {
  for (let round = 0; round <= rounds; round += 1) {
    for (const [index, runtime] of runtimes.entries()) {
      const startMs = performance.now();
      const runningRuntime = await runtime.start();
      try {
        await measureRuntime(runningRuntime, sides[index] as Side, round === 0);
      } finally {
        await runningRuntime.stop();
      }
      const seconds = ((performance.now() - startMs) / 1_000).toFixed(0);
      console.error(`round ${round}, ${runtime.name}: ${seconds} s, load ${loadavg()[0]?.toFixed(1)}`);
    }
  }
}

/** Prints the table; returns whether a row of ours is behind the peer's or was not measured. */
function printTable(sides: readonly Side[]): boolean {
  const load = loadavg()
    .map((value) => value.toFixed(1))
    .join(' ');
  console.log(
    `node ${process.version}, load ${load}, ${rounds + 1} rounds in turns, medians; ` +
      `${replayedEvents} events, ${idleSessions} sessions`,
  );
  printRow(['row', 'townhall', 'opencode', 'ratio', 'target']);
  const format = (figure: number) => (Number.isNaN(figure) ? '–' : figure.toFixed(figure >= 100 ? 0 : 1));
  let isBehind = false;
  for (const [row, { target }] of Object.entries(rows) as [Row, { target: number }][]) {
    const [ours = Number.NaN, theirs = Number.NaN] = sides.map(({ figures }) =>
      median(figures.get(row) ?? []),
    );
    isBehind ||= Number.isNaN(ours) || ours > theirs;
    const ratio = Number.isNaN(theirs) ? '–' : `${(theirs / ours).toFixed(1)}×`;
    const remarks = [...(ours > theirs ? ['BEHIND'] : []), ...(ours > target ? ['above target'] : [])];
    printRow([row, format(ours), format(theirs), ratio, `≤ ${target}`], remarks);
  }
  return isBehind;
}

function printRow([row = '', ...cells]: readonly string[], remarks: readonly string[] = []): void {
  const widths = [10, 10, 7, 7];
  const columns = cells.map((cell, index) => cell.padStart(widths[index] ?? 0));
  console.log([row.padEnd(60), ...columns, ...remarks.map((remark) => ` ${remark}`)].join(' '));
}

function printNotes(runtimes: readonly Runtime[], sides: readonly Side[]): void {
  for (const [index, { failures }] of sides.entries())
    for (const reason of failures) console.log(`${runtimes[index]?.name} could not: ${reason}`);
  console.log('\nHow each row was measured, ours · theirs:');
  for (const [row, { how }] of Object.entries(rows)) console.log(`  ${row}: ${how}`);
  console.log(
    "Our events include messages, parts and runs; the peer's are admitted prompts, the only ones it numbers.",
  );
}

// Both sides call the same scripted model.
const model = spawn(process.execPath, [join(import.meta.dirname, 'agent-model.ts')], {
  stdio: ['ignore', 'pipe', 'inherit'],
});
const [port] = (await once(model.stdout, 'data')) as [Buffer];
const providerUrl = `http://127.0.0.1:${String(port).trim()}`;
const folder = mkdtempSync(join(tmpdir(), 'townhall-beside-'));
const runtimes: Runtime[] = [townhall(join(folder, 'townhall'), providerUrl)];
if (peer === undefined)
  console.error(
    'NO PEER: its column stays empty. Name the binary of opencode with --peer or TOWNHALL_BENCH_PEER.',
  );
else runtimes.push(opencode(peer, join(folder, 'opencode'), providerUrl));
const sides = runtimes.map((): Side => ({ figures: new Map(), failures: new Set() }));
try {
  await measureInTurns(runtimes, sides);
  process.exitCode = printTable(sides) ? 1 : 0;
  printNotes(runtimes, sides);
} finally {
  model.kill();
  rmSync(folder, { recursive: true, force: true });
}
