// The agent beside opencode 1.18, both measured in one run by one client against one
// scripted model, in turns A B A B:
//
//   node test/bench/agent-beside.ts [--peer PATH_OF_ITS_BINARY] [--rounds 3] [--events 10000] [--sessions 1000]
//
// The peer is `npm install opencode-ai@1.18.33` in a folder of its own; its binary lies in the
// package of the platform, opencode-<os>-<arch>/bin/opencode. TOWNHALL_BENCH_PEER names it too.
// Without it the peer's column stays empty. Each visit starts a process on the data of the
// visits before it, so that starts after the first are starts with data. On our side everything
// is on as it is by default: durable commits, the guard, the token, validation, the access log.
import { mkdtempSync, rmSync } from 'node:fs';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { loadavg, tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { monotonicMs, opencode, townhall, type RunningRuntime, type Runtime } from './agent-runtimes.ts';

const { values } = parseArgs({
  options: {
    peer: { type: 'string' },
    rounds: { type: 'string', default: '3' },
    events: { type: 'string', default: '10000' },
    sessions: { type: 'string', default: '1000' },
    help: { type: 'boolean', short: 'h' },
  },
});
if (values.help) {
  console.log(
    'Usage: node test/bench/agent-beside.ts [--peer BINARY] [--rounds N] [--events N] [--sessions N]\nWithout --peer or TOWNHALL_BENCH_PEER only our own column is measured.',
  );
  process.exit(0);
}
const peer = values.peer ?? process.env['TOWNHALL_BENCH_PEER'];
/** Turns, and sessions made, before anything is measured in a visit. */
const warmings = 20;
const [rounds, wantedEvents, idleSessions] = [
  Number(values.rounds),
  Number(values.events),
  Number(values.sessions),
] as [number, number, number];

// The measured figures, with our own targets. The peer has none.
const rows = {
  'start with data → first 200 on health, ms': {
    how: 'spawn to the first 200, asked every 10 ms',
    target: 1_000,
  },
  'create a session, one client, ms': { how: 'POST /api/sdk/sessions · POST /session', target: 3 },
  'create, 16 clients, ms each of them': {
    how: 'the same over 16 connections; time divided by the number made',
    target: 1,
  },
  'memory of the process with the idle sessions, MB': {
    how: 'resident, children included, 2 s after the last was made',
    target: 250,
  },
  'admit a prompt, ms': {
    how: 'POST …/prompt to 202 · POST /api/session/:id/prompt to 200, to an idle session each; the turn is waited for in between',
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
    how: 'GET …/events?after=0 · GET /api/session/:id/event?after=0, until the last of the wanted number',
    target: 250,
  },
  'replay, first byte, ms': { how: 'the same', target: 20 },
  'resume with 100 missed, ms': { how: 'the same, from 100 before the newest', target: 5 },
  'fork of a session of 200 messages, ms': { how: 'POST …/fork · POST /session/:id/fork', target: 5 },
} as const;
type Row = keyof typeof rows;

const sortedValues = (values: readonly number[]) => [...values].sort((a, b) => a - b);
const median = (values: readonly number[]) =>
  sortedValues(values)[Math.floor(values.length / 2)] ?? Number.NaN;
const share = (values: readonly number[], part: number) =>
  sortedValues(values)[Math.min(values.length - 1, Math.floor(values.length * part))] ?? Number.NaN;
const measureMs = async (work: () => Promise<unknown>) => {
  const begunMs = performance.now();
  await work();
  return performance.now() - begunMs;
};
async function measureTimes(count: number, work: (index: number) => Promise<unknown>): Promise<number[]> {
  const durations: number[] = [];
  for (let index = 0; index < count; index += 1) durations.push(await measureMs(() => work(index)));
  return durations;
}

interface Kept {
  figures: Map<Row, number[]>;
  /** A session of 200 messages, and one with many events. */
  long?: string;
  many?: { sessionId: string; head: number };
  failures: Set<string>;
}

async function visit(runtime: RunningRuntime, figures: Kept, isFirst: boolean): Promise<void> {
  const note = (row: Row, figure: number) =>
    figures.figures.set(row, [...(figures.figures.get(row) ?? []), figure]);
  const measure = async (row: Row, work: () => Promise<number>) => {
    try {
      note(row, await work());
    } catch (error) {
      figures.failures.add(`${row}: ${error instanceof Error ? error.message : String(error)}`);
    }
  };
  if (!isFirst) note('start with data → first 200 on health, ms', runtime.startedMs);
  // The first calls are slower on both sides and do not count: a server stays up for weeks.
  const warmUpSession = await runtime.create();
  await measureTimes(warmings, () => runtime.turn(warmUpSession, 'TOK=1'));
  await measureTimes(warmings, () => runtime.create());

  await measure('create a session, one client, ms', async () =>
    median(await measureTimes(100, () => runtime.create())),
  );
  await measure('create, 16 clients, ms each of them', async () => {
    const remainingSessions = Math.max(16, isFirst ? idleSessions - 101 - warmings : 160);
    const perWorker = Math.ceil(remainingSessions / 16);
    return (
      (await measureMs(() =>
        Promise.all(Array.from({ length: 16 }, () => measureTimes(perWorker, () => runtime.create()))),
      )) /
      (perWorker * 16)
    );
  });
  await new Promise((resolve) => setTimeout(resolve, 2_000));
  if (isFirst)
    await measure('memory of the process with the idle sessions, MB', async () => runtime.residentMb());

  await measure('one-token turn, whole, ms', async () =>
    median(await measureTimes(30, () => runtime.turn(warmUpSession, 'TOK=1'))),
  );
  await measure('one-token turn, accepted to first text at the client, ms', async () => {
    const stream = await runtime.follow(warmUpSession);
    const all: number[] = [];
    for (let index = 0; index < 30; index += 1) {
      const begunMs = monotonicMs();
      await runtime.begin(warmUpSession, 'TOK=1');
      all.push((await stream.until(({ kind }) => kind === 'text')).atMs - begunMs);
      await stream.until(({ kind }) => kind === 'end');
    }
    stream.close();
    return median(all);
  });
  const chunks: number[] = [];
  await measure('chunk, model writes to client reads, p50 ms', async () => {
    const stream = await runtime.follow(warmUpSession);
    await runtime.begin(warmUpSession, 'TOK=100 GAP=20 STAMP');
    await stream.until(({ kind, text, atMs }) => {
      for (const [, stamp] of text.matchAll(/<([\d.]+)>/g)) chunks.push(atMs - Number(stamp));
      return kind === 'end';
    });
    stream.close();
    if (chunks.length < 90) throw new Error(`only ${chunks.length} of 100 chunks were seen one by one`);
    return median(chunks);
  });
  if (chunks.length > 0) note('chunk, p99 ms', share(chunks, 0.99));
  await measure('admit a prompt, ms', async () => {
    const freshSessionMs = [];
    for (let index = 0; index < 20; index += 1) freshSessionMs.push(await runtime.create());
    const all: number[] = [];
    for (const sessionId of freshSessionMs) {
      all.push(await measureMs(() => runtime.admit(sessionId, 'TOK=1')));
      await new Promise((resolve) => setTimeout(resolve, 150));
    }
    return median(all);
  });
  await measure('100 prompts at once into one session, ms until each answer', async () => {
    const sessionId = await runtime.create();
    // Opens the hundred connections first: connecting is not part of the admission.
    await Promise.all(Array.from({ length: 100 }, () => runtime.create()));
    const all = await Promise.all(
      Array.from({ length: 100 }, () => measureMs(() => runtime.admit(sessionId, 'TOK=1'))),
    );
    await new Promise((resolve) => setTimeout(resolve, 3_000));
    return median(all);
  });

  if (figures.long === undefined) {
    figures.long = await runtime.create();
    for (let index = 0; index < 100; index += 1) await runtime.turn(figures.long, 'TOK=1');
  }
  const { long: longSession } = figures;
  await measure('fork of a session of 200 messages, ms', async () =>
    median(await measureTimes(5, () => runtime.fork(longSession))),
  );
  if (figures.many === undefined) {
    const sessionId = await runtime.create();
    let head = 0;
    while (head < wantedEvents) head = await runtime.grow(sessionId);
    figures.many = { sessionId, head };
  }
  const { many: manyEvents } = figures;
  const replays = [];
  try {
    for (let index = 0; index < 3; index += 1)
      replays.push(await runtime.replay(manyEvents.sessionId, 0, wantedEvents));
    note('replay of the events, whole, ms', median(replays.map(({ totalMs }) => totalMs)));
    note('replay, first byte, ms', median(replays.map(({ firstMs }) => firstMs)));
    note(
      'resume with 100 missed, ms',
      median(await measureTimes(10, () => runtime.replay(manyEvents.sessionId, manyEvents.head - 100, 100))),
    );
  } catch (error) {
    figures.failures.add(`replay: ${error instanceof Error ? error.message : String(error)}`);
  }
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
    'NO PEER: neither --peer nor TOWNHALL_BENCH_PEER names the binary of opencode, so its column stays empty.',
  );
else runtimes.push(opencode(peer, join(folder, 'opencode'), providerUrl));
const all = runtimes.map((): Kept => ({ figures: new Map(), failures: new Set() }));
try {
  for (let round = 0; round <= rounds; round += 1) {
    for (const [index, runtime] of runtimes.entries()) {
      const begunMs = performance.now();
      const startedRuntime = await runtime.start();
      try {
        await visit(startedRuntime, all[index] as Kept, round === 0);
      } finally {
        await startedRuntime.stop();
      }
      console.error(
        `round ${round}, ${runtime.name}: ${((performance.now() - begunMs) / 1_000).toFixed(0)} s, load ${loadavg()[0]?.toFixed(1)}`,
      );
    }
  }
  console.log(
    `node ${process.version}, load ${loadavg()
      .map((load) => load.toFixed(1))
      .join(
        ' ',
      )}, ${rounds + 1} visits each in turns, medians; ${wantedEvents} events, ${idleSessions} sessions`,
  );
  console.log(
    `${'row'.padEnd(60)} ${'townhall'.padStart(10)} ${'opencode'.padStart(10)} ${'ratio'.padStart(7)} ${'target'.padStart(7)}`,
  );
  let isBehind = false;
  for (const [row, { target }] of Object.entries(rows) as [Row, { target: number }][]) {
    const [ours = Number.NaN, theirs = Number.NaN] = all.map(({ figures }) => median(figures.get(row) ?? []));
    const show = (figure: number) => (Number.isNaN(figure) ? '–' : figure.toFixed(figure >= 100 ? 0 : 1));
    isBehind ||= Number.isNaN(ours) || ours > theirs;
    console.log(
      `${row.padEnd(60)} ${show(ours).padStart(10)} ${show(theirs).padStart(10)} ${(Number.isNaN(theirs) ? '–' : `${(theirs / ours).toFixed(1)}×`).padStart(7)} ${`≤ ${target}`.padStart(7)}${ours > theirs ? '  BEHIND' : ''}${ours > target ? '  above target' : ''}`,
    );
  }
  for (const [index, { failures }] of all.entries())
    for (const reason of failures) console.log(`${runtimes[index]?.name} could not: ${reason}`);
  console.log('\nHow each row was measured, ours · theirs:');
  for (const [row, { how }] of Object.entries(rows)) console.log(`  ${row}: ${how}`);
  console.log(
    "Ours counts messages, parts and runs among its events; the peer's were made of admitted prompts, the only ones that it keeps in that number.",
  );
  process.exitCode = isBehind ? 1 : 0;
} finally {
  model.kill();
  rmSync(folder, { recursive: true, force: true });
}
