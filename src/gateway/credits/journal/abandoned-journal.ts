// A journal of a dead process, locked by this one: closes the calls without a final
// line and reads the charges.
import { join } from 'node:path';
import type { Clock } from '../../../kernel/clock.ts';
import type { FolderLock } from '../../../kernel/data/embedded/folder-lock.ts';
import type { Log } from '../../../kernel/log.ts';
import { copyAside, moveAside } from './aside.ts';
import { readAppliedAt, removeFolder, writeAppliedAt } from './folder-facts.ts';
import type { AbandonedJournal, ChargeLine } from './journal.ts';
import { damagedSegments, emptyFacts, type JournalFacts, readCharges, readLines } from './journal-reader.ts';
import { createLineBuffer } from './line-buffer.ts';
import { estimateOf, lineToText } from './line-text.ts';
import { createOpenCalls, type OpenCall } from './open-calls.ts';
import { keepMs } from './retention.ts';
import { type SegmentFiles, segmentName } from './segment-file.ts';

export interface AbandonedJournalOptions {
  /** JOURNAL_PATH. */
  directory: string;
  journalId: string;
  generation: string;
  lock: FolderLock;
  files: SegmentFiles;
  log: Log;
  clock: Pick<Clock, 'now'>;
}

export function abandonedJournal(options: AbandonedJournalOptions): AbandonedJournal {
  const { directory, journalId, generation, lock, clock } = options;
  const folder = join(directory, journalId);

  return {
    journalId,
    generation,
    async *charges(afterSeq): AsyncGenerator<ChargeLine[]> {
      const facts = emptyFacts();
      const calls = createOpenCalls();
      for await (const lines of readLines(folder, facts))
        for (const { seq, line } of lines) calls.note(seq, line);
      await reportDamage(options, facts);
      // After a power loss the database may have applied lines that are missing on the disk.
      const lastSeq = await closeCalls(options, calls.upTo(facts.lastSeq), {
        lastSeq: Math.max(facts.lastSeq, afterSeq),
        syncedSeq: facts.syncedSeq,
      });
      yield* readCharges(folder, { after: afterSeq, upTo: lastSeq });
    },
    async remove() {
      try {
        const appliedAt = await readAppliedAt(folder);
        if (appliedAt === null) await writeAppliedAt(folder, clock.now());
        else if (clock.now().getTime() - appliedAt.getTime() >= keepMs) await removeFolder(folder);
      } finally {
        lock.release();
      }
    },
    async putAside(reason) {
      try {
        await moveAside(directory, journalId, reason, clock.now());
      } finally {
        lock.release();
      }
    },
    unlock: () => lock.release(),
  };
}

async function reportDamage(
  { directory, journalId, log, clock }: AbandonedJournalOptions,
  facts: JournalFacts,
): Promise<void> {
  for (const segment of damagedSegments(facts))
    if (await copyAside(directory, journalId, segment, clock.now()))
      log.error(
        { journalId, segment },
        'a segment of a journal is damaged: its readable lines are applied, and it is copied to the folder aside',
      );
}

/**
 * Appends an estimated final line for each call, in new segments that are synced, and returns the
 * number of the last line. The new lines repeat the `syncedSeq` of the dead process: with a higher
 * one, the lines that its last write lost would count as damage.
 */
async function closeCalls(
  { directory, journalId, files, log }: AbandonedJournalOptions,
  calls: readonly OpenCall[],
  { lastSeq, syncedSeq }: Pick<JournalFacts, 'lastSeq' | 'syncedSeq'>,
): Promise<number> {
  if (calls.length === 0) return lastSeq;
  const buffer = createLineBuffer();
  let seq = lastSeq;
  for (const { start, checkpoint } of calls) {
    seq += 1;
    buffer.add({ seq, syncedSeq, text: lineToText(estimateOf(start, checkpoint)) });
  }
  const folder = join(directory, journalId);
  const sparePath = join(folder, 'spare');
  for (const { firstSeq, bytes } of buffer.take()) {
    const file = await files.create(sparePath, bytes.length);
    try {
      file.write(bytes, 0);
      await file.datasync();
    } finally {
      await file.close();
    }
    await files.publish(sparePath, join(folder, segmentName(firstSeq)));
  }
  log.warn({ journalId, calls: calls.length }, 'calls of a dead process are charged by their estimates');
  return seq;
}
