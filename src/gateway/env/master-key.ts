// Reads and verifies the master key. A key is created only for an embedded database that holds no encrypted
// value yet. In every other case a missing or wrong key stops the server's start before anything is changed.
import { open, readFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { errorCode, isMissing } from '../../kernel/file-errors.ts';
import { makeFolder } from '../../kernel/folder.ts';
import type { Log } from '../../kernel/log.ts';
import type { Redactor } from '../../kernel/secrets/secret.ts';
import { SettingError } from '../../kernel/settings.ts';
import {
  createVault,
  newMasterKey,
  parseMasterKey,
  SealError,
  type MasterKey,
  type SealContext,
  type Vault,
} from '../../kernel/secrets/vault.ts';
import { canaryTable, type EnvStore } from './store.ts';

/** The settings with the keys. The previous key decrypts values that were not re-encrypted yet. */
export interface MasterKeySettings {
  masterKey?: string | undefined;
  masterKeyFile?: string | undefined;
  masterKeyPrevious?: string | undefined;
  masterKeyPreviousFile?: string | undefined;
}

export interface UnlockOptions {
  settings: MasterKeySettings;
  store: Pick<EnvStore, 'survey'>;
  /** The folder of the embedded database, where a created key is stored; null with PostgreSQL. */
  dataFolder: string | null;
  redactor: Redactor;
  log: Log;
}

export const canaryContext: SealContext = { table: canaryTable, key: 'canary', version: 1 };
/** The canary's plain text. It is not secret: decrypting it proves that the key is right. */
export const canaryText = 'the master key of this database';

const creationHint = 'Create one with: openssl rand -base64 32';

/**
 * Validates the configured keys before a database is opened. Throws a SettingError
 * for a malformed key, an unreadable file, and a missing key that cannot be created.
 */
export async function requireMasterKeys(
  settings: MasterKeySettings,
  { isEmbedded, redactor }: { isEmbedded: boolean; redactor: Redactor },
): Promise<void> {
  const primaryKey = await readConfiguredKey(settings, 'masterKey', redactor);
  await readConfiguredKey(settings, 'masterKeyPrevious', redactor);
  if (primaryKey === null && !isEmbedded) throw missingKey(null);
}

/** The ids of the keys that a server with these settings would use; null for none. Creates no key. */
export async function readMasterKeyIds(
  settings: MasterKeySettings,
  { dataFolder, redactor }: Pick<UnlockOptions, 'dataFolder' | 'redactor'>,
): Promise<{ primary: string | null; previous: string | null }> {
  const primaryKey =
    (await readConfiguredKey(settings, 'masterKey', redactor)) ?? (await readStoredKey(dataFolder, redactor));
  const previousKey = await readConfiguredKey(settings, 'masterKeyPrevious', redactor);
  return { primary: primaryKey?.kid ?? null, previous: previousKey?.kid ?? null };
}

/**
 * Opens the vault of a database, before or after its migrations. Uses the configured key, or else the key
 * in the data folder, which is created if nothing is encrypted yet. Throws a SettingError, and changes
 * nothing, for a missing, malformed or wrong key, and when there are encrypted values but no canary.
 */
export async function unlock({ settings, store, dataFolder, redactor, log }: UnlockOptions): Promise<Vault> {
  const { canary, variableCount } = await store.survey();
  const previousKey = await readConfiguredKey(settings, 'masterKeyPrevious', redactor);
  const hasSealedValues = canary !== null || variableCount > 0;
  const primaryKey =
    (await readConfiguredKey(settings, 'masterKey', redactor)) ??
    (await readStoredKey(dataFolder, redactor)) ??
    (hasSealedValues ? null : await createStoredKey(dataFolder, redactor, log));
  if (primaryKey === null) throw missingKey(dataFolder);
  const vault = createVault(primaryKey, previousKey === null ? [] : [previousKey]);
  if (canary === null && variableCount > 0) {
    throw new SettingError(
      'The database has encrypted values but lacks the row that verifies their master key. Nothing was changed.',
    );
  }
  if (canary !== null) requireRightKey(vault, canary);
  return vault;
}

/** Throws a SettingError unless one of the vault's keys sealed the canary. */
export function requireRightKey(vault: Vault, canary: string): void {
  try {
    if (vault.open(canaryContext, canary) === canaryText) return;
  } catch (error) {
    if (!(error instanceof SealError)) throw error;
  }
  throw new SettingError(
    [
      'The values in this database are encrypted with another master key.',
      'Set TOWNHALL_MASTER_KEY to that key, or set TOWNHALL_MASTER_KEY_PREVIOUS to it when you introduce a new key.',
      'Nothing was changed.',
    ].join(' '),
  );
}

/** `dataFolder` is the folder of the embedded database; null with PostgreSQL. */
function missingKey(dataFolder: string | null): SettingError {
  const remedy = 'Set TOWNHALL_MASTER_KEY or TOWNHALL_MASTER_KEY_FILE to 32 bytes in base64.';
  if (dataFolder === null)
    return new SettingError(
      [
        `TOWNHALL_MASTER_KEY is required with DATABASE_URL. ${remedy}`,
        `${creationHint}; keep it apart from the database and its backups. Nothing was changed.`,
      ].join(' '),
    );
  return new SettingError(
    `The database has encrypted values, but ${keyPath(dataFolder)} does not exist. ${remedy} Nothing was changed.`,
  );
}

type KeySetting = 'masterKey' | 'masterKeyPrevious';
const settingNames: Record<KeySetting, string> = {
  masterKey: 'TOWNHALL_MASTER_KEY',
  masterKeyPrevious: 'TOWNHALL_MASTER_KEY_PREVIOUS',
};

async function readConfiguredKey(
  settings: MasterKeySettings,
  name: KeySetting,
  redactor: Redactor,
): Promise<MasterKey | null> {
  const text = settings[name];
  const file = settings[`${name}File`];
  const setting = settingNames[name];
  if (text !== undefined && file !== undefined)
    throw new SettingError(`${setting} and ${setting}_FILE cannot both be set; set one of them.`);
  if (text !== undefined) return parseKey(text, { source: setting, remedy: creationHint, redactor });
  if (file === undefined) return null;
  const fileText = await readKeyFile(file, `${setting}_FILE`);
  return parseKey(fileText, { source: `The file of ${setting}_FILE`, remedy: creationHint, redactor });
}

/** Throws a SettingError, with the source and the remedy, unless the text is a key. */
function parseKey(
  text: string,
  { source, remedy, redactor }: { source: string; remedy: string; redactor: Redactor },
): MasterKey {
  redactor.hold(text.trim());
  const key = parseMasterKey(text);
  if (key === null) throw new SettingError(`${source} must contain 32 bytes in base64. ${remedy}`);
  return key;
}

async function readKeyFile(path: string, setting: string): Promise<string> {
  try {
    return await readFile(path, 'utf8');
  } catch (cause) {
    throw new SettingError(
      `${setting} names ${path}, which cannot be read: ${errorCode(cause) ?? 'unknown'}.`,
    );
  }
}

function keyPath(dataFolder: string): string {
  return join(dataFolder, 'master.key');
}

const damagedKeyRemedy = [
  'Restore it from your copy: no other key can decrypt the stored values.',
  'If the database is new, delete the file; the next start creates another.',
].join(' ');

/** The key of the file beside the embedded database; null when there is none, and with PostgreSQL. */
async function readStoredKey(dataFolder: string | null, redactor: Redactor): Promise<MasterKey | null> {
  if (dataFolder === null) return null;
  const path = keyPath(dataFolder);
  const existing = await readFile(path, 'utf8').catch((error: unknown) => {
    if (isMissing(error)) return null;
    throw new Error(`The master key ${path} cannot be read: ${errorCode(error) ?? 'unknown'}.`, {
      cause: error,
    });
  });
  if (existing === null) return null;
  return parseKey(existing, { source: `The file ${path}`, remedy: damagedKeyRemedy, redactor });
}

/** Call it only while no value is encrypted. Null with PostgreSQL, where the operator sets the key. */
async function createStoredKey(
  dataFolder: string | null,
  redactor: Redactor,
  log: Log,
): Promise<MasterKey | null> {
  if (dataFolder === null) return null;
  const path = keyPath(dataFolder);
  const text = newMasterKey();
  await writeDurably(path, text);
  log.info({ path }, 'created a master key for the embedded database; without it the stored values are lost');
  return parseKey(text, { source: path, remedy: creationHint, redactor });
}

// fsync the file and its folder before the key is used: losing the key in a power cut would lose the values.
async function writeDurably(path: string, text: string): Promise<void> {
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
