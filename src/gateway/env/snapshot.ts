// All stored values in memory, opened, so that reading one is synchronous and needs no database. It is loaded
// again after every change on any replica; a value that does not open is shut, and never the process's instead.
import type { Clock } from '../../kernel/clock.ts';
import type { Log } from '../../kernel/log.ts';
import type { Redactor } from '../../kernel/secrets/secret.ts';
import { SealError, type Vault } from '../../kernel/secrets/vault.ts';
import { variablesTable, type EnvStore, type StoredVariable } from './store.ts';

/** The environment as it is right now; asked again wherever a value is used. */
export interface EnvReader {
  get(key: string): string | undefined;
}

export interface SnapshotEntry {
  key: string;
  /** Null when the stored value does not open. */
  value: string | null;
  updatedAt: Date;
}

export interface EnvSnapshot extends EnvReader {
  entry(key: string): SnapshotEntry | undefined;
  /** In the order of the keys. */
  entries(): readonly SnapshotEntry[];
  /** Resolves once a load that began after this call is in; rejects when it failed. Another is tried until one succeeds. */
  refresh(): Promise<void>;
  /** Looks again at what is a secret, after everyone has said what they declare. */
  reviewSecrets(): void;
  close(): Promise<void>;
}

export interface SnapshotNeeds {
  store: Pick<EnvStore, 'list'>;
  vault: Vault;
  /** What the process has. */
  environment: Readonly<Record<string, string | undefined>>;
  isSecret(key: string): boolean;
  redactor: Redactor;
  clock: Pick<Clock, 'sleep'>;
  log: Log;
}

interface Held extends SnapshotEntry {
  sealed: string;
  version: number;
  release: () => void;
}

const retryMs = 250;

export function createSnapshot(needs: SnapshotNeeds): EnvSnapshot {
  const { store, vault, environment, redactor, clock, log } = needs;
  const closing = new AbortController();
  const ofProcess = new Map<string, () => void>();
  let held: ReadonlyMap<string, Held> = new Map();
  let loading: Promise<void> | undefined;
  let next: Promise<void> | undefined;
  let retrying: Promise<void> | undefined;

  const hold = (key: string, value: string): (() => void) =>
    needs.isSecret(key) ? redactor.hold(value) : () => {};

  function opened(row: StoredVariable): Held {
    const before = held.get(row.key);
    // Opened once: most loads bring nothing new. The version is part of it, because it is part of the seal.
    if (before?.sealed === row.sealed && before.version === row.version)
      return { ...before, updatedAt: row.updatedAt };
    try {
      const value = vault.open({ table: variablesTable, key: row.key, version: row.version }, row.sealed);
      return { ...row, value, release: hold(row.key, value) };
    } catch (error) {
      if (!(error instanceof SealError)) throw error;
      log.error(
        { alert: 'env_unreadable', key: row.key, reason: error.reason },
        'a stored variable does not open; nothing uses it until it is written again',
      );
      return { ...row, value: null, release: () => {} };
    }
  }

  async function load(): Promise<void> {
    const rows = await store.list();
    const before = held;
    held = new Map(rows.map((row) => [row.key, opened(row)]));
    for (const [key, entry] of before) if (held.get(key)?.release !== entry.release) entry.release();
  }

  function begin(): Promise<void> {
    loading = load().finally(() => (loading = undefined));
    return loading;
  }

  function attempt(): Promise<void> {
    if (loading === undefined) return begin();
    // One load that begins after the one under way is enough for everyone who asks meanwhile.
    next ??= loading
      .then(undefined, () => undefined)
      .then(() => {
        next = undefined;
        return begin();
      });
    return next;
  }

  async function untilLoaded(): Promise<void> {
    while (!closing.signal.aborted) {
      await clock.sleep(retryMs, closing.signal).catch(() => undefined);
      if (closing.signal.aborted) return;
      try {
        return await attempt();
      } catch {
        // The database is still away; whoever watches it says so.
      }
    }
  }

  return {
    get(key) {
      const entry = held.get(key);
      if (entry !== undefined) return entry.value ?? undefined;
      const value = environment[key];
      if (value !== undefined && !ofProcess.has(key)) ofProcess.set(key, hold(key, value));
      return value;
    },
    entry: (key) => held.get(key),
    entries: () => [...held.values()],
    async refresh() {
      try {
        await attempt();
      } catch (error) {
        retrying ??= untilLoaded().finally(() => (retrying = undefined));
        throw error;
      }
    },
    reviewSecrets() {
      held = new Map(
        [...held].map(([key, entry]) => {
          entry.release();
          return [key, { ...entry, release: entry.value === null ? () => {} : hold(key, entry.value) }];
        }),
      );
      for (const [key, release] of ofProcess) {
        release();
        ofProcess.delete(key);
      }
    },
    async close() {
      closing.abort();
      await retrying;
      await loading?.catch(() => undefined);
    },
  };
}
