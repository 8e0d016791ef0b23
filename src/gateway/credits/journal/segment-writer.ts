// Write-ahead log writer with group commit. Lines of one turn of the event loop go to
// the file in one write; one fdatasync is in flight at a time, and the next one covers
// every line written meanwhile.
//
// A file whose write or fdatasync failed is never synced again: after a failed fsync
// Linux marks the pages clean, and a second fsync would report success for lines that are
// not on disk. Lines that are not known to be on disk are held in memory and go to a new
// file; when that fails too, the writer is `failed` and tries another file every 5 s.
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { pause } from '../../../kernel/async.ts';
import type { Clock } from '../../../kernel/clock.ts';
import type { Log } from '../../../kernel/log.ts';
import type { Problem } from '../../../kernel/problem.ts';
import { type Block, createLineBuffer } from './line-buffer.ts';
import { maxTextBytes } from './line-format.ts';
import { journalUnavailable } from './problems.ts';
import { type SegmentFile, type SegmentFiles, segmentName } from './segment-file.ts';

export interface SegmentWriterOptions {
  folder: string;
  files: SegmentFiles;
  log: Log;
  clock: Pick<Clock, 'sleep' | 'monotonicMs'>;
  /** The size of a segment, which is allocated when the segment is created. */
  segmentBytes: number;
  /** Called with the first number of each new segment. */
  onSegment(firstSeq: number): void;
  /** Called with the duration of each fdatasync. */
  onSync(durationMs: number): void;
}

interface OpenSegment {
  file: SegmentFile;
  length: number;
}

type Phase =
  /** Lines are written to `segment` immediately. */
  | { name: 'open'; segment: OpenSegment }
  /** `segment` is full: it is synced, then the next one is opened. New lines wait in memory. */
  | { name: 'full'; segment: OpenSegment }
  /** `segment` failed; its lines go to another one. */
  | { name: 'broken'; segment: OpenSegment; error: unknown }
  /** The replacement failed too; another one is tried every 5 s. */
  | { name: 'failed'; error: unknown }
  | { name: 'closed' };

interface Waiter {
  seq: number;
  resolve(): void;
  reject(error: Problem): void;
}

// Above this size, lines are synced although no call waits for them, to limit the lines in memory.
const idleSyncBytes = 1024 * 1024;
const heldBytesLimit = 16 * 1024 * 1024;
const retryMs = 5_000;
const spareName = 'spare';

export class SegmentWriter {
  readonly #options: SegmentWriterOptions;
  readonly #buffer = createLineBuffer();
  readonly #shutdown = new AbortController();
  #phase: Phase;
  #lastSeq = 0;
  #writtenSeq = 0;
  #syncedSeq = 0;
  /** Lines that are not known to be on disk, including written ones. */
  #blocks: Block[] = [];
  #heldBytes = 0;
  #waiters: Waiter[] = [];
  #isTurnScheduled = false;
  #work: Promise<void> | null = null;
  #spare: Promise<SegmentFile> | null = null;
  /** Monotonic. After a failure, the next segment is prepared in advance only from then on. */
  #prepareAfterMs = Number.NEGATIVE_INFINITY;

  private constructor(options: SegmentWriterOptions, segment: OpenSegment) {
    this.#options = options;
    this.#phase = { name: 'open', segment };
  }

  /** Creates the first segment of a new folder. Rejects with the system's error. */
  static async open(options: SegmentWriterOptions): Promise<SegmentWriter> {
    const { folder, files, segmentBytes, onSegment } = options;
    const sparePath = join(folder, spareName);
    const file = await files.create(sparePath, segmentBytes);
    await files.publish(sparePath, join(folder, segmentName(1)));
    onSegment(1);
    return new SegmentWriter(options, { file, length: 0 });
  }

  get syncedSeq(): number {
    return this.#syncedSeq;
  }

  get lastSeq(): number {
    return this.#lastSeq;
  }

  get isFailed(): boolean {
    return this.#phase.name === 'failed';
  }

  /** The lines in memory are at their limit: the disk is slow or unavailable. */
  get isFull(): boolean {
    return this.#heldBytes > heldBytesLimit;
  }

