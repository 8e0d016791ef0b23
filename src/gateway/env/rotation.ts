// The change from one master key to the next while everything serves. Values are written under the key that
// the canary is under, not under a server's first one: so servers can be given the new key one by one, and
// only the rewrap, at one moment and for all of them, puts it to use.
import type { Changes } from '../../kernel/data/changes.ts';
import type { Tx } from '../../kernel/data/database.ts';
import { Problem } from '../../kernel/problem.ts';
import { SealError, keyIdOf, type Vault } from '../../kernel/secrets/vault.ts';
import type { AuditEntry } from '../audit/index.ts';
import { systemOrigin } from '../identity.ts';
import { canaryPlace, canaryWord, requireOpens } from './master-key.ts';
import { variablesTable, type EnvStore, type SealedVariable, type StoredVariable } from './store.ts';

export interface Rewrapped {
  /** How many values were under another key. */
  rewrapped: number;
  /** The key that everything is under now. */
  kid: string;
}

/** Which master keys seal what is stored. */
export interface SealingKeys {
  /** The key that new values go under; null while nothing was ever sealed. */
  current: string | null;
  /** Sorted by id; the current key is there also without a value. */
  keys: { kid: string; values: number }[];
  /** Values whose seal cannot be read. */
  damaged: number;
}

/** Counts the stored values by master key. Opens none of them, so that no key is needed. */
export async function sealingKeys(store: Pick<EnvStore, 'survey' | 'list'>): Promise<SealingKeys> {
  const { canary, variables } = await store.survey();
  const current = canary === null ? null : keyIdOf(canary);
  const counts = new Map<string, number>(current === null ? [] : [[current, 0]]);
  let damaged = 0;
  for (const { sealed } of variables === 0 ? [] : await store.list()) {
    const kid = kidOrNull(sealed);
    if (kid === null) damaged += 1;
    else counts.set(kid, (counts.get(kid) ?? 0) + 1);
  }
  const keys = [...counts].map(([kid, values]) => ({ kid, values })).sort((a, b) => (a.kid < b.kid ? -1 : 1));
  return { current, keys, damaged };
}

/** Throws a Problem unless the key that a command was given is the one that this server seals under. */
export function requireSameKey(serverKid: string, commandKid: unknown): void {
  if (commandKid === serverKid) return;
  const command = typeof commandKid === 'string' ? `the master key ${commandKid}` : 'no master key';
  const message = `The running server seals under the master key ${serverKid}, and this command has ${command}. Start the server again with the new key as TOWNHALL_MASTER_KEY and the old one as TOWNHALL_MASTER_KEY_PREVIOUS, then run this command with the same two. Nothing was changed.`;
  throw new Problem('conflict', 'conflict', message);
}

export interface RotationNeeds {
  store: EnvStore;
  vault: Vault;
  audit: { record(tx: Tx, entry: AuditEntry): Promise<void> };
  changes: Pick<Changes, 'bump'>;
}

/** Gives the key in force. Throws a SettingError when another server set another one a moment before. */
export async function sealCanary(store: EnvStore, vault: Vault): Promise<string> {
  const before = (await store.survey()).canary;
  if (before === null) await store.insertCanary(vault.seal(vault.primaryKid, canaryPlace, canaryWord));
  const canary = before ?? (await store.survey()).canary;
  if (canary === null) throw new Error('The canary of the master key could not be written.');
  requireOpens(vault, canary);
  return keyIdOf(canary);
}

/** Puts everything under the primary key. Throws 409 `env_unreadable`, naming the keys, when a value does not open. */
export async function rewrapAll(tx: Tx, { store, vault, audit, changes }: RotationNeeds): Promise<Rewrapped> {
  const kid = vault.primaryKid;
  // Held to the end: whoever writes a value meanwhile waits here and then writes it under the new key.
  const canary = await store.lockCanary(tx, 'update');
  const rows = await store.listForUpdate(tx);
  const unreadable: string[] = [];
  const old = rows.filter(({ sealed }) => kidOrNull(sealed) !== kid);
  const versions = await store.newVersions(tx, old.length);
  const resealed = old.flatMap((row, index): SealedVariable[] => {
    const value = openOrNull(vault, row);
    if (value === null) {
      unreadable.push(row.key);
      return [];
    }
    const version = versions[index] as number;
    return [
      {
        key: row.key,
        version,
        sealed: vault.seal(kid, { table: variablesTable, key: row.key, version }, value),
      },
    ];
  });
  if (unreadable.length > 0) {
    const message = `Nothing was rewrapped: ${unreadable.join(', ')} cannot be opened. Write or remove them first.`;
    throw new Problem('conflict', 'env_unreadable', message);
  }
  const isMoved = keyIdOf(canary) !== kid;
  if (!isMoved && resealed.length === 0) return { rewrapped: 0, kid };
  if (isMoved) await store.replaceCanary(tx, vault.seal(kid, canaryPlace, canaryWord));
  await store.reseal(tx, resealed);
  await audit.record(tx, {
    ...systemOrigin,
    action: 'env.rewrap',
    target: null,
    outcome: 'ok',
    diff: { kid, rewrapped: resealed.length },
  });
  await changes.bump(tx);
  return { rewrapped: resealed.length, kid };
}

function kidOrNull(sealed: string): string | null {
  try {
    return keyIdOf(sealed);
  } catch {
    return null;
  }
}

function openOrNull(vault: Vault, { key, version, sealed }: StoredVariable): string | null {
  try {
    return vault.open({ table: variablesTable, key, version }, sealed);
  } catch (error) {
    if (error instanceof SealError) return null;
    throw error;
  }
}
