// Settlements that could not be written because the database was away: each a file of its own, written whole and
// synced before the caller hears of it. Any process may settle what it finds here, any number of times, since a
// hold is settled once; so no file has an owner, and one is removed only after it was settled.
import { randomUUID } from 'node:crypto';
import { open, readdir, readFile, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { SettlementAnswer } from '../../kernel/data/idempotency.ts';
import { makeSettingFolder } from '../../kernel/folder.ts';
import type { UsageFacts } from '../usage/index.ts';
import type { Operation } from './store.ts';

export type Settlement = Extract<Operation, { kind: 'settle' }>;

export interface Journal {
  /** Makes the folder, and throws unless files can be written there. */
  prepare(): Promise<void>;
  /** Resolves once it is on the disk. */
  write(settlement: Settlement): Promise<void>;
  /**
   * Settlements to replay. A file that cannot be read stops no other: `report` hears of it, and one that holds no
   * settlement is renamed to `*.unreadable` first.
   */
  list(report: (name: string, error: unknown) => void): Promise<Settlement[]>;
  remove(holdId: string): Promise<void>;
}

const suffix = '.settlement.json';

const unreadableSuffix = '.unreadable';

export interface JournalOptions {
  /** For a test: opens files and folders. */
  openFile?: typeof open;
}

export function directoryJournal(directory: string, { openFile = open }: JournalOptions = {}): Journal {
  const pathOf = (holdId: string): string => join(directory, holdId + suffix);

  async function writeSynced(path: string, text: string): Promise<void> {
    const file = await openFile(`${path}.partial`, 'w', 0o600);
    try {
      await file.writeFile(text);
      await file.sync();
    } finally {
      await file.close();
    }
    await rename(`${path}.partial`, path);
    // The name of a file is part of its folder, which is synced on its own.
    const folder = await openFile(directory, 'r');
    try {
      await folder.sync();
    } finally {
      await folder.close();
    }
  }

  /** Null when the file is put aside, or when another process has settled it a moment ago. */
  async function readSettlement(
    name: string,
    report: (name: string, error: unknown) => void,
  ): Promise<Settlement | null> {
    const path = join(directory, name);
    let text: string;
    try {
      text = await readFile(path, 'utf8');
    } catch (error) {
      if (isCode(error, 'ENOENT')) return null;
      // Such as a disk that fails: it is read again the next time.
      report(name, error);
      return null;
    }
    try {
      const settlement = parseSettlement(text);
      if (settlement.holdId + suffix === name) return settlement;
      throw new Error('The file is named after another hold.');
    } catch (error) {
      await rename(path, path + unreadableSuffix).catch((failure: unknown) => {
        if (!isCode(failure, 'ENOENT')) throw failure;
      });
      report(name + unreadableSuffix, error);
      return null;
    }
  }

  return {
    async prepare() {
      await makeSettingFolder('JOURNAL_PATH', directory);
      const probe = join(directory, `.probe-${randomUUID()}`);
      await writeSynced(probe, '');
      await rm(probe);
    },
    write: (settlement) =>
      writeSynced(
        pathOf(settlement.holdId),
        JSON.stringify({ ...settlement, credits: String(settlement.credits) }),
      ),
    async list(report) {
      const settlements: Settlement[] = [];
      for (const name of (await readdir(directory)).filter((one) => one.endsWith(suffix)).sort()) {
        const settlement = await readSettlement(name, report);
        if (settlement !== null) settlements.push(settlement);
      }
      return settlements;
    },
    async remove(holdId) {
      // Without an error when another process was first.
      await rm(pathOf(holdId), { force: true });
    },
  };
}

/** Throws for what is no settlement: half a file of a disk that lost power, or one that was edited. */
function parseSettlement(text: string): Settlement {
  const value = JSON.parse(text) as Partial<Record<keyof Settlement, unknown>> | null;
  const { holdId, accountId, credits, facts } = value ?? {};
  if (
    typeof holdId !== 'string' ||
    typeof accountId !== 'string' ||
    typeof credits !== 'string' ||
    !/^\d{1,16}$/.test(credits) ||
    !isRecord(facts)
  ) {
    throw new Error('The file holds no settlement.');
  }
  const answer = isRecord(value?.answer) ? (value.answer as unknown as SettlementAnswer) : null;
  // Files of older releases have no mark. They may be of a job, which another process does again.
  return {
    kind: 'settle',
    holdId,
    accountId,
    credits: BigInt(credits),
    facts: facts as unknown as UsageFacts,
    answer,
    isHeldOnly: value?.isHeldOnly !== false,
  };
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function isCode(error: unknown, code: string): boolean {
  return (error as NodeJS.ErrnoException).code === code;
}
