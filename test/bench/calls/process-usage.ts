// Reads a process's usage from /proc: processor time of its main thread and of its other threads,
// and memory.
import { readdirSync, readFileSync } from 'node:fs';

const ticksPerSecond = 100;

export interface ProcessorTime {
  mainMs: number;
  /** Garbage collection, compilation, the file system, and the worker of the embedded database. */
  otherMs: number;
}

export function readProcessorTime(pid: number): ProcessorTime {
  let [mainMs, otherMs] = [0, 0];
  for (const thread of readdirSync(`/proc/${pid}/task`)) {
    const spentMs = readThreadMs(`/proc/${pid}/task/${thread}/stat`);
    if (Number(thread) === pid) mainMs += spentMs;
    else otherMs += spentMs;
  }
  return { mainMs, otherMs };
}

/** User and system time of one thread; fields 14 and 15 of proc(5), after the name in parentheses. */
function readThreadMs(path: string): number {
  const fields = readFileSync(path, 'utf8').split(') ')[1]?.split(' ') ?? [];
  return ((Number(fields[11]) + Number(fields[12])) / ticksPerSecond) * 1_000;
}

/** Resident memory in mebibytes. */
export function readResidentMb(pid: number): number {
  return Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? 0) / 1_024;
}
