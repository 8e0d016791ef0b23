// V8 flags that keep a server's heap small. V8 accepts each of them at run time, and the benchmarks show no
// cost.
import { performance } from 'node:perf_hooks';
import { getHeapSpaceStatistics, setFlagsFromString } from 'node:v8';

/**
 * For a gateway, called once it listens. When 500 streams begin together, V8's allocation-site
 * pretenuring puts their events into the old generation, where only a full collection frees them: 200
 * MB of garbage instead of 2 MB. The young generation keeps the size that it has after the start until
 * `saveMemoryWhileIdle` sees a busy moment, since a larger one keeps buffers of finished streams.
 */
export function limitStreamGarbage(): void {
  setFlagsFromString('--no-allocation-site-pretenuring');
  setFlagsFromString('--semi-space-growth-factor=1');
}

/**
 * Limits the young generation of an agent, before it loads. An agent is mostly idle, so a small young
 * generation is enough and saves 10% of its memory.
 */
export function limitYoungGeneration(): void {
  setFlagsFromString('--semi-space-growth-factor=1');
}

// V8 prints an error for an unknown flag, and Node 22 has an older V8.
const hasMemorySaver = Number(process.versions.node.split('.')[0]) >= 24;
// The event loop is quiet while it works less than this share of the time, and idle after a quiet second.
const idleUtilization = 0.05;
const checkEveryMs = 200;
const quietChecksUntilIdle = 5;
/**
 * The young generation of a busy server, both semi-spaces together, grows until it has this size; the last
 * step may end at twice as much. V8's own limit takes 100 MB more and saves no processor time
 * (docs/decisions/2026-11-22-processor-time.md).
 */
const enoughYoungBytes = 16 * 1024 * 1024;
// The size doubles with each collection, and a small young generation is collected often, so it can grow
// past its limit within a longer interval.
const checkGrowthEveryMs = 20;

export interface IdleOptions {
  /** Whether the young generation may grow in busy moments; true by default. */
  growsWhileBusy?: boolean;
  /** Returns the share of the time since the previous call during which the event loop was busy. */
  utilization?: () => number;
  /** The size of the young generation. */
  youngBytes?: () => number;
  setFlag?: (flag: string) => void;
}

/**
 * Starts V8's memory saver in a server that listens. While the event loop is idle, V8's memory
 * saver collects the heaps of all threads, the embedded database's too, and returns their pages;
 * this shrinks the young generation. Under load its collections would cost 0.3 ms of processor time
 * per call, and collections of such a small young generation another 0.1 ms. So a busy moment
 * switches it off and lets the young generation grow to `enoughYoungBytes`.
 */
export function saveMemoryWhileIdle({
  growsWhileBusy = true,
  utilization = createUtilizationMeter(),
  youngBytes = readYoungBytes,
  setFlag = setFlagsFromString,
}: IdleOptions = {}): void {
  const growth = createGrowth(youngBytes, setFlag);
  let wasIdle: boolean | undefined;
  let quietChecks = 0;
  setInterval(() => {
    quietChecks = utilization() < idleUtilization ? quietChecks + 1 : 0;
    const isIdle = quietChecks >= quietChecksUntilIdle;
    const isUndecided = !isIdle && quietChecks > 0;
    if (isUndecided) return;
    if (growsWhileBusy && !isIdle) growth.start();
    if (isIdle === wasIdle) return;
    wasIdle = isIdle;
    if (isIdle) growth.stop();
    if (hasMemorySaver) setFlag(isIdle ? '--memory-saver-mode' : '--no-memory-saver-mode');
  }, checkEveryMs).unref();
}

/** Lets the young generation grow from `start` until it has its size or `stop` is called. */
function createGrowth(youngBytes: () => number, setFlag: (flag: string) => void) {
  let timer: NodeJS.Timeout | undefined;
  const stop = (): void => {
    if (timer === undefined) return;
    clearInterval(timer);
    timer = undefined;
    setFlag('--semi-space-growth-factor=1');
  };
  return {
    start(): void {
      if (timer !== undefined || youngBytes() >= enoughYoungBytes) return;
      setFlag('--semi-space-growth-factor=2');
      timer = setInterval(() => {
        if (youngBytes() >= enoughYoungBytes) stop();
      }, checkGrowthEveryMs).unref();
    },
    stop,
  };
}

function readYoungBytes(): number {
  return getHeapSpaceStatistics().find(({ space_name: name }) => name === 'new_space')?.space_size ?? 0;
}

/** Returns a function that measures the event loop's utilization since its last call. */
function createUtilizationMeter(): () => number {
  let previous = performance.eventLoopUtilization();
  return () => {
    const current = performance.eventLoopUtilization();
    const { utilization } = performance.eventLoopUtilization(current, previous);
    previous = current;
    return utilization;
  };
}
