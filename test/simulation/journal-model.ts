// Model of the journal (src/gateway/credits/journal/journal.ts): folders on the disk
// of a machine, lines that are in memory, written or synced. A killed process leaves
// the written lines, a power cut the synced lines and a random part of the rest.
import { Problem } from '../../src/kernel/problem.ts';
import type {
  AbandonedJournal,
  AsideReason,
  ChargeLine,
  Journal,
  JournalDirectory,
  JournalLine,
} from '../../src/gateway/credits/journal/journal.ts';
import { larger } from './bigint.ts';
import type { Random } from './random.ts';
import type { Process, Scheduler } from './scheduler.ts';

interface StoredLine {
  seq: number;
  line: JournalLine;
}

export interface JournalFolder {
  journalId: string;
  generation: string;
  lines: StoredLine[];
  lastSeq: number;
  /** Lines up to here are in the page cache: they survive a kill. */
  writtenSeq: number;
  /** Lines up to here are on disk: they survive a power cut. */
  syncedSeq: number;
  /** Lines up to here were deleted. */
  deletedSeq: number;
  lockedBy: Process | null;
  state: 'present' | 'removed' | AsideReason;
}

/** The disk of one machine. */
export interface Disk {
  folders: Map<string, JournalFolder>;
  /** Whether writes fail, including writes to a new file. */
  isFailing: boolean;
}

export interface JournalModelOptions {
  disk: Disk;
  process: Process;
  scheduler: Scheduler;
  random: Random;
  journalId: string;
  onAppend?: (line: JournalLine) => void;
}

export function createDisk(): Disk {
  return { folders: new Map(), isFailing: false };
}

/** The journals of a machine as one of its processes sees them. */
export function journalDirectoryModel(options: JournalModelOptions): JournalDirectory {
  const { disk, process, journalId } = options;
  return {
    open: (generation) =>
      answerLater(options, () => {
        if (disk.isFailing) throw journalUnavailable();
        const folder = createFolder(journalId, generation, process);
        disk.folders.set(journalId, folder);
        return new JournalModel(folder, options);
      }),
    takeAbandoned: () =>
      answerLater(options, () => {
        const abandonedFolders = [...disk.folders.values()].filter(isAbandoned);
        for (const folder of abandonedFolders) folder.lockedBy = process;
        return abandonedFolders.map((folder) => abandonedJournalModel(folder, options));
      }),
  };
}

/** The process was killed: lines that the kernel has stay. */
export function loseUnwrittenLines(disk: Disk, process: Process): void {
  for (const folder of foldersOf(disk, process)) {
    cutAfter(folder, folder.writtenSeq);
    folder.lockedBy = null;
  }
}

/**
 * The power failed: a random number of the first unsynced lines survives, and the line after them is torn.
 */
export function loseUnsyncedLines(disk: Disk, process: Process, random: Random): void {
  for (const folder of foldersOf(disk, process)) {
    cutAfter(folder, random.between(folder.syncedSeq, Math.max(folder.syncedSeq, folder.writtenSeq)));
    folder.lockedBy = null;
  }
}

class JournalModel implements Journal {
  readonly journalId: string;
  health: Journal['health'] = 'ok';
  private readonly folder: JournalFolder;
  private readonly options: JournalModelOptions;

  constructor(folder: JournalFolder, options: JournalModelOptions) {
    this.journalId = folder.journalId;
    this.folder = folder;
    this.options = options;
  }

  append(line: JournalLine): number {
    const { folder } = this;
    if (this.health === 'failed' && line.kind === 'sent') throw journalUnavailable();
    if (this.health === 'failed' && line.kind === 'checkpoint') return folder.lastSeq;
    folder.lastSeq += 1;
    folder.lines.push({ seq: folder.lastSeq, line });
    this.options.onAppend?.(line);
    if (!this.options.disk.isFailing && this.health === 'ok') folder.writtenSeq = folder.lastSeq;
    return folder.lastSeq;
  }

  sync(seq: number): Promise<void> {
    const { folder } = this;
    if (seq <= folder.syncedSeq || seq <= folder.deletedSeq) return Promise.resolve();
    const target = folder.lastSeq;
    const { scheduler, process, random, disk } = this.options;
    return new Promise((resolve, reject) => {
      scheduler.after(syncMs(random), process, () => {
        if (disk.isFailing) {
          this.fail();
          reject(journalUnavailable());
          return;
        }
        // The first sync after a failure writes the lines that only the process had to a new file.
        this.health = 'ok';
        folder.writtenSeq = Math.max(folder.writtenSeq, target);
        folder.syncedSeq = Math.max(folder.syncedSeq, target);
        resolve();
      });
    });
  }

  markApplied(seq: number): void {
    deleteUpTo(this.folder, seq);
  }

  async *charges(afterSeq: number): AsyncGenerator<ChargeLine[]> {
    const lines = finalLines(this.folder, afterSeq).filter(({ seq }) => seq <= this.folder.syncedSeq);
    if (lines.length > 0) yield lines;
  }

  close(): Promise<void> {
    return this.sync(this.folder.lastSeq).then(() => {
      this.folder.lockedBy = null;
    });
  }

  private fail(): void {
    if (this.health === 'failed') return;
    this.health = 'failed';
    this.retry();
  }

