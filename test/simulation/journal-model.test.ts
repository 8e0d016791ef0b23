import { describe, expect, test } from 'vitest';
import type { ChargeLine, Journal, JournalLine } from '../../src/gateway/credits/journal/journal.ts';
import {
  createDisk,
  type Disk,
  journalDirectoryModel,
  loseUnsyncedLines,
  loseUnwrittenLines,
} from './journal-model.ts';
import { seededRandom } from './random.ts';
import { createScheduler, type Process, type Scheduler } from './scheduler.ts';

interface JournalWorld {
  disk: Disk;
  scheduler: Scheduler;
  /** Opens a journal in a new process. */
  open(journalId: string): Promise<{ journal: Journal; process: Process }>;
  /** The charges of abandoned journals, as another process reads them. */
  charges(): Promise<ChargeLine[]>;
  /** Runs the scheduler until the work is done. */
  run<T>(work: Promise<T>): Promise<T>;
}

function createJournalWorld(): JournalWorld {
  const disk = createDisk();
  const random = seededRandom(1);
  const scheduler = createScheduler(random);
  const newProcess = (): Process => ({ name: 'gateway', state: 'running', suspendedMs: 0, wallOffsetMs: 0 });

  async function run<T>(work: Promise<T>): Promise<T> {
    let isOver = false;
    const end = work.finally(() => (isOver = true));
    end.catch(() => undefined);
    for (let step = 0; step < 100 && !isOver; step += 1) {
      scheduler.step(1_000_000);
      for (let turn = 0; turn < 10; turn += 1) await Promise.resolve();
    }
    return end;
  }

  return {
    disk,
    scheduler,
    run,
    async open(journalId) {
      const process = newProcess();
      const directory = journalDirectoryModel({ disk, process, scheduler, random, journalId });
      return { journal: await run(directory.open('generation')), process };
    },
    async charges() {
      const directory = journalDirectoryModel({
        disk,
        process: newProcess(),
        scheduler,
        random,
        journalId: 'x',
      });
      const lines: ChargeLine[] = [];
      const read = async (): Promise<void> => {
        for (const journal of await directory.takeAbandoned()) {
          for await (const part of journal.charges(0)) lines.push(...part);
          journal.unlock();
        }
      };
      await run(read());
      return lines;
    },
  };
}

const call = {
  requestId: 'req_1',
  userId: 'user',
  bureauId: 'bureau',
  tokenId: 'token',
  action: 'stream',
  model: null,
  provider: null,
};
const sentLine: JournalLine = {
  kind: 'sent',
  usageId: 'use_1',
  call,
  allotmentId: 'alt',
  credits: 3n,
  facts: {},
};

function finalLine(usageId: string, credits: bigint): JournalLine {
  return {
    kind: 'final',
    usageId,
    call,
    allotmentId: 'alt',
    credits,
    facts: {
      action: 'stream',
      model: null,
      provider: null,
      tokens: { input: 0, cachedInput: 0, cacheWrite: 0, output: 0, reasoning: 0 },
      units: {},
      outcome: 'completed',
      estimated: false,
      ttftMs: null,
      durationMs: 0,
    },
  };
}

describe('journal model', () => {
  test('keeps written lines of a killed process', async () => {
    const { disk, scheduler, open, charges } = createJournalWorld();
    const { journal, process } = await open('gwy_1');
    journal.append(finalLine('use_1', 5n));
    scheduler.kill(process);
    loseUnwrittenLines(disk, process);
    expect((await charges()).map(({ credits }) => credits)).toEqual([5n]);
  });

  test('keeps synced lines over a power cut', async () => {
    const { disk, scheduler, open, charges, run } = createJournalWorld();
    const { journal, process } = await open('gwy_1');
    await run(journal.sync(journal.append(finalLine('use_1', 5n))));
    for (let line = 2; line < 50; line += 1) journal.append(finalLine(`use_${line}`, 1n));
    scheduler.kill(process);
    // With this seed some of the 48 unsynced lines are lost.
    loseUnsyncedLines(disk, process, seededRandom(3));
    const lines = await charges();
    expect(lines[0]).toMatchObject({ usageId: 'use_1', credits: 5n });
    expect(lines.length).toBeLessThan(1 + 48);
  });

  test('charges the last checkpoint of a call that was sent', async () => {
    const { disk, scheduler, open, charges } = createJournalWorld();
    const { journal, process } = await open('gwy_1');
    journal.append(sentLine);
    journal.append({ kind: 'checkpoint', usageId: 'use_1', credits: 8n, facts: {} });
    scheduler.kill(process);
    loseUnwrittenLines(disk, process);
    expect(await charges()).toMatchObject([
      { seq: 3, usageId: 'use_1', credits: 8n, facts: { estimated: true } },
    ]);
    expect(await charges()).toHaveLength(1);
  });

  test('reads no journal of a live process', async () => {
    const { open, charges } = createJournalWorld();
    const { journal } = await open('gwy_1');
    journal.append(finalLine('use_1', 5n));
    expect(await charges()).toEqual([]);
  });

  test('keeps only final lines while the disk fails', async () => {
    const { disk, open, run } = createJournalWorld();
    const { journal } = await open('gwy_1');
    disk.isFailing = true;
    const seq = journal.append(finalLine('use_1', 5n));
    await expect(run(journal.sync(seq))).rejects.toThrow('cannot be written');
    expect(() => journal.append(sentLine)).toThrow('cannot be written');
    disk.isFailing = false;
    await run(journal.sync(seq));
    expect(disk.folders.get('gwy_1')?.syncedSeq).toBe(seq);
  });
});
