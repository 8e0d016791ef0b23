// Rotation of the master key without downtime. Values are sealed with the key that sealed the canary, not
// with each server's primary key. So the servers can be given the new key one by one, and the rewrap then
// switches all of them at once.
import type { Changes } from '../../kernel/data/changes.ts';
import type { Tx } from '../../kernel/data/database.ts';
import { Problem } from '../../kernel/problem.ts';
import { SealError, keyIdOf, type Vault } from '../../kernel/secrets/vault.ts';
import type { AuditEntry } from '../audit/index.ts';
import { systemOrigin } from '../identity.ts';
import { canaryContext, canaryText, requireRightKey } from './master-key.ts';
import { variablesTable, type EnvStore, type SealedVariable, type StoredVariable } from './store.ts';

export interface RewrapResult {
  /** How many values had been sealed with another key. */
  rewrapped: number;
  /** The key that now seals every value. */
  kid: string;
}

/** The master keys that seal the stored values. */
export interface SealingKeys {
  /** The key for new values; null while nothing has been sealed. */
  current: string | null;
  /** Sorted by id. Includes the current key even when it seals no value. */
  keys: { kid: string; values: number }[];
  /** Values whose seal is malformed. */
  damaged: number;
}

/** Counts the stored values by master key. Needs no key: it decrypts nothing. */
export async function findSealingKeys(store: Pick<EnvStore, 'survey' | 'list'>): Promise<SealingKeys> {
  const { canary, variableCount } = await store.survey();
  const current = canary === null ? null : keyIdOf(canary);
  const counts = new Map<string, number>(current === null ? [] : [[current, 0]]);
  let damagedCount = 0;
  for (const { sealed } of variableCount === 0 ? [] : await store.list()) {
    const kid = kidOrNull(sealed);
    if (kid === null) damagedCount += 1;
    else counts.set(kid, (counts.get(kid) ?? 0) + 1);
  }
  const keys = [...counts].map(([kid, values]) => ({ kid, values })).sort((a, b) => (a.kid < b.kid ? -1 : 1));
  return { current, keys, damaged: damagedCount };
}

/** Throws 409 unless a command's master key is this server's primary key. */
export function requireSameKey(serverKid: string, commandKid: unknown): void {
  if (commandKid === serverKid) return;
  const command = typeof commandKid === 'string' ? `the master key ${commandKid}` : 'no master key';
  const message = [
    `The running server uses the master key ${serverKid}, but this command has ${command}.`,
    'Restart the server with the new key as TOWNHALL_MASTER_KEY and the old key as TOWNHALL_MASTER_KEY_PREVIOUS,',
    'then run this command with the same two settings. Nothing was changed.',
  ];
  throw new Problem('conflict', 'conflict', message.join(' '));
}

interface RotationOptions {
  store: EnvStore;
  vault: Vault;
  audit: { record(tx: Tx, entry: AuditEntry): Promise<void> };
  changes: Pick<Changes, 'bump'>;
}

/**
 * Writes the canary if there is none, and returns the ID of the key that sealed it. Throws a SettingError
 * when the vault does not have that key.
 */
export async function sealCanary(store: EnvStore, vault: Vault): Promise<string> {
  const existing = (await store.survey()).canary;
  if (existing === null) await store.insertCanary(vault.seal(vault.primaryKid, canaryContext, canaryText));
  // Read it again: another server may have inserted its canary first.
  const canary = existing ?? (await store.survey()).canary;
  if (canary === null) throw new Error('The canary of the master key could not be written.');
  requireRightKey(vault, canary);
  return keyIdOf(canary);
}

/**
 * Seals every value with the primary key. Throws 409 `env_unreadable`, which lists the variables, when values
 * cannot be decrypted.
 */
export async function rewrapAll(
  tx: Tx,
  { store, vault, audit, changes }: RotationOptions,
): Promise<RewrapResult> {
  const kid = vault.primaryKid;
  // Concurrent writers wait for this lock until the transaction ends, and then write with the new key.
  const canary = await store.lockCanary(tx);
  const rows = await store.listForUpdate(tx);
  const outdatedRows = rows.filter(({ sealed }) => kidOrNull(sealed) !== kid);
  const values = openAll(vault, outdatedRows);
  const versions = await store.newVersions(tx, outdatedRows.length);
  const resealedVariables = outdatedRows.map(({ key }, index): SealedVariable => {
    const version = versions[index] as number;
    const context = { table: variablesTable, key, version };
    return { key, version, sealed: vault.seal(kid, context, values[index] as string) };
  });
  const isNewKey = keyIdOf(canary) !== kid;
  if (!isNewKey && resealedVariables.length === 0) return { rewrapped: 0, kid };
  if (isNewKey) await store.replaceCanary(tx, vault.seal(kid, canaryContext, canaryText));
  await store.reseal(tx, resealedVariables);
  await audit.record(tx, {
    ...systemOrigin,
    action: 'env.rewrap',
    target: null,
    outcome: 'ok',
    diff: { kid, rewrapped: resealedVariables.length },
  });
  await changes.bump(tx);
  return { rewrapped: resealedVariables.length, kid };
}

/** The values of the rows. Throws 409 `env_unreadable` with the keys of all rows that cannot be decrypted. */
function openAll(vault: Vault, rows: readonly StoredVariable[]): string[] {
  const values = rows.map((row) => openOrNull(vault, row));
  const unreadableKeys = rows.filter((_row, index) => values[index] === null).map(({ key }) => key);
  if (unreadableKeys.length > 0) {
    const keys = unreadableKeys.join(', ');
    throw new Problem(
      'conflict',
      'env_unreadable',
      `Nothing was rewrapped: ${keys} cannot be decrypted. Set them again or remove them first.`,
    );
  }
  return values as string[];
}

function kidOrNull(sealed: string): string | null {
  try {
    return keyIdOf(sealed);
  } catch {
    return null;
  }
}

/** The value of a stored variable; null when it cannot be decrypted. */
export function openOrNull(vault: Vault, { key, version, sealed }: StoredVariable): string | null {
  try {
    return vault.open({ table: variablesTable, key, version }, sealed);
  } catch (error) {
    if (error instanceof SealError) return null;
    throw error;
  }
}
