// Virtual time: a queue of events (binary heap), each of which belongs to the world
// or to one process. Events of the same millisecond run in random order. A stopped
// process gets its events when it continues, a dead process never gets them.
import type { Random } from './random.ts';

/** A process of the simulation. It has the clocks of its machine. */
export interface Process {
  name: string;
  state: 'running' | 'stopped' | 'dead';
  /**
   * Milliseconds for which the machine was suspended: its monotonic clock stood
   * still then, its wall clock did not.
   */
  suspendedMs: number;
  /** How far its wall clock is ahead of the time of the world. */
  wallOffsetMs: number;
}

export interface ScheduledEvent {
  atMs: number;
  order: number;
  process: Process | null;
  run: (() => void) | null;
}

export interface Scheduler {
  nowMs(): number;
  /** Runs the work after `delayMs`, as an event of the process or, with null, of the world. */
  after(delayMs: number, process: Process | null, run: () => void): ScheduledEvent;
  cancel(event: ScheduledEvent): void;
  /** Runs the next event until `untilMs` and returns it. If there is none, sets the time to `untilMs`. */
  step(untilMs: number): ScheduledEvent | null;
  stop(process: Process): void;
  resume(process: Process): void;
  kill(process: Process): void;
}

export function createScheduler(random: Random): Scheduler {
  const heap: ScheduledEvent[] = [];
  const waitingEvents = new Map<Process, ScheduledEvent[]>();
  let nowMs = 0;

  function scheduleAfter(delayMs: number, process: Process | null, run: () => void): ScheduledEvent {
    const event = { atMs: nowMs + Math.max(0, delayMs), order: random.next(), process, run };
    push(heap, event);
    return event;
  }

  function step(untilMs: number): ScheduledEvent | null {
    for (;;) {
      const firstEvent = heap[0];
      if (firstEvent === undefined || firstEvent.atMs > untilMs) {
        nowMs = Math.max(nowMs, untilMs);
        return null;
      }
      pop(heap);
      const { run, process } = firstEvent;
      if (run === null || process?.state === 'dead') continue;
      if (process?.state === 'stopped') {
        defer(process, firstEvent);
        continue;
      }
      nowMs = Math.max(nowMs, firstEvent.atMs);
      firstEvent.run = null;
      run();
      return firstEvent;
    }
  }

  function defer(process: Process, event: ScheduledEvent): void {
    const events = waitingEvents.get(process);
    if (events === undefined) waitingEvents.set(process, [event]);
    else events.push(event);
  }

  return {
    nowMs: () => nowMs,
    after: scheduleAfter,
    cancel: (event) => void (event.run = null),
    step,
    stop: (process) => void (process.state = process.state === 'running' ? 'stopped' : process.state),
    resume(process) {
      if (process.state !== 'stopped') return;
      process.state = 'running';
      for (const event of waitingEvents.get(process) ?? []) {
        event.atMs = nowMs;
        push(heap, event);
      }
      waitingEvents.delete(process);
    },
    kill(process) {
      process.state = 'dead';
      waitingEvents.delete(process);
    },
  };
}

function precedes(a: ScheduledEvent, b: ScheduledEvent): boolean {
  return a.atMs < b.atMs || (a.atMs === b.atMs && a.order < b.order);
}

function push(heap: ScheduledEvent[], event: ScheduledEvent): void {
  let index = heap.length;
  heap.push(event);
  while (index > 0) {
    const parentIndex = (index - 1) >> 1;
    const parent = heap[parentIndex];
    if (parent === undefined || !precedes(event, parent)) break;
    heap[index] = parent;
    index = parentIndex;
  }
  heap[index] = event;
}

function pop(heap: ScheduledEvent[]): void {
  const lastEntry = heap.pop();
  if (lastEntry === undefined || heap.length === 0) return;
  let index = 0;
  for (;;) {
    let childIndex = 2 * index + 1;
    let child = heap[childIndex];
    if (child === undefined) break;
    const rightChild = heap[childIndex + 1];
    if (rightChild !== undefined && precedes(rightChild, child)) {
      child = rightChild;
      childIndex += 1;
    }
    if (!precedes(child, lastEntry)) break;
    heap[index] = child;
    index = childIndex;
  }
  heap[index] = lastEntry;
}
