// A journal on a real folder, lines to write to it, and a clock that a test moves.
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';
import type { Clock } from '../../../../src/kernel/clock.ts';
import type { Log } from '../../../../src/kernel/log.ts';
import {
  type JournalDirectoryOptions,
  journalDirectory,
} from '../../../../src/gateway/credits/journal/directory.ts';
import type {
  AbandonedJournal,
  ChargeLine,
  Journal,
  JournalDirectory,
} from '../../../../src/gateway/credits/journal/journal.ts';

export * from './sample-lines.ts';

export interface JournalWorld {
  path: string;
  clock: ManualClock;
  /** Messages of errors in the log. */
  alarms: string[];
  directory(options?: Partial<JournalDirectoryOptions>): JournalDirectory;
  open(options?: Partial<JournalDirectoryOptions>): Promise<Journal>;
  /** The names of the segments of a journal. */
  segments(journal: { journalId: string }): Promise<string[]>;
  /** Locks and returns the only abandoned journal. */
  take(options?: Partial<JournalDirectoryOptions>): Promise<AbandonedJournal>;
}

export async function openJournalWorld(): Promise<JournalWorld> {
  const path = await mkdtemp(join(tmpdir(), 'journal-'));
  onTestFinished(() => rm(path, { recursive: true, force: true }));
  const clock = manualClock();
  const alarms: string[] = [];
  const log = alarmLog(alarms);
  const directory = (options: Partial<JournalDirectoryOptions> = {}): JournalDirectory =>
    journalDirectory({ path, clock, log, segmentBytes: 64 * 1024, ...options });
  return {
    path,
    clock,
    alarms,
    directory,
    open: (options) => directory(options).open('gen-1'),
    segments: async ({ journalId }) =>
      (await readdir(join(path, journalId))).filter((name) => name.endsWith('.segment')).sort(),
    async take(options) {
      const [journal, ...otherJournals] = await directory(options).takeAbandoned();
      if (journal === undefined || otherJournals.length > 0)
        throw new Error('Expected exactly one abandoned journal.');
      return journal;
    },
  };
}

export async function readCharges(journal: Pick<Journal, 'charges'>, afterSeq = 0): Promise<ChargeLine[]> {
  const charges: ChargeLine[] = [];
  for await (const batch of journal.charges(afterSeq)) charges.push(...batch);
  return charges;
}

export interface ManualClock extends Clock {
  advance(ms: number): void;
}

export function manualClock(): ManualClock {
  let nowMs = 0;
  const sleepers = new Set<{ dueMs: number; wake(): void }>();
  return {
    now: () => new Date(nowMs),
    monotonicMs: () => nowMs,
    sleep: (ms, signal) =>
      new Promise((resolve, reject) => {
        signal?.throwIfAborted();
        const sleeper = { dueMs: nowMs + ms, wake: resolve };
        sleepers.add(sleeper);
        signal?.addEventListener('abort', () => {
          sleepers.delete(sleeper);
          reject(signal.reason);
        });
      }),
    advance(ms) {
      nowMs += ms;
      for (const sleeper of sleepers)
        if (sleeper.dueMs <= nowMs) {
          sleepers.delete(sleeper);
          sleeper.wake();
        }
    },
  };
}

function alarmLog(alarms: string[]): Log {
  const log: Log = {
    debug: () => undefined,
    info: () => undefined,
    warn: () => undefined,
    error: (_fields, message) => void alarms.push(message),
    child: () => log,
  };
  return log;
}
