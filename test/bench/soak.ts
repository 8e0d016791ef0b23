// Memory of an agent over an hour of low load:
//
//   node test/bench/soak.ts [--minutes 60] [--warm 10] [--streams 200] [--turns 60] [--sample 30]
//
// The agent is a process of its own with its defaults, and its model is scripted (agent-model.ts). Each
// stream follows a session of its own, one more follows all sessions, and `--turns` turns a minute go to the
// sessions in order. Every tenth turn goes to a session that is created for it and removed after it, and each
// minute one reader disconnects and another reader replaces it. Every `--sample` seconds the resident memory
// of the agent is read. The slope is that of the least-squares line through the samples after the warm-up
// minutes. Exits with 1 when it is 0.2 MB per minute or more, or when a stream has missed an event.
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { loadavg, tmpdir } from 'node:os';
import { join } from 'node:path';
import type { AgentClient } from '@townhall/agent';
import { parseCommandLine } from '../../scripts/command-line.ts';
import { startScriptedAgent } from './agent-process.ts';
import { readResidentMb } from './calls/process-usage.ts';

const { values } = parseCommandLine(import.meta.filename, {
  options: {
    minutes: { type: 'string', default: '60' },
    warm: { type: 'string', default: '10' },
    streams: { type: 'string', default: '200' },
    turns: { type: 'string', default: '60' },
    sample: { type: 'string', default: '30' },
  },
});
const minutes = Number(values.minutes);
const warmMinutes = Number(values.warm);
const streams = Number(values.streams);
const turnsPerMinute = Number(values.turns);
const sampleSeconds = Number(values.sample);
const maxSlope = 0.2;
/** One turn out of this many goes to a session of its own. */
const turnsPerOwnSession = 10;

interface Sample {
  minute: number;
  megabytes: number;
}

/** A reader of one session, which counts the events that it gets. */
interface Reader {
  sessionId: string;
  seq: number;
  rejoins: number;
  leave(): Promise<void>;
}

function follow(client: AgentClient, sessionId: string, afterSeq: number): Reader {
  const stop = new AbortController();
  const reader: Reader = {
    sessionId,
    seq: afterSeq,
    rejoins: 0,
    async leave() {
      stop.abort();
      await readPromise;
    },
  };
  const readPromise = (async () => {
    const onRejoin = () => void (reader.rejoins += 1);
    for await (const event of client.sessions.follow(
      { sessionId, after: afterSeq },
      { signal: stop.signal, onRejoin },
    ))
      // When an event is missing, the client itself reads again from the last seq.
      if ('seq' in event) reader.seq = event.seq;
  })().catch((error: unknown) => {
    if (!stop.signal.aborted) console.error(`The stream of ${sessionId} ended: ${String(error)}`);
  });
  return reader;
}

/** Seconds of processor time; a tick of Linux is a hundredth. */
function readProcessorSeconds(pid: number): number {
  const ticks = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ').pop()?.split(' ').slice(11, 13) ?? [];
  return ticks.reduce((sum, tick) => sum + Number(tick), 0) / 100;
}

/** Megabytes a minute, by least squares. */
function slopeOf(samples: readonly Sample[]): number {
  const meanOf = (pick: (sample: Sample) => number) =>
    samples.reduce((sum, sample) => sum + pick(sample), 0) / samples.length;
  const [meanMinute, meanMegabytes] = [meanOf(({ minute }) => minute), meanOf(({ megabytes }) => megabytes)];
  const covariance = meanOf((sample) => (sample.minute - meanMinute) * (sample.megabytes - meanMegabytes));
  return covariance / meanOf(({ minute }) => (minute - meanMinute) ** 2);
}

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, Math.max(0, ms)));

async function load(client: AgentClient, readers: Reader[], untilMs: number): Promise<number> {
  const gapMs = 60_000 / turnsPerMinute;
  const wait = { headers: { prefer: 'wait=60' } };
  let turns = 0;
  for (let nextMs = performance.now(); nextMs < untilMs; nextMs += gapMs) {
    await pause(nextMs - performance.now());
    turns += 1;
    if (turns % turnsPerOwnSession === 0) {
      const { id: sessionId } = await client.sessions.create({});
      await client.sessions.prompt({ sessionId, text: 'TOK=40' }, wait);
      await client.sessions.remove({ sessionId });
      continue;
    }
    const { sessionId } = readers[turns % readers.length] as Reader;
    await client.sessions.prompt({ sessionId, text: `Turn ${turns}: TOK=40` }, wait);
    if (turns % turnsPerMinute === 1) {
      const index = Math.floor(turns / turnsPerMinute) % readers.length;
      const reader = readers[index] as Reader;
      await reader.leave();
      readers[index] = follow(client, reader.sessionId, reader.seq);
    }
  }
  return turns;
}