  /**
   * Returns the number of the line, which is written at the end of this turn.
   * Throws when its UTF-8 form could exceed 1 MiB.
   */
  append(text: string): number {
    // A UTF-16 unit takes three bytes of UTF-8 at most.
    if (text.length > maxTextBytes / 3) throw new Error('A line of the journal is too long.');
    this.#lastSeq += 1;
    this.#buffer.add({ seq: this.#lastSeq, syncedSeq: this.#syncedSeq, text });
    this.#scheduleTurn();
    return this.#lastSeq;
  }

  /** Resolves once the line is on disk. Rejects with 503 when it cannot be written now. */
  sync(seq: number): Promise<void> {
    if (seq <= this.#syncedSeq) return Promise.resolve();
    if (this.#phase.name === 'failed') return Promise.reject(journalUnavailable(this.#phase.error));
    if (this.#phase.name === 'closed')
      return Promise.reject(journalUnavailable(new Error('The journal is closed.')));
    return new Promise((resolve, reject) => {
      this.#waiters.push({ seq, resolve, reject });
      this.#scheduleTurn();
    });
  }

  /** Writes and syncs the remaining lines, then closes the file. Never rejects. */
  async close(): Promise<void> {
    await this.sync(this.#lastSeq).catch(() => undefined);
    this.#shutdown.abort();
    await this.#work;
    const phase = this.#phase;
    this.#phase = { name: 'closed' };
    if (phase.name === 'open') await phase.segment.file.close(phase.segment.length).catch(() => undefined);
    const spareFile = await this.#spare?.catch(() => undefined);
    await spareFile?.close().catch(() => undefined);
    await rm(join(this.#options.folder, spareName), { force: true }).catch(() => undefined);
  }

  #scheduleTurn(): void {
    if (this.#isTurnScheduled) return;
    this.#isTurnScheduled = true;
    setImmediate(() => {
      this.#isTurnScheduled = false;
      this.#endTurn();
    });
  }

  #endTurn(): void {
    for (const block of this.#buffer.take()) {
      this.#blocks.push(block);
      this.#heldBytes += block.bytes.length;
    }
    this.#writeBlocks();
    this.#startWork();
  }

  /** Writes the blocks that are not in the current file yet, as far as they fit. */
  #writeBlocks(): void {
    if (this.#phase.name !== 'open') return;
    const { segment } = this.#phase;
    // The blocks that are not in the file yet are the last ones in the list.
    let index = this.#blocks.length;
    while ((this.#blocks[index - 1]?.firstSeq ?? 0) > this.#writtenSeq) index -= 1;
    for (const block of this.#blocks.slice(index)) {
      if (segment.length > 0 && segment.length + block.bytes.length > this.#options.segmentBytes) {
        this.#phase = { name: 'full', segment };
        return;
      }
      try {
        segment.file.write(block.bytes, segment.length);
      } catch (error) {
        this.#phase = { name: 'broken', segment, error };
        return;
      }
      segment.length += block.bytes.length;
      this.#writtenSeq = block.lastSeq;
    }
    const { segmentBytes, clock } = this.#options;
    if (segment.length > segmentBytes / 2 && clock.monotonicMs() >= this.#prepareAfterMs)
      void this.#prepareSpare();
  }

  #prepareSpare(): Promise<SegmentFile> {
    const { folder, files, segmentBytes, log, clock } = this.#options;
    if (this.#spare === null) {
      this.#spare = files.create(join(folder, spareName), segmentBytes);
      this.#spare.catch((error: unknown) => {
        this.#spare = null;
        // Without a pause, a full disk would be tried and logged with each write.
        this.#prepareAfterMs = clock.monotonicMs() + retryMs;
        log.warn({ err: error, folder }, 'the next segment of the journal could not be prepared');
      });
    }
    return this.#spare;
  }

  #startWork(): void {
    this.#work ??= this.#runWork().finally(() => {
      this.#work = null;
    });
  }

  /** The only place that awaits the disk: one fdatasync or one change of segment at a time. */
  async #runWork(): Promise<void> {
    for (;;) {
      const phase = this.#phase;
      if (phase.name === 'open' && this.#needsSync()) await this.#syncSegment(phase.segment);
      else if (phase.name === 'full') await this.#rotate(phase.segment);
      else if (phase.name === 'broken') await this.#replace(phase);
      else if (phase.name === 'failed' && !this.#shutdown.signal.aborted) await this.#retryLater(phase.error);
      else return;
    }
  }

  #needsSync(): boolean {
    if (this.#writtenSeq <= this.#syncedSeq) return false;
    return this.#heldBytes > idleSyncBytes || this.#waiters.some(({ seq }) => seq <= this.#writtenSeq);
  }

  /** Syncs the written lines. A failure makes the segment broken. */
  async #syncSegment(segment: OpenSegment): Promise<void> {
    const target = this.#writtenSeq;
    const { clock, onSync } = this.#options;
    const startMs = clock.monotonicMs();
    try {
      await segment.file.datasync();
    } catch (error) {
      this.#phase = { name: 'broken', segment, error };
      return;
    }
    onSync(clock.monotonicMs() - startMs);
    this.#confirm(target);
  }

  #confirm(target: number): void {
    this.#syncedSeq = target;
    const unsyncedIndex = this.#blocks.findIndex(({ lastSeq }) => lastSeq > target);
    const syncedBlocks = this.#blocks.splice(0, unsyncedIndex === -1 ? this.#blocks.length : unsyncedIndex);
    for (const { bytes } of syncedBlocks) this.#heldBytes -= bytes.length;
    const waiters = this.#waiters;
    this.#waiters = waiters.filter(({ seq }) => seq > target);
    for (const waiter of waiters) if (waiter.seq <= target) waiter.resolve();
  }

  /**
   * All lines of a full segment are on disk before the next one starts: only the last segment can
   * have a torn end.
   */
  async #rotate(segment: OpenSegment): Promise<void> {
    if (this.#writtenSeq > this.#syncedSeq) await this.#syncSegment(segment);
    if (this.#phase.name !== 'full') return;
    try {
      await this.#beginSegment();
    } catch (error) {
      this.#fail(error);
    }
    await segment.file.close(segment.length).catch(() => undefined);
  }

  async #replace({ segment, error }: { segment: OpenSegment; error: unknown }): Promise<void> {
    const { log, folder } = this.#options;
    log.error({ err: error, folder }, 'a segment of the journal failed; its lines go to a new one');
    await segment.file.close().catch(() => undefined);
    try {
      await this.#beginSegment();
    } catch (failure) {
      this.#fail(failure);
      return;
    }
    await this.#proveSegment();
  }

  /** Syncs a replacement's first lines; the writer fails when that fails. */
  async #proveSegment(): Promise<void> {
    const replacement = this.#phase;
    if (replacement.name === 'open' || replacement.name === 'full')
      await this.#syncSegment(replacement.segment);
    const phase = this.#phase;
    if (phase.name !== 'broken') return;
    await phase.segment.file.close().catch(() => undefined);
    this.#fail(phase.error);
  }

