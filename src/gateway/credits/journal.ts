// Settlements that could not be written because the database was away: each a file of its own, written whole and
// synced before the caller hears of it. Any process may settle what it finds here, any number of times, since a
// hold is settled once; so no file has an owner, and one is removed only after it was settled.
import { randomUUID } from 'node:crypto';
import { open, readdir, readFile, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { makeSettingFolder } from '../../kernel/folder.ts';
import type { Operation } from './store.ts';

export type Settlement = Extract<Operation, { kind: 'settle' }>;

export interface Journal {
  /** Makes the folder, and throws unless files can be written there. */
  prepare(): Promise<void>;
  /** Resolves once it is on the disk. */
  write(settlement: Settlement): Promise<void>;
  list(): Promise<Settlement[]>;
  remove(holdId: string): Promise<void>;
}

const suffix = '.settlement.json';

export function directoryJournal(directory: string): Journal {
  const pathOf = (holdId: string): string => join(directory, holdId + suffix);

  async function writeSynced(path: string, text: string): Promise<void> {
    const file = await open(`${path}.partial`, 'w', 0o600);
    try {
      await file.writeFile(text);
      await file.sync();
    } finally {
      await file.close();
    }
    await rename(`${path}.partial`, path);
    // The name of a file is part of its folder, which is synced on its own.
    const folder = await open(directory, 'r');
    try {
      await folder.sync();
    } finally {
      await folder.close();
    }
  }

  return {
    async prepare() {
      await makeSettingFolder('JOURNAL_PATH', directory);
      const probe = join(directory, `.probe-${randomUUID()}`);
      await writeSynced(probe, '');
      await rm(probe);
    },
    write: (settlement) => writeSynced(pathOf(settlement.holdId), JSON.stringify({ ...settlement, credits: String(settlement.credits) })),
    async list() {
      const found: Settlement[] = [];
      for (const name of (await readdir(directory)).filter((one) => one.endsWith(suffix)).sort()) {
        const text = await readFile(join(directory, name), 'utf8').catch(() => null);
        // Another process has settled it a moment ago.
        if (text !== null) found.push(parse(text));
      }
      return found;
    },
    async remove(holdId) {
      // Without an error when another process was first.
      await rm(pathOf(holdId), { force: true });
    },
  };
}

function parse(text: string): Settlement {
  // Files of older releases have neither an answer nor the mark.
  const { holdId, accountId, credits, facts, answer = null, isHeldOnly = true } = JSON.parse(text) as Pick<Settlement, 'holdId' | 'accountId' | 'facts'> & { credits: string } & Partial<Pick<Settlement, 'answer' | 'isHeldOnly'>>;
  return { kind: 'settle', holdId, accountId, credits: BigInt(credits), facts, answer, isHeldOnly };
}
