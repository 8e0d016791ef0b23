// Writes the files of a tool, stores their former content, and restores it. The record of a connection
// contains the key, so that --undo can revoke it; only the owner can read the file.
import { createHash } from 'node:crypto';
import { chmod, realpath, rename, rm, stat, writeFile } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { readIfExists, readTextIfExists } from '../../../kernel/file-errors.ts';
import { makeFolder } from '../../../kernel/folder.ts';
import { applyEdit, revertEdit, type FileEdit, type JsonChange } from './file-edit.ts';

interface FileRecord {
  path: string;
  kind: FileEdit['kind'];
  /** The former content in base64; null if the file did not exist. */
  former: string | null;
  /** SHA-256 of the written text, which tells whether the file has changed since. */
  digest: string;
  changes: JsonChange[];
}

export interface ConnectionRecord {
  tool: string;
  url: string;
  token: string;
  files: FileRecord[];
}

/** The texts that `writeEdits` would write. */
export async function previewEdits(edits: readonly FileEdit[]): Promise<{ path: string; text: string }[]> {
  const texts = edits.map(async (edit) => ({
    path: edit.path,
    text: applyEdit(edit, await readTextIfExists(edit.path)).text,
  }));
  return Promise.all(texts);
}

/**
 * Stores the record first and then writes the files, so that an interrupted run can be undone. Throws before
 * the first file is written when one of them cannot be edited.
 */
export async function writeEdits(
  recordFile: string,
  connection: Omit<ConnectionRecord, 'files'>,
  edits: readonly FileEdit[],
): Promise<void> {
  const writes = [];
  for (const edit of edits) {
    const formerBytes = await readIfExists(edit.path);
    const { text, changes } = applyEdit(edit, formerBytes?.toString('utf8') ?? null);
    const { path, kind } = edit;
    const record = {
      path,
      kind,
      former: formerBytes?.toString('base64') ?? null,
      digest: digestOf(text),
      changes,
    };
    writes.push({ record, text });
  }
  const record: ConnectionRecord = { ...connection, files: writes.map((write) => write.record) };
  await replaceFile(recordFile, JSON.stringify(record, null, 2));
  for (const { record: file, text } of writes) await replaceFile(file.path, text);
}

/** Null when the tool is not connected. */
export async function readRecord(recordFile: string): Promise<ConnectionRecord | null> {
  const text = await readTextIfExists(recordFile);
  return text === null ? null : (JSON.parse(text) as ConnectionRecord);
}

/** Restores each file and returns a line about it. The record is removed last. */
export async function undoEdits(recordFile: string, { files }: ConnectionRecord): Promise<string[]> {
  const lines: string[] = [];
  for (const file of files.toReversed()) lines.push(await undoFile(file));
  await rm(recordFile, { force: true });
  return lines;
}

async function undoFile({ path, kind, former, digest, changes }: FileRecord): Promise<string> {
  const content = await readIfExists(path);
  if (content === null) return `${path} no longer exists.`;
  const isUnchanged = digestOf(content) === digest;
  if (isUnchanged && former === null) {
    await rm(path);
    return `${path} is removed.`;
  }
  if (isUnchanged && former !== null) {
    await replaceFile(path, Buffer.from(former, 'base64'));
    return `${path} is restored.`;
  }
  if (kind === 'file') return `${path} has been changed since, so it is kept; remove it yourself.`;
  await replaceFile(path, revertEdit(kind, changes, content.toString('utf8')));
  return `${path} has been changed since; only Townhall's entries are removed.`;
}

/** Replaces the content in one step. Keeps a symbolic link and the mode; a new file has the mode 0600. */
async function replaceFile(path: string, content: string | Buffer): Promise<void> {
  await makeFolder(dirname(path));
  const target = await realpath(path).catch(() => path);
  const mode = await stat(target).then(
    (stats) => stats.mode & 0o777,
    () => 0o600,
  );
  const temporaryFile = join(dirname(target), `.${basename(target)}.${process.pid}.tmp`);
  try {
    await writeFile(temporaryFile, content, { mode: 0o600, flag: 'wx' });
    await chmod(temporaryFile, mode);
    await rename(temporaryFile, target);
  } catch (error) {
    await rm(temporaryFile, { force: true });
    throw error;
  }
}

function digestOf(content: string | Buffer): string {
  return createHash('sha256').update(content).digest('hex');
}
