// Write-ahead journal for settlements during an outage of the database. Each
// settlement is one file, fsynced before the call is answered. Settling is idempotent
// by hold, so any process may replay any file; a file is removed afterwards.
import { randomUUID } from 'node:crypto';
import { open, readdir, readFile, rename, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { SettlementAnswer } from '../../../kernel/data/idempotency.ts';
import { isMissing } from '../../../kernel/file-errors.ts';
import { makeSettingFolder } from '../../../kernel/folder.ts';
import { isRecord } from '../../../kernel/json-value.ts';
import type { UsageFacts } from '../../usage/index.ts';
import type { Operation } from '../core/store.ts';

export type Settlement = Extract<Operation, { kind: 'settle' }>;

export interface SettlementJournal {
  /** Creates the folder. Throws when files cannot be written there. */
  prepare(): Promise<void>;
  /** Resolves after fsync. */
  write(settlement: Settlement): Promise<void>;
  /**
   * Settlements to replay. A file that cannot be read is reported and skipped; one
   * without a valid settlement is renamed to `*.unreadable` first.
   */
  list(report: (name: string, error: unknown) => void): Promise<Settlement[]>;
  remove(holdId: string): Promise<void>;
}

const suffix = '.settlement.json';
const unreadableSuffix = '.unreadable';

export interface SettlementJournalOptions {
  /** Opens files and folders; tests replace it. */
  openFile?: typeof open;
}

export function settlementJournal(
  directory: string,
  { openFile = open }: SettlementJournalOptions = {},
): SettlementJournal {
  const pathOf = (holdId: string): string => join(directory, holdId + suffix);

  return {
    async prepare() {
      await makeSettingFolder('JOURNAL_PATH', directory);
      const probe = join(directory, `.probe-${randomUUID()}`);
      await writeSynced(openFile, probe, '');
      await rm(probe);
    },
    write: (settlement) =>
      writeSynced(
        openFile,
        pathOf(settlement.holdId),
        JSON.stringify({ ...settlement, credits: String(settlement.credits) }),
      ),
    async list(report) {
      const settlements: Settlement[] = [];
      const fileNames = await readdir(directory);
      for (const name of fileNames.filter((fileName) => fileName.endsWith(suffix)).sort()) {
        const settlement = await readSettlement(directory, name, report);
        if (settlement !== null) settlements.push(settlement);
      }
      return settlements;
    },
    async remove(holdId) {
      // Another process may have removed it already.
      await rm(pathOf(holdId), { force: true });
    },
  };
}

/** Resolves once the whole file is on disk under its name. */
async function writeSynced(openFile: typeof open, path: string, text: string): Promise<void> {
  const file = await openFile(`${path}.partial`, 'w', 0o600);
  try {
    await file.writeFile(text);
    await file.sync();
  } finally {
    await file.close();
  }
  await rename(`${path}.partial`, path);
  // fsync the folder too: the rename is an entry of the folder.
  const folder = await openFile(dirname(path), 'r');
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}

/** Null when the file is unreadable, or when another process has already settled and removed it. */
async function readSettlement(
  directory: string,
  name: string,
  report: (name: string, error: unknown) => void,
): Promise<Settlement | null> {
  const path = join(directory, name);
  let text: string;
  try {
    text = await readFile(path, 'utf8');
  } catch (error) {
    if (isMissing(error)) return null;
    // Keep the file for the next replay, for example after an I/O error.
    report(name, error);
    return null;
  }
  try {
    const settlement = parseSettlement(text);
    if (settlement.holdId + suffix === name) return settlement;
    throw new Error('The file is named after another hold.');
  } catch (error) {
    await rename(path, path + unreadableSuffix).catch((failure: unknown) => {
      if (!isMissing(failure)) throw failure;
    });
    report(name + unreadableSuffix, error);
    return null;
  }
}

/**
 * Throws unless the text is a settlement: a power loss may truncate a file, an
 * operator may edit one.
 */
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
    throw new Error('The file does not contain a valid settlement.');
  }
  const answer = isRecord(value?.answer) ? (value.answer as unknown as SettlementAnswer) : null;
  // Files of older releases lack `isHeldOnly`. Treat them like the settlement of a job, which
  // another process may run again under a hold of its own.
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
