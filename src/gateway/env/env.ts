// The environment: settings and secrets that an administrator stores in the gateway.
// Each write is encrypted, audited and announced to every replica in one transaction.
import type { Changes } from '../../kernel/data/changes.ts';
import type { Clock } from '../../kernel/clock.ts';
import type { Tx } from '../../kernel/data/database.ts';
import type { Log } from '../../kernel/log.ts';
import type { Redactor } from '../../kernel/secrets/secret.ts';
import type { Vault } from '../../kernel/secrets/vault.ts';
import type { AuditEntry } from '../audit/index.ts';
import type { Requirement, Service } from '../service.ts';
import { declarationsOf, type Declarer } from './declarations.ts';
import { envHandlers } from './handlers.ts';
import { requireSameKey, rewrapAll, sealCanary, findSealingKeys, type RewrapResult } from './rotation.ts';
import { createSnapshot, type EnvReader } from './snapshot.ts';
import type { EnvStore } from './store.ts';
import type { KeyRules } from './variable.ts';
import { createWriter } from './writer.ts';

export interface EnvOptions {
  store: EnvStore;
  vault: Vault;
  /** The process environment. Stored values take precedence over it. */
  environment: Readonly<Record<string, string | undefined>>;
  keyRules: KeyRules;
  /** All services that declare keys. Called for each request, because services are constructed later. */
  declarers(): readonly Declarer[];
  audit: { record(tx: Tx, entry: AuditEntry): Promise<void> };
  changes: Pick<Changes, 'bump' | 'onChange'>;
  redactor: Redactor;
  clock: Pick<Clock, 'sleep'>;
  log: Log;
}

export interface Env extends Service<'env'> {
  reader: EnvReader;
  /** Starts to follow the changes of other replicas. Call it when all declarers are constructed. */
  start(): void;
  /**
   * Encrypts every value with the primary key. Throws 409 `env_unreadable`, and changes nothing, when a
   * value cannot be decrypted.
   */
  rewrap(): Promise<RewrapResult>;
  /** The commands of `townhall env` on the control socket. */
  controls: Record<'env.rewrap' | 'env.keys', (input: unknown) => Promise<unknown>>;
}

// Services that derive an address from this key may declare it too; the declarations are merged.
const publicAddress: Requirement = {
  key: 'TOWNHALL_CITY_BASE_URL',
  description:
    'The address under which users reach this server; login and payment pages are derived from it.',
  required: false,
  secret: false,
};

/** Needs a migrated database. Throws a SettingError when its values are encrypted with another master key. */
export async function env(options: EnvOptions): Promise<Env> {
  const { store, vault, audit, changes, log, keyRules } = options;
  const declarations = () => declarationsOf(options.declarers());
  const isSecret = (key: string): boolean => declarations().get(key)?.secret ?? true;
  const snapshot = createSnapshot({ ...options, isSecret });
  let unsubscribe = (): void => {};

  const activeKid = await sealCanary(store, vault);
  await snapshot.refresh();

  // A write is committed before the refresh, so a failed refresh must not fail the
  // request. The snapshot retries.
  async function refresh(): Promise<void> {
    await snapshot
      .refresh()
      .catch((error: unknown) =>
        log.warn({ err: error }, 'the environment could not be reloaded from the database; retrying'),
      );
  }

  async function rewrap(): Promise<RewrapResult> {
    const result = await store.tx((tx) => rewrapAll(tx, { store, vault, audit, changes }));
    await refresh();
    return result;
  }

  return {
    name: 'env',
    title: 'Environment',
    env: [publicAddress],
    reader: { get: (key) => snapshot.get(key) },
    start() {
      snapshot.reviewSecrets();
      unsubscribe = changes.onChange(() => void refresh());
      if (activeKid !== vault.primaryKid)
        log.warn(
          {},
          'values are encrypted with the previous master key; run "townhall env rewrap" once every server has the new key',
        );
    },
    rewrap,
    controls: {
      async 'env.rewrap'(input) {
        requireSameKey(vault.primaryKid, (input as { kid?: unknown } | null)?.kid);
        return rewrap();
      },
      'env.keys': async () => ({ ...(await findSealingKeys(store)), server: vault.primaryKid }),
    },
    async close() {
      unsubscribe();
      await snapshot.close();
    },
    handlers: envHandlers({
      snapshot,
      writer: createWriter({ store, vault, audit, changes, refresh }),
      recordReveal: (entry) => store.tx((tx) => audit.record(tx, entry)),
      declarations,
      isSecret,
      keyRules,
    }),
  };
}
