// The measurements of one target in one round. Each starts a load process of its own.
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { LoadOptions, LoadResult } from './load.ts';
import { readProcessorTime, readResidentMb } from './process-usage.ts';
import type { Target } from './targets.ts';

/** One round of a target. Times in milliseconds, memory in mebibytes, processor time in milliseconds a call. */
export interface Figures {
  oneClientMs: number;
  perSecond: number;
  p99Ms: number;
  firstByteMs: number;
  streamsPerSecond: number;
  mainThreadMs: number | null;
  otherThreadsMs: number | null;
  /** Processor time of both for a request that is authenticated and validated, and refused before any model is called. */
  emptyMs: number | null;
  memoryMb: number | null;
  startMs: number | null;
  errors: number;
}

const prompt = 'What does a town hall keep under its floor? '.repeat(7);
const runFile = promisify(execFile);

async function load(
  target: Target,
  options: Pick<LoadOptions, 'clients'> & Partial<LoadOptions> & { model: string; streams?: boolean },
): Promise<LoadResult> {
  const { model, streams, ...rest } = options;
  const body = {
    model,
    messages: [{ role: 'user', content: prompt }],
    ...(streams === true && { stream: true, stream_options: { include_usage: true } }),
  };
  const input: LoadOptions = {
    url: target.url,
    headers: target.headers,
    body,
    expectedStatus: 200,
    ...rest,
  };
  const script = join(import.meta.dirname, 'load.ts');
  const { stdout } = await runFile(process.execPath, [script, JSON.stringify(input)]);
  return JSON.parse(stdout) as LoadResult;
}

export async function measureTarget(target: Target, seconds: number): Promise<Figures> {
  const { wholeModel, streamModel, pid } = target;
  const one = await load(target, { model: wholeModel, clients: 1, calls: 500 });
  const before = pid === null ? null : readProcessorTime(pid);
  const many = await load(target, { model: wholeModel, clients: 32, seconds });
  const after = pid === null ? null : readProcessorTime(pid);
  const first = await load(target, { model: streamModel, streams: true, clients: 1, calls: 100 });
  const streams = await load(target, { model: streamModel, streams: true, clients: 16, seconds });
  const emptyMs = target.restart === undefined ? null : await measureEmpty(target, seconds / 2);
  const memoryMb = pid === null ? null : readResidentMb(pid);
  return {
    oneClientMs: one.p50Ms,
    perSecond: many.perSecond,
    p99Ms: many.p99Ms,
    firstByteMs: first.firstByteMs,
    streamsPerSecond: streams.perSecond,
    mainThreadMs: before && after && (after.mainMs - before.mainMs) / many.calls,
    otherThreadsMs: before && after && (after.otherMs - before.otherMs) / many.calls,
    emptyMs,
    memoryMb,
    startMs: target.restart === undefined ? null : await target.restart(),
    errors: one.errors + many.errors + first.errors + streams.errors,
  };
}

async function measureEmpty(target: Target, seconds: number): Promise<number> {
  const pid = target.pid ?? 0;
  const before = readProcessorTime(pid);
  const { calls } = await load(target, {
    model: 'bench/unknown-model',
    clients: 32,
    seconds,
    expectedStatus: 404,
  });
  const after = readProcessorTime(pid);
  return (after.mainMs + after.otherMs - before.mainMs - before.otherMs) / calls;
}