  /**
   * Opens the next file and writes to it all lines that are not known to be on disk.
   * Rejects with the system's error.
   */
  async #beginSegment(): Promise<void> {
    const { folder, files, onSegment } = this.#options;
    const firstSeq = this.#syncedSeq + 1;
    const file = await this.#prepareSpare();
    this.#spare = null;
    try {
      await files.publish(join(folder, spareName), join(folder, segmentName(firstSeq)));
    } catch (error) {
      await file.close().catch(() => undefined);
      throw error;
    }
    onSegment(firstSeq);
    this.#writtenSeq = this.#syncedSeq;
    this.#phase = { name: 'open', segment: { file, length: 0 } };
    this.#writeBlocks();
  }

  #fail(error: unknown): void {
    this.#options.log.error(
      { err: error, folder: this.#options.folder, heldBytes: this.#heldBytes },
      'the journal failed: no charge can be made durable',
    );
    this.#phase = { name: 'failed', error };
    const waiters = this.#waiters;
    this.#waiters = [];
    for (const waiter of waiters) waiter.reject(journalUnavailable(error));
  }

  async #retryLater(error: unknown): Promise<void> {
    await pause(retryMs, { clock: this.#options.clock, signal: this.#shutdown.signal });
    if (this.#shutdown.signal.aborted) return;
    try {
      await this.#beginSegment();
    } catch (failure) {
      this.#options.log.warn({ err: failure, former: error }, 'the journal is still failed');
      return;
    }
    await this.#proveSegment();
    if (!this.isFailed) this.#options.log.info({ folder: this.#options.folder }, 'the journal works again');
  }
}
