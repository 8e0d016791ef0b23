// The folder `aside` of JOURNAL_PATH: journals of another generation of the ledger, journals with
// lines that the ledger refused, and copies of damaged segments. `townhall ledger journal` lists
// them, and only an operator applies or discards them.
import { cp, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type Clock, systemClock } from '../../../kernel/clock.ts';
import { isMissing, readTextIfExists } from '../../../kernel/file-errors.ts';
import { makeFolder, syncFolder } from '../../../kernel/folder.ts';
import { id, type MakeId } from '../../../kernel/ids.ts';
import { asRecord, parseJsonOrUndefined } from '../../../kernel/json-value.ts';
import { clearAppliedAt, readGeneration, writeGeneration } from './folder-facts.ts';
import type { AsideReason } from './journal.ts';
import { damagedSegments, emptyFacts, readLines } from './journal-reader.ts';
import { listSegments } from './segment-file.ts';

const asideName = 'aside';
const reasonName = 'reason.json';
const dayMs = 86_400_000;

/** Moves a whole journal aside. The caller holds its lock. */
export async function moveAside(
  directory: string,
  journalId: string,
  reason: AsideReason,
  at: Date,
): Promise<void> {
  const folder = join(directory, journalId);
  await writeReason(folder, reason, at);
  await makeFolder(join(directory, asideName));
  await rename(folder, join(directory, asideName, journalId));
  await syncFolder(join(directory, asideName));
  await syncFolder(directory);
}

/**
 * Copies a damaged segment, so that it outlives its journal. Returns false when there is a copy
 * already.
 */
export async function copyAside(
  directory: string,
  journalId: string,
  segment: string,
  at: Date,
): Promise<boolean> {
  const name = `${journalId}-${Number.parseInt(segment, 10)}`;
  const target = join(directory, asideName, name);
  await makeFolder(target);
  // The reason is written last, so a copy that a crash interrupted has none and is made again.
  if ((await readTextIfExists(join(target, reasonName))) !== null) return false;
  await cp(join(directory, journalId, segment), join(target, segment)).catch((error: unknown) => {
    // A missing segment is damage too.
    if (!isMissing(error)) throw error;
  });
  await writeReason(target, 'damaged', at);
  await syncFolder(target);
  return true;
}

async function writeReason(folder: string, reason: AsideReason, at: Date): Promise<void> {
  await writeFile(join(folder, reasonName), `${JSON.stringify({ reason, at: at.toISOString() })}\n`, {
    mode: 0o600,
  });
}

export interface AsideJournal {
  /** The journal's id; for a copy of a damaged segment, with the segment's first number. */
  name: string;
  reason: string;
  at: string;
  generation: string | null;
  /** Final lines that can be read, and their credits. */
  charges: number;
  credits: bigint;
  /** Calls that were sent and have no final line. */
  unfinished: number;
  isDamaged: boolean;
}

export async function listAside(directory: string): Promise<AsideJournal[]> {
  const names = await asideNames(directory);
  return Promise.all(names.map((name) => describeAside(directory, name)));
}

async function asideNames(directory: string): Promise<string[]> {
  try {
    return (await readdir(join(directory, asideName))).sort((left, right) => left.localeCompare(right, 'en'));
  } catch (error) {
    if (isMissing(error)) return [];
    throw error;
  }
}

async function describeAside(directory: string, name: string): Promise<AsideJournal> {
  const folder = join(directory, asideName, name);
  const reasonText = await readFile(join(folder, reasonName), 'utf8').catch(() => '');
  const { reason, at } = asRecord(parseJsonOrUndefined(reasonText));
  const facts = emptyFacts();
  const unfinishedIds = new Set<string>();
  let charges = 0;
  let credits = 0n;
  for await (const lines of readLines(folder, facts))
    for (const { line } of lines) {
      if (line.kind === 'sent') unfinishedIds.add(line.usageId);
      if (line.kind !== 'final') continue;
      unfinishedIds.delete(line.usageId);
      charges += 1;
      credits += line.credits;
    }
  return {
    name,
    reason: typeof reason === 'string' ? reason : 'unknown',
    at: typeof at === 'string' ? at : '',
    generation: await readGeneration(folder),
    charges,
    credits,
    unfinished: unfinishedIds.size,
    isDamaged: damagedSegments(facts).length > 0,
  };
}

/**
 * Gives a journal that was put aside to the ledger of this generation, under a new id, which it
 * returns: the next replay of abandoned journals applies all of its lines. Lines whose usage is
 * already recorded charge nothing. Throws for an unknown name, for a copy of a damaged segment (its
 * readable lines are applied with their journal), and for a journal older than the retention of
 * usage records, since the database may no longer know that its calls were charged.
 */
export async function restoreFromAside(
  directory: string,
  name: string,
  {
    generation,
    usageDays,
    makeId = id,
    clock = systemClock,
  }: {
    generation: string;
    /** Retention of usage records in days. */
    usageDays: number;
    makeId?: MakeId;
    clock?: Pick<Clock, 'now'>;
  },
): Promise<string> {
  const folder = await requireAside(directory, name);
  if ((await readGeneration(folder)) === null)
    throw new Error(
      `${name} is a copy of a damaged segment. ` +
        'Its readable lines are applied with their journal; read it, then discard it.',
    );
  if ((await readDaysSinceWrite(folder, clock)) >= usageDays)
    throw new Error(
      `${name} is older than usage records are kept (${usageDays} days): ` +
        'its calls may have been charged before. Read it, charge by hand what is due, then discard it.',
    );
  await writeGeneration(folder, generation);
  await clearAppliedAt(folder);
  await rm(join(folder, reasonName), { force: true });
  // A new id, since the ledger still has the row of the former id with the former generation and
  // `applied_seq`.
  const journalId = makeId('gwy');
  await rename(folder, join(directory, journalId));
  await syncFolder(directory);
  return journalId;
}

/** Days since the last write to a segment of the journal. */
async function readDaysSinceWrite(folder: string, clock: Pick<Clock, 'now'>): Promise<number> {
  const writeTimes = await Promise.all(
    (await listSegments(folder)).map(async ({ path }) => (await stat(path)).mtimeMs),
  );
  return (clock.now().getTime() - Math.max(...writeTimes)) / dayMs;
}

/** Deletes a journal that was put aside. Throws for an unknown name. */
export async function discardAside(directory: string, name: string): Promise<void> {
  await rm(await requireAside(directory, name), { recursive: true });
}

async function requireAside(directory: string, name: string): Promise<string> {
  if (!(await asideNames(directory)).includes(name))
    throw new Error(`No journal named ${name} was put aside in ${directory}.`);
  return join(directory, asideName, name);
}
