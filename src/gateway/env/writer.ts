// Writes to the environment: encrypt, store, audit and notify the replicas in one transaction, then refresh
// the snapshot.
import type { Tx } from '../../kernel/data/database.ts';
import { Problem } from '../../kernel/problem.ts';
import { keyIdOf, type Vault } from '../../kernel/secrets/vault.ts';
import type { AuditEntry } from '../audit/index.ts';
import type { Origin } from '../identity.ts';
import { openOrNull } from './rotation.ts';
import { variablesTable, type EnvStore, type SealedVariable } from './store.ts';

/** The fingerprints of a value before and after a write; null for no value. The audit log has no values. */
export interface ValueChange {
  before: string | null;
  after: string | null;
}

export interface EnvWriter {
  /**
   * Returns the time of the write. `toAuditEntry` gets the changes by key. Throws 503 `env_sealed` when this
   * server does not have the current master key.
   */
  write(
    variables: ReadonlyMap<string, string>,
    toAuditEntry: (changes: Record<string, ValueChange>) => AuditEntry,
  ): Promise<Date>;
  /** Returns whether there was a value. */
  remove(key: string, toAuditEntry: (change: ValueChange) => AuditEntry): Promise<boolean>;
}

export function createWriter({
  store,
  vault,
  audit,
  changes,
  refresh,
}: {
  store: EnvStore;
  vault: Vault;
  audit: { record(tx: Tx, entry: AuditEntry): Promise<void> };
  changes: { bump(tx: Tx): Promise<void> };
  refresh: () => Promise<void>;
}): EnvWriter {
  const fingerprintOf = (value: string | null): string | null =>
    value === null ? null : vault.fingerprint(value);

  /**
   * The fingerprints of the stored values by key; null for a value that cannot be decrypted. Read from the
   * database, since another replica may have written a value that the snapshot does not have yet.
   */
  async function readFingerprints(tx: Tx, keys: readonly string[]): Promise<Map<string, string | null>> {
    const rows = await store.listForUpdate(tx, keys);
    return new Map(rows.map((row) => [row.key, fingerprintOf(openOrNull(vault, row))]));
  }

  async function seal(tx: Tx, variables: ReadonlyMap<string, string>): Promise<SealedVariable[]> {
    const kid = keyIdOf(await store.lockCanary(tx));
    if (!vault.has(kid)) throw masterKeyChanged();
    const versions = await store.newVersions(tx, variables.size);
    return [...variables].map(([key, value], index) => {
      const version = versions[index] as number;
      return { key, version, sealed: vault.seal(kid, { table: variablesTable, key, version }, value) };
    });
  }

  return {
    async write(variables, toAuditEntry) {
      const updatedAt = await store.tx(async (tx) => {
        const sealedVariables = await seal(tx, variables);
        const oldFingerprints = await readFingerprints(tx, [...variables.keys()]);
        const writtenAt = await store.upsert(tx, sealedVariables);
        const valueChanges = [...variables].map(
          ([key, value]) =>
            [key, { before: oldFingerprints.get(key) ?? null, after: fingerprintOf(value) }] as const,
        );
        await audit.record(tx, toAuditEntry(Object.fromEntries(valueChanges)));
        await changes.bump(tx);
        return writtenAt;
      });
      await refresh();
      return updatedAt;
    },
    async remove(key, toAuditEntry) {
      const isRemoved = await store.tx(async (tx) => {
        const before = (await readFingerprints(tx, [key])).get(key) ?? null;
        if (!(await store.remove(tx, key))) return false;
        await audit.record(tx, toAuditEntry({ before, after: null }));
        await changes.bump(tx);
        return true;
      });
      await refresh();
      return isRemoved;
    },
  };
}

/** The audit entry of one variable, or of several when the key is null. */
export function envAuditEntry(
  origin: Origin,
  action: string,
  key: string | null,
  diff: object | undefined,
): AuditEntry {
  return {
    ...origin,
    action,
    target: key === null ? null : { kind: 'env', id: key },
    outcome: 'ok',
    ...(diff === undefined ? {} : { diff: { ...diff } }),
  };
}

// Another server has rotated the master key to one that this server does not have. This server must not write
// with the old key: the other servers could not decrypt the value.
function masterKeyChanged(): Problem {
  return new Problem(
    'unavailable',
    'env_sealed',
    'This server does not have the master key that is in use now.',
    { headers: { 'retry-after': '30' } },
  );
}