  private retry(): void {
    const { scheduler, process, disk } = this.options;
    scheduler.after(5_000, process, () => {
      if (disk.isFailing) {
        this.retry();
        return;
      }
      this.health = 'ok';
      this.folder.writtenSeq = this.folder.lastSeq;
      this.folder.syncedSeq = this.folder.lastSeq;
    });
  }
}

function abandonedJournalModel(folder: JournalFolder, options: JournalModelOptions): AbandonedJournal {
  const { journalId, generation } = folder;

  function release(state: JournalFolder['state']): () => void {
    return () => {
      folder.state = state;
      folder.lockedBy = null;
    };
  }

  return {
    journalId,
    generation,
    async *charges(afterSeq) {
      await answerLater(options, () => finishSentCalls(folder, options.disk));
      const lines = finalLines(folder, afterSeq);
      if (lines.length > 0) yield lines;
    },
    // The folder stays for ten minutes, so that a database that lost its last commits gets the charges again.
    remove: () => answerLater(options, release('present')),
    putAside: (reason) => answerLater(options, release(reason)),
    unlock: () => void (folder.lockedBy = null),
  };
}

/** Appends a final line, synced, for each call that was sent and has none. */
function finishSentCalls(folder: JournalFolder, disk: Disk): void {
  const openLines = new Map<string, Extract<JournalLine, { kind: 'sent' }>>();
  const credits = new Map<string, bigint>();
  for (const { line } of folder.lines) {
    if (line.kind === 'final') openLines.delete(line.usageId);
    else credits.set(line.usageId, larger(line.credits, credits.get(line.usageId) ?? 0n));
    if (line.kind === 'sent') openLines.set(line.usageId, line);
  }
  if (openLines.size > 0 && disk.isFailing) throw journalUnavailable();
  for (const { usageId, call, allotmentId, facts } of openLines.values()) {
    folder.lastSeq += 1;
    const line: JournalLine = {
      kind: 'final',
      usageId,
      call,
      allotmentId,
      credits: credits.get(usageId) ?? 0n,
      facts: { ...emptyFacts, ...facts, outcome: 'upstream_failed', estimated: true },
    };
    folder.lines.push({ seq: folder.lastSeq, line });
  }
  folder.writtenSeq = folder.lastSeq;
  folder.syncedSeq = folder.lastSeq;
}

const emptyFacts = {
  action: 'stream',
  model: null,
  provider: null,
  tokens: { input: 0, cachedInput: 0, cacheWrite: 0, output: 0, reasoning: 0 },
  units: {},
  ttftMs: null,
  durationMs: 0,
};

function createFolder(journalId: string, generation: string, process: Process): JournalFolder {
  return {
    journalId,
    generation,
    lines: [],
    lastSeq: 0,
    writtenSeq: 0,
    syncedSeq: 0,
    deletedSeq: 0,
    lockedBy: process,
    state: 'present',
  };
}

function isAbandoned(folder: JournalFolder): boolean {
  return folder.state === 'present' && (folder.lockedBy === null || folder.lockedBy.state === 'dead');
}

function foldersOf(disk: Disk, process: Process): JournalFolder[] {
  return [...disk.folders.values()].filter(({ lockedBy }) => lockedBy === process);
}

function cutAfter(folder: JournalFolder, seq: number): void {
  folder.lines = folder.lines.filter((line) => line.seq <= seq);
  folder.lastSeq = Math.min(folder.lastSeq, seq);
  folder.writtenSeq = folder.lastSeq;
  folder.syncedSeq = folder.lastSeq;
}

/**
 * Deletes finished calls at once, where the real journal waits for ten minutes; the
 * lines of calls in progress stay.
 */
function deleteUpTo(folder: JournalFolder, seq: number): void {
  const finishedUsageIds = new Set<string>();
  for (const storedLine of folder.lines)
    if (storedLine.seq <= seq && storedLine.line.kind === 'final')
      finishedUsageIds.add(storedLine.line.usageId);
  folder.lines = folder.lines.filter(
    (storedLine) => storedLine.seq > seq || !finishedUsageIds.has(storedLine.line.usageId),
  );
  folder.deletedSeq = Math.max(folder.deletedSeq, seq);
}

function finalLines(folder: JournalFolder, afterSeq: number): ChargeLine[] {
  return folder.lines.flatMap(({ seq, line }) =>
    line.kind === 'final' && seq > afterSeq
      ? [
          {
            seq,
            usageId: line.usageId,
            call: line.call,
            allotmentId: line.allotmentId,
            credits: line.credits,
            facts: line.facts,
          },
        ]
      : [],
  );
}

/** Disk work of a few milliseconds, at the end of which it succeeds or throws. */
function answerLater<T>({ scheduler, process, random }: JournalModelOptions, work: () => T): Promise<T> {
  return new Promise((resolve, reject) => {
    scheduler.after(random.between(0, 3), process, () => {
      try {
        resolve(work());
      } catch (error) {
        reject(error);
      }
    });
  });
}

function syncMs(random: Random): number {
  return random.chance(0.02) ? random.between(20, 400) : random.between(0, 2);
}

function journalUnavailable(): Problem {
  return new Problem('unavailable', 'journal_unavailable', 'The journal cannot be written.');
}
