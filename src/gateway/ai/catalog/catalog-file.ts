// Reads and writes the catalog file and its previous content. Both files are replaced by a rename, so that a
// gateway that watches the file reads either the old or the new content.
import { randomBytes } from 'node:crypto';
import { open, rename, rm } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { readTextIfExists } from '../../../kernel/file-errors.ts';
import { makeSettingFolder } from '../../../kernel/folder.ts';
import { parseJsonOrUndefined } from '../../../kernel/json-value.ts';
import { parseCatalogDocument, type CatalogDocument } from './catalog-document.ts';
import type { ModelsFile } from './models-file.ts';

/** The file with the content before the last change. */
export function previousFile(file: string): string {
  return `${file}.previous`;
}

/** Undefined if there is no file. Throws a ModelsFileError for an invalid one. */
export async function readCatalogFile(
  file: string,
  builtIn: ModelsFile,
): Promise<CatalogDocument | undefined> {
  const text = await readTextIfExists(file);
  return text === null ? undefined : parseCatalogDocument(text, `The catalog file ${file}`, builtIn);
}

export interface CatalogWrite {
  next: CatalogDocument;
  /** The content for which `next` was planned; undefined if there was no file. */
  current: CatalogDocument | undefined;
  /** Whether a later rollback restores `current`; otherwise it restores the same content as before. */
  keepsFormer: boolean;
  /** Checks a file with the next content. If it throws, nothing is written. */
  check(path: string): Promise<void>;
}

/** Replaces the content. Throws when another command has changed it since it was read. */
export async function writeCatalogFile(
  file: string,
  { next, current, keepsFormer, check }: CatalogWrite,
): Promise<void> {
  await makeSettingFolder('MODELS_CATALOG_FILE', dirname(file));
  await replaceFile(file, textOf(next), async (staging) => {
    await check(staging);
    await requireUnchanged(file, current);
    // If there was no file, a rollback to the empty document restores the built-in catalog.
    if (keepsFormer) await replaceFile(previousFile(file), textOf(current ?? {}));
  });
}

async function requireUnchanged(file: string, current: CatalogDocument | undefined): Promise<void> {
  const text = await readTextIfExists(file);
  const isUnchanged =
    text === null
      ? current === undefined
      : current !== undefined && JSON.stringify(parseJsonOrUndefined(text)) === JSON.stringify(current);
  if (!isUnchanged)
    throw new Error(
      `${file} was changed by another command meanwhile. Nothing was written; run this command again.`,
    );
}

function textOf(document: CatalogDocument): string {
  return `${JSON.stringify(document, null, 2)}\n`;
}

async function replaceFile(
  file: string,
  text: string,
  beforeRename: (staging: string) => Promise<void> = () => Promise.resolve(),
): Promise<void> {
  const staging = join(dirname(file), `.${basename(file)}.${randomBytes(6).toString('hex')}`);
  try {
    const handle = await open(staging, 'wx', 0o644);
    try {
      await handle.writeFile(text);
      await handle.sync();
    } finally {
      await handle.close();
    }
    await beforeRename(staging);
    await rename(staging, file);
  } catch (error) {
    await rm(staging, { force: true });
    throw error;
  }
}
