// Keeps all stored values decrypted in memory, so that reading a value is synchronous and needs no database.
// The snapshot is reloaded after every change on any replica. A stored value that cannot be decrypted reads
// as missing; the process environment does not replace it.
import type { Clock } from '../../kernel/clock.ts';
import type { Log } from '../../kernel/log.ts';
import type { Redactor } from '../../kernel/secrets/secret.ts';
import { SealError, type Vault } from '../../kernel/secrets/vault.ts';
import { createRefresher } from './refresher.ts';
import { variablesTable, type EnvStore, type StoredVariable } from './store.ts';

/** The environment as it is now. Read a value each time it is used. */
export interface EnvReader {
  get(key: string): string | undefined;
}

export interface SnapshotEntry {
  key: string;
  /** Null when the stored value cannot be decrypted. */
  value: string | null;
  updatedAt: Date;
}

export interface EnvSnapshot extends EnvReader {
  entry(key: string): SnapshotEntry | undefined;
  /** Sorted by key. */
  entries(): readonly SnapshotEntry[];
  /**
   * Resolves when a load that started after this call has succeeded. Rejects when that load fails; retries
   * then continue in the background.
   */
  refresh(): Promise<void>;
  /** Redacts secrets in the log by the current declarations. Call it when all declarers are constructed. */
  reviewSecrets(): void;
  close(): Promise<void>;
}

interface CachedEntry extends SnapshotEntry {
  sealed: string;
  version: number;
  /** Ends the redaction of the value in the log. */
  release: () => void;
}

interface SnapshotOptions {
  store: Pick<EnvStore, 'list'>;
  vault: Vault;
  /** The process environment. */
  environment: Readonly<Record<string, string | undefined>>;
  isSecret(key: string): boolean;
  redactor: Redactor;
  clock: Pick<Clock, 'sleep'>;
  log: Log;
}

export function createSnapshot(options: SnapshotOptions): EnvSnapshot {
  const { store, environment, clock } = options;
  // The functions that end the redaction of values of the process environment, by key.
  const processReleases = new Map<string, () => void>();
  let cache: ReadonlyMap<string, CachedEntry> = new Map();

  function toEntry(row: StoredVariable): CachedEntry {
    const existing = cache.get(row.key);
    // Most loads change nothing, so reuse the decrypted value. The version is part of the seal's context
    // and must be equal too.
    if (existing?.sealed === row.sealed && existing.version === row.version)
      return { ...existing, updatedAt: row.updatedAt };
    return decrypt(options, row);
  }

  async function load(): Promise<void> {
    const rows = await store.list();
    const previousCache = cache;
    cache = new Map(rows.map((row) => [row.key, toEntry(row)]));
    // An unchanged entry keeps its `release`, so this ends the redaction of replaced and removed values.
    for (const [key, entry] of previousCache) if (cache.get(key)?.release !== entry.release) entry.release();
  }

  const refresher = createRefresher(load, clock);

  return {
    get(key) {
      const entry = cache.get(key);
      if (entry !== undefined) return entry.value ?? undefined;
      const value = environment[key];
      if (value !== undefined && !processReleases.has(key))
        processReleases.set(key, redact(options, key, value));
      return value;
    },
    entry: (key) => cache.get(key),
    entries: () => [...cache.values()],
    refresh: () => refresher.refresh(),
    reviewSecrets() {
      cache = new Map(
        [...cache].map(([key, entry]) => {
          entry.release();
          const { value } = entry;
          return [key, { ...entry, release: value === null ? () => {} : redact(options, key, value) }];
        }),
      );
      for (const [key, release] of processReleases) {
        release();
        processReleases.set(key, redact(options, key, environment[key] ?? ''));
      }
    },
    close: () => refresher.close(),
  };
}

/** Redacts the value in the log if it is a secret. Returns the function that ends the redaction. */
function redact(
  { isSecret, redactor }: Pick<SnapshotOptions, 'isSecret' | 'redactor'>,
  key: string,
  value: string,
): () => void {
  return isSecret(key) ? redactor.hold(value) : () => {};
}

function decrypt(options: SnapshotOptions, row: StoredVariable): CachedEntry {
  const { key, version, sealed } = row;
  try {
    const value = options.vault.open({ table: variablesTable, key, version }, sealed);
    return { ...row, value, release: redact(options, key, value) };
  } catch (error) {
    if (!(error instanceof SealError)) throw error;
    options.log.error(
      { alert: 'env_unreadable', key, reason: error.reason },
      'a stored variable cannot be decrypted; it is treated as missing until it is written again',
    );
    return { ...row, value: null, release: () => {} };
  }
}
