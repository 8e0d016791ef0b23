// Deletes segments ten minutes after the database was read to have applied them. The delay is
// for a database that loses its last commits, as a promoted standby does: its charges are
// applied again from here.
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { pause } from '../../../kernel/async.ts';
import type { Clock } from '../../../kernel/clock.ts';
import type { Log } from '../../../kernel/log.ts';
import { segmentName } from './segment-file.ts';

export const keepMs = 10 * 60_000;

export interface RetentionOptions {
  folder: string;
  log: Log;
  clock: Pick<Clock, 'sleep' | 'monotonicMs'>;
  /** Makes the lines of open calls up to this number durable in a later segment. */
  copyForward(upTo: number): Promise<void>;
}

export interface Retention {
  addSegment(firstSeq: number): void;
  /** The database was read to have applied all lines up to this number. */
  markApplied(seq: number): void;
  close(): Promise<void>;
}

interface Segment {
  firstSeq: number;
  appliedAtMs: number | null;
}

export function createRetention(options: RetentionOptions): Retention {
  const { folder, log, clock } = options;
  const shutdown = new AbortController();
  // In the order of their lines; the last segment is still being written.
  const segments: Segment[] = [];
  let appliedSeq = 0;
  let loop = Promise.resolve();
  let isRunning = false;

  function stampAppliedSegments(): void {
    for (const [index, segment] of segments.entries()) {
      const next = segments[index + 1];
      if (next !== undefined && next.firstSeq - 1 <= appliedSeq) segment.appliedAtMs ??= clock.monotonicMs();
    }
    if (!isRunning) loop = run();
  }

  async function run(): Promise<void> {
    isRunning = true;
    try {
      await deleteAppliedSegments(segments, options, shutdown.signal);
    } catch (error) {
      log.warn({ err: error, folder }, 'segments of the journal were not deleted');
    } finally {
      isRunning = false;
    }
  }

  return {
    addSegment(firstSeq) {
      // When a segment failed before any of its lines was synced, its replacement has the same
      // name.
      if (segments.at(-1)?.firstSeq !== firstSeq) segments.push({ firstSeq, appliedAtMs: null });
      stampAppliedSegments();
    },
    markApplied(seq) {
      if (seq <= appliedSeq) return;
      appliedSeq = seq;
      stampAppliedSegments();
    },
    async close() {
      shutdown.abort();
      await loop;
    },
  };
}

/**
 * Deletes segments from the oldest on, each when its delay is over. Stops at the first segment that
 * is not fully applied.
 */
async function deleteAppliedSegments(
  segments: Segment[],
  { folder, clock, copyForward }: RetentionOptions,
  signal: AbortSignal,
): Promise<void> {
  for (;;) {
    const [oldestSegment, nextSegment] = segments;
    const appliedAtMs = oldestSegment?.appliedAtMs ?? null;
    if (oldestSegment === undefined || appliedAtMs === null || nextSegment === undefined) return;
    if (signal.aborted) return;
    const waitMs = appliedAtMs + keepMs - clock.monotonicMs();
    if (waitMs > 0) {
      await pause(waitMs, { clock, signal });
      continue;
    }
    await copyForward(nextSegment.firstSeq - 1);
    await rm(join(folder, segmentName(oldestSegment.firstSeq)), { force: true });
    segments.shift();
  }
}
