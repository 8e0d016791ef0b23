// Two files in the folder of a journal: the generation of the ledger that it belongs to, and the
// time when it was first seen to be fully applied.
import { open, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { readTextIfExists } from '../../../kernel/file-errors.ts';
import { syncFolder } from '../../../kernel/folder.ts';
import { asRecord, parseJsonOrUndefined } from '../../../kernel/json-value.ts';
import { listSegments } from './segment-file.ts';

const identityName = 'journal.json';
const appliedName = 'applied';

/**
 * Generation of the ledger that the journal belongs to; null when the file is
 * missing or unreadable.
 */
export async function readGeneration(folder: string): Promise<string | null> {
  const text = await readTextIfExists(join(folder, identityName));
  const { generation } = asRecord(parseJsonOrUndefined(text ?? ''));
  return typeof generation === 'string' ? generation : null;
}

/** Resolves once the file is on disk. */
export async function writeGeneration(folder: string, generation: string): Promise<void> {
  await writeSynced(join(folder, identityName), `${JSON.stringify({ format: 1, generation })}\n`);
  await syncFolder(folder);
}

/** When the journal was first seen to be fully applied; null until then. */
export async function readAppliedAt(folder: string): Promise<Date | null> {
  const text = await readTextIfExists(join(folder, appliedName));
  const time = new Date(text?.trim() ?? '');
  return Number.isNaN(time.getTime()) ? null : time;
}

export async function writeAppliedAt(folder: string, time: Date): Promise<void> {
  await writeSynced(join(folder, appliedName), `${time.toISOString()}\n`);
}

export async function clearAppliedAt(folder: string): Promise<void> {
  await rm(join(folder, appliedName), { force: true });
}

/** Removes segments first: a folder with segments but no generation would count as damaged. */
export async function removeFolder(folder: string): Promise<void> {
  for (const { path } of await listSegments(folder)) await rm(path, { force: true });
  await rm(folder, { recursive: true, force: true });
}

async function writeSynced(path: string, text: string): Promise<void> {
  const file = await open(path, 'w', 0o600);
  try {
    await file.writeFile(text);
    await file.sync();
  } finally {
    await file.close();
  }
}
