// The measurements of one target in one round. Each starts a load process of its own.
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { LoadOptions, LoadResult } from './load.ts';
import { readProcessorTime, readResidentMb } from './process-usage.ts';
import type { Target } from './targets.ts';

/** The parts of one round: whole answers, streams, and requests refused before any model call. */
export const allParts = ['calls', 'streams', 'empty'] as const;
export type Part = (typeof allParts)[number];

/**
 * One round of a target; null for a figure that was not measured. Times in milliseconds, memory in
 * mebibytes, processor time in milliseconds a call.
 */
export interface Figures {
  oneClientMs: number | null;
  perSecond: number | null;
  p99Ms: number | null;
  mainThreadMs: number | null;
  otherThreadsMs: number | null;
  firstByteMs: number | null;
  streamsPerSecond: number | null;
  /** Processor time of the main thread for a stream of 100 chunks. */
  streamMainMs: number | null;
  /**
   * Processor time of all threads for a request that is authenticated, validated and refused before
   * any model call.
   */
  emptyMs: number | null;
  memoryMb: number | null;
  startMs: number | null;
  errors: number;
}

const nothingMeasured: Figures = {
  oneClientMs: null,
  perSecond: null,
  p99Ms: null,
  mainThreadMs: null,
  otherThreadsMs: null,
  firstByteMs: null,
  streamsPerSecond: null,
  streamMainMs: null,
  emptyMs: null,
  memoryMb: null,
  startMs: null,
  errors: 0,
};

const prompt = 'What does a town hall keep under its floor? '.repeat(7);
const runFile = promisify(execFile);

async function load(
  target: Target,
  options: Pick<LoadOptions, 'clients'> & Partial<LoadOptions> & { model: string; streams?: boolean },
): Promise<LoadResult> {
  const { model, streams, ...loadOptions } = options;
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
    ...loadOptions,
  };
  const script = join(import.meta.dirname, 'load.ts');
  const { stdout } = await runFile(process.execPath, [script, JSON.stringify(input)]);
  return JSON.parse(stdout) as LoadResult;
}

export async function measureTarget(
  target: Target,
  { seconds, parts }: { seconds: number; parts: readonly Part[] },
): Promise<Figures> {
  const figures = { ...nothingMeasured, startMs: target.startMs };
  if (parts.includes('calls')) addMeasurement(figures, await measureCalls(target, seconds));
  if (parts.includes('streams')) addMeasurement(figures, await measureStreams(target, seconds));
  // Only a gateway can be restarted, and only a gateway refuses an unknown model.
  if (parts.includes('empty') && target.restart !== undefined)
    addMeasurement(figures, await measureEmpty(target, seconds / 2));
  return { ...figures, memoryMb: target.pid === null ? null : readResidentMb(target.pid) };
}

function addMeasurement(figures: Figures, measurement: Partial<Figures>): void {
  const errors = figures.errors + (measurement.errors ?? 0);
  Object.assign(figures, measurement, { errors });
}

async function measureCalls(target: Target, seconds: number): Promise<Partial<Figures>> {
  const model = target.wholeModel;
  const singleClient = await load(target, { model, clients: 1, calls: 500 });
  const { result, mainMs, otherMs } = await loadWithUsage(target, { model, clients: 32, seconds });
  return {
    oneClientMs: singleClient.p50Ms,
    perSecond: result.perSecond,
    p99Ms: result.p99Ms,
    mainThreadMs: mainMs,
    otherThreadsMs: otherMs,
    errors: singleClient.errors + result.errors,
  };
}

async function measureStreams(target: Target, seconds: number): Promise<Partial<Figures>> {
  const model = target.streamModel;
  const singleClient = await load(target, { model, streams: true, clients: 1, calls: 100 });
  const { result, mainMs } = await loadWithUsage(target, { model, streams: true, clients: 16, seconds });
  return {
    firstByteMs: singleClient.firstByteMs,
    streamsPerSecond: result.perSecond,
    streamMainMs: mainMs,
    errors: singleClient.errors + result.errors,
  };
}

async function measureEmpty(target: Target, seconds: number): Promise<Partial<Figures>> {
  const { result, mainMs, otherMs } = await loadWithUsage(target, {
    model: 'bench/unknown-model',
    clients: 32,
    seconds,
    expectedStatus: 404,
  });
  return { emptyMs: Number(mainMs) + Number(otherMs), errors: result.errors };
}

/** Runs the load and adds the target's processor time per call; null for the provider. */
async function loadWithUsage(
  target: Target,
  options: Parameters<typeof load>[1],
): Promise<{ result: LoadResult; mainMs: number | null; otherMs: number | null }> {
  const { pid } = target;
  if (pid === null) return { result: await load(target, options), mainMs: null, otherMs: null };
  const timeBefore = readProcessorTime(pid);
  const result = await load(target, options);
  const timeAfter = readProcessorTime(pid);
  return {
    result,
    mainMs: (timeAfter.mainMs - timeBefore.mainMs) / result.calls,
    otherMs: (timeAfter.otherMs - timeBefore.otherMs) / result.calls,
  };
}