async function sampleUntil(pid: number, untilMs: number): Promise<Sample[]> {
  const startMs = performance.now();
  const samples: Sample[] = [];
  console.log('minute;resident MB;processor s;load');
  for (let nextMs = startMs; nextMs < untilMs; nextMs += sampleSeconds * 1_000) {
    await pause(nextMs - performance.now());
    const sample = { minute: (performance.now() - startMs) / 60_000, megabytes: readResidentMb(pid) };
    samples.push(sample);
    const figures = [sample.minute, sample.megabytes, readProcessorSeconds(pid), loadavg()[0] ?? 0];
    console.log(figures.map((figure) => figure.toFixed(2)).join(';'));
  }
  return samples;
}

/** The sessions whose stream does not have the newest event within ten seconds. */
async function findBehind(client: AgentClient, readers: readonly Reader[]): Promise<string[]> {
  const untilMs = performance.now() + 10_000;
  const lateSessions: string[] = [];
  for (const reader of readers) {
    const { headSeq } = await client.sessions.get({ sessionId: reader.sessionId });
    while (reader.seq < headSeq && performance.now() < untilMs) await pause(100);
    if (reader.seq !== headSeq) lateSessions.push(`${reader.sessionId}: ${reader.seq} of ${headSeq}`);
  }
  return lateSessions;
}

function isSteady({ minute }: Sample): boolean {
  return minute >= warmMinutes;
}

function describeMemory(samples: readonly Sample[]): string {
  const sizes = samples.map(({ megabytes }) => megabytes);
  const [least, most, last] = [Math.min(...sizes), Math.max(...sizes), sizes.at(-1) ?? Number.NaN];
  return (
    `resident after ${warmMinutes} minutes: ${least.toFixed(1)} to ${most.toFixed(1)} MB, ` +
    `last ${last.toFixed(1)} MB, ${samples.length} samples`
  );
}

async function run(folder: string): Promise<void> {
  const agent = await startScriptedAgent(folder);
  try {
    const { client, pid } = agent;
    const readers: Reader[] = [];
    for (let index = 0; index < streams; index += 1)
      readers.push(follow(client, (await client.sessions.create({})).id, 0));
    const stop = new AbortController();
    let events = 0;
    const followingAll = (async () => {
      for await (const event of client.sessions.followAll({}, { signal: stop.signal }))
        if ('seq' in event) events += 1;
    })();
    const processorBefore = readProcessorSeconds(pid);
    const untilMs = performance.now() + minutes * 60_000;
    const [turns, samples] = await Promise.all([load(client, readers, untilMs), sampleUntil(pid, untilMs)]);
    const processorSeconds = readProcessorSeconds(pid) - processorBefore;
    const lateSessions = await findBehind(client, readers);
    stop.abort();
    await followingAll;
    await Promise.all(readers.map((reader) => reader.leave()));
    const processorPercent = (100 * processorSeconds) / (minutes * 60);
    const slope = slopeOf(samples.filter(isSteady));
    console.log(
      [
        `${turns} turns, ${streams} streams and ${events} events of all sessions in ${minutes} minutes`,
        `processor time of the agent: ${processorPercent.toFixed(1)} % of one core`,
        describeMemory(samples.filter(isSteady)),
        `slope: ${slope.toFixed(3)} MB a minute (below ${maxSlope} is the target)`,
        `reconnects: ${readers.reduce((sum, { rejoins }) => sum + rejoins, 0)}`,
        `streams behind: ${lateSessions.length}`,
        ...lateSessions,
      ].join('\n'),
    );
    process.exitCode = slope < maxSlope && lateSessions.length === 0 ? 0 : 1;
  } finally {
    await agent.stop();
  }
}

const folder = mkdtempSync(join(tmpdir(), 'townhall-soak-'));
try {
  await run(folder);
} finally {
  rmSync(folder, { recursive: true, force: true });
}
