// The journal of this process: writes lines with the segment writer, tracks calls
// without a final line, and deletes applied segments.
import type { Clock } from '../../../kernel/clock.ts';
import type { FolderLock } from '../../../kernel/data/embedded/folder-lock.ts';
import type { Log } from '../../../kernel/log.ts';
import { removeFolder } from './folder-facts.ts';
import type { Journal } from './journal.ts';
import { readCharges } from './journal-reader.ts';
import { lineToText } from './line-text.ts';
import { createOpenCalls, type OpenCalls } from './open-calls.ts';
import { journalUnavailable } from './problems.ts';
import { createRetention, type Retention } from './retention.ts';
import type { SegmentFiles } from './segment-file.ts';
import { SegmentWriter } from './segment-writer.ts';

export interface OpenJournalOptions {
  journalId: string;
  folder: string;
  lock: FolderLock;
  files: SegmentFiles;
  log: Log;
  clock: Pick<Clock, 'sleep' | 'monotonicMs'>;
  segmentBytes: number;
  onSync(durationMs: number): void;
}

/** Creates the first segment in a folder that this process has locked. */
export async function openJournal(options: OpenJournalOptions): Promise<Journal> {
  const { folder } = options;
  const calls = createOpenCalls();
  const retention: Retention = createRetention({
    ...options,
    copyForward: (upTo) => copyForward(calls, writer, upTo),
  });
  const writer: SegmentWriter = await SegmentWriter.open({
    ...options,
    onSegment: (firstSeq) => retention.addSegment(firstSeq),
  });
  return {
    journalId: options.journalId,
    append(line) {
      if (line.kind !== 'final' && (writer.isFailed || writer.isFull)) {
        if (line.kind === 'sent')
          throw journalUnavailable(new Error('The journal failed, or its buffer is full.'));
        return writer.lastSeq;
      }
      const seq = writer.append(lineToText(line));
      calls.note(seq, line);
      return seq;
    },
    sync: (seq) => writer.sync(seq),
    markApplied: (seq) => retention.markApplied(seq),
    charges: (afterSeq) => readCharges(folder, { after: afterSeq, upTo: writer.syncedSeq }),
    get health() {
      return writer.isFailed ? 'failed' : 'ok';
    },
    async close() {
      await retention.close();
      await writer.close();
      // A journal without a line has nothing to apply.
      if (writer.lastSeq === 0) await removeFolder(folder).catch(() => undefined);
      options.lock.release();
    },
  };
}

async function copyForward(calls: OpenCalls, writer: SegmentWriter, upTo: number): Promise<void> {
  for (const { start, checkpoint } of calls.upTo(upTo)) {
    calls.note(writer.append(lineToText(start)), start);
    if (checkpoint !== null) calls.note(writer.append(lineToText(checkpoint)), checkpoint);
  }
  await writer.sync(writer.lastSeq);
}
