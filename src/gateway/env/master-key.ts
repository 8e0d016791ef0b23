// Which master key a server works with. The rule it keeps: a key is made only for an embedded database in
// which nothing is sealed yet; everywhere else a missing or a wrong key ends the start before anything is changed.
import { open, readFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { makeFolder } from '../../kernel/folder.ts';
import type { Log } from '../../kernel/log.ts';
import type { Redactor } from '../../kernel/secrets/secret.ts';
import { SettingError } from '../../kernel/settings.ts';
import {
  createVault,
  newMasterKey,
  readMasterKey,
  SealError,
  type MasterKey,
  type SealContext,
  type Vault,
} from '../../kernel/secrets/vault.ts';
import { canaryTable, type EnvStore } from './store.ts';

/** The settings that name the keys. A previous key opens what is not rewrapped yet. */
export interface MasterKeySettings {
  masterKey?: string | undefined;
  masterKeyFile?: string | undefined;
  masterKeyPrevious?: string | undefined;
  masterKeyPreviousFile?: string | undefined;
}

export interface UnlockNeeds {
  settings: MasterKeySettings;
  store: Pick<EnvStore, 'survey'>;
  /** The folder of the embedded database, where a key may be made and kept; null on a server of its own. */
  dataFolder: string | null;
  redactor: Redactor;
  log: Log;
}

export const canaryPlace: SealContext = { table: canaryTable, key: 'canary', version: 1 };
/** What the canary says. It is no secret; that it can be read is what matters. */
export const canaryWord = 'the master key of this database';

const howToMake = 'Make one with: openssl rand -base64 32';

/**
 * Reads the keys that the settings name, before a database is opened. Throws a SettingError for a text or a file that is
 * no key, and where a key has to be given and none is.
 */
export async function requireMasterKeys(
  settings: MasterKeySettings,
  { isEmbedded, redactor }: { isEmbedded: boolean; redactor: Redactor },
): Promise<void> {
  const primary = await given(settings, 'masterKey', redactor);
  await given(settings, 'masterKeyPrevious', redactor);
  if (primary === null && !isEmbedded) throw new SettingError(missing(null));
}

/** The ids of the keys that a server with these settings would work with. Makes no key; null where there is none. */
export async function masterKeyIds(
  settings: MasterKeySettings,
  { dataFolder, redactor }: Pick<UnlockNeeds, 'dataFolder' | 'redactor'>,
): Promise<{ primary: string | null; previous: string | null }> {
  const primary =
    (await given(settings, 'masterKey', redactor)) ?? (await keptKey(dataFolder, redactor, null));
  const previous = await given(settings, 'masterKeyPrevious', redactor);
  return { primary: primary?.kid ?? null, previous: previous?.kid ?? null };
}

/** Opens the vault of a database that may not be migrated yet. Throws a SettingError and has changed nothing then. */
export async function unlock({ settings, store, dataFolder, redactor, log }: UnlockNeeds): Promise<Vault> {
  const { canary, variables } = await store.survey();
  const previous = await given(settings, 'masterKeyPrevious', redactor);
  const isEmpty = canary === null && variables === 0;
  const primary =
    (await given(settings, 'masterKey', redactor)) ??
    (await keptKey(dataFolder, redactor, isEmpty ? log : null));
  if (primary === null) throw new SettingError(missing(dataFolder));
  const vault = createVault(primary, previous === null ? [] : [previous]);
  if (canary === null && variables > 0) {
    throw new SettingError(
      'The database holds sealed values but not the word by which their master key is known. Nothing was changed.',
    );
  }
  if (canary !== null) requireOpens(vault, canary);
  return vault;
}

/** Throws a SettingError unless the vault opens the canary. */
export function requireOpens(vault: Vault, canary: string): void {
  try {
    if (vault.open(canaryPlace, canary) === canaryWord) return;
  } catch (error) {
    if (!(error instanceof SealError)) throw error;
  }
  throw new SettingError(
    'The master key is not the one that this database was sealed with. Set TOWNHALL_MASTER_KEY to that one, or give it as TOWNHALL_MASTER_KEY_PREVIOUS beside a new one. Nothing was changed.',
  );
}

function missing(dataFolder: string | null): string {
  const where =
    dataFolder === null
      ? 'TOWNHALL_MASTER_KEY is needed with DATABASE_URL'
      : `The database is sealed, and ${keyPath(dataFolder)} is not there`;
  return `${where}. Set TOWNHALL_MASTER_KEY or TOWNHALL_MASTER_KEY_FILE to 32 bytes in base64. ${dataFolder === null ? `${howToMake}; keep it apart from the database and its backups. ` : ''}Nothing was changed.`;
}

type Named = 'masterKey' | 'masterKeyPrevious';
const settingNames: Record<Named, string> = {
  masterKey: 'TOWNHALL_MASTER_KEY',
  masterKeyPrevious: 'TOWNHALL_MASTER_KEY_PREVIOUS',
};

async function given(
  settings: MasterKeySettings,
  name: Named,
  redactor: Redactor,
): Promise<MasterKey | null> {
  const text = settings[name];
  const file = settings[`${name}File`];
  const setting = settingNames[name];
  if (text !== undefined && file !== undefined)
    throw new SettingError(`${setting} and ${setting}_FILE name one key; give one of them.`);
  if (text !== undefined) return readKey(text, setting, redactor);
  if (file === undefined) return null;
  return readKey(await readText(file, `${setting}_FILE`), `The file of ${setting}_FILE`, redactor);
}

function readKey(text: string, where: string, redactor: Redactor): MasterKey {
  redactor.hold(text.trim());
  const key = readMasterKey(text);
  if (key === null) throw new SettingError(`${where} must hold 32 bytes in base64. ${howToMake}`);
  return key;
}

async function readText(path: string, setting: string): Promise<string> {
  try {
    return await readFile(path, 'utf8');
  } catch (cause) {
    throw new SettingError(
      `${setting} names ${path}, which cannot be read: ${(cause as NodeJS.ErrnoException).code ?? 'unknown'}.`,
    );
  }
}

function keyPath(dataFolder: string): string {
  return join(dataFolder, 'master.key');
}

/** The key kept beside the embedded data; made when `makeFor` says that nothing is sealed yet. */
async function keptKey(
  dataFolder: string | null,
  redactor: Redactor,
  makeFor: Log | null,
): Promise<MasterKey | null> {
  if (dataFolder === null) return null;
  const path = keyPath(dataFolder);
  const kept = await readFile(path, 'utf8').catch((error: unknown) => {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null;
    throw new Error(
      `The master key ${path} cannot be read: ${(error as NodeJS.ErrnoException).code ?? 'unknown'}.`,
      { cause: error },
    );
  });
  if (kept !== null) return readKey(kept, `The file ${path}`, redactor);
  if (makeFor === null) return null;
  const text = newMasterKey();
  await keep(path, text);
  makeFor.info(
    { path },
    'made a master key for the embedded database; without it what is stored under it is lost',
  );
  return readKey(text, path, redactor);
}

// On the disk before anything is sealed with it: a value whose key was lost in a power cut would be lost too.
async function keep(path: string, text: string): Promise<void> {
  await makeFolder(dirname(path));
  const file = await open(path, 'wx', 0o600);
  try {
    await file.writeFile(`${text}\n`);
    await file.sync();
  } finally {
    await file.close();
  }
  const folder = await open(dirname(path), 'r');
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}
