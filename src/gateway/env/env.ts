// The service `env`: keys and secrets that an administrator writes at run time. A write is sealed, audited and
// told to every replica in one transaction; a value is shown whole only when that was asked for and recorded.
import type { EnvVariable } from '../../contract/gateway/types.gen.ts';
import type { Changes } from '../../kernel/data/changes.ts';
import type { Clock } from '../../kernel/clock.ts';
import type { Tx } from '../../kernel/data/database.ts';
import type { Log } from '../../kernel/log.ts';
import { Problem } from '../../kernel/problem.ts';
import type { Redactor } from '../../kernel/secrets/secret.ts';
import { keyIdOf, type Vault } from '../../kernel/secrets/vault.ts';
import type { AuditEntry } from '../audit/index.ts';
import { originOf, type Origin } from '../identity.ts';
import type { Requirement, Service } from '../service.ts';
import { declarationsOf, type Declarer } from './declarations.ts';
import { variablesIn } from './import.ts';
import { requireSameKey, rewrapAll, sealCanary, sealingKeys, type Rewrapped } from './rotation.ts';
import { createSnapshot, type EnvReader, type SnapshotEntry } from './snapshot.ts';
import { variablesTable, type EnvStore, type SealedVariable } from './store.ts';
import { faultOf, keyFault, masked, type Fault } from './variable.ts';

export interface EnvNeeds {
  store: EnvStore;
  vault: Vault;
  /** What the process has; what is stored wins over it. */
  environment: Readonly<Record<string, string | undefined>>;
  /** Keys that the server itself reads at its start; nothing can be stored under them. */
  isReserved(key: string): boolean;
  /** Everyone who declares a key; asked at each call, so a service may come later. */
  declarers(): readonly Declarer[];
  audit: { record(tx: Tx, entry: AuditEntry): Promise<void> };
  changes: Pick<Changes, 'bump' | 'onChange'>;
  redactor: Redactor;
  clock: Pick<Clock, 'sleep'>;
  log: Log;
}

export interface Env extends Service<'env'> {
  reader: EnvReader;
  /** Follows the changes of other replicas. Called once everyone who declares a key is there. */
  start(): void;
  /** Puts every value under the primary key. Throws 409 `env_unreadable` and changes nothing when one does not open. */
  rewrap(): Promise<Rewrapped>;
  /** What `townhall env` asks of this server over its control socket. */
  controls: Record<'env.rewrap' | 'env.keys', (input: unknown) => Promise<unknown>>;
}

type Fingerprints = Record<string, { before: string | null; after: string | null }>;

// It is read from here as well as from the process, and whoever derives an address from it may declare it too.
const publicAddress: Requirement = {
  key: 'TOWNHALL_CITY_BASE_URL',
  description:
    'The address under which users reach this server; login and payment pages are derived from it.',
  required: false,
  secret: false,
};

/** Opens the service over a migrated database. Throws a SettingError when another master key was there first. */
export async function env(needs: EnvNeeds): Promise<Env> {
  const { store, vault, audit, changes, log, isReserved } = needs;
  const declarations = () => declarationsOf(needs.declarers());
  const isSecret = (key: string): boolean => declarations().get(key)?.secret ?? true;
  const snapshot = createSnapshot({ ...needs, isSecret });
  let stopFollowing = (): void => {};

  const activeKid = await sealCanary(store, vault);
  await snapshot.refresh();

  function shown(entry: SnapshotEntry, reveal = false): EnvVariable {
    const { key, value, updatedAt } = entry;
    const secret = isSecret(key);
    const isMasked = value === null || (secret && !reveal);
    return {
      key,
      value: isMasked ? masked(value ?? '') : value,
      secret,
      masked: isMasked,
      readable: value !== null,
      updated_at: updatedAt.toISOString(),
      source: 'database',
    };
  }

  /** What is declared, not stored, and there in the process. */
  function ofProcess(reveal: boolean): EnvVariable[] {
    return [...declarations().values()].flatMap(({ key, secret }) => {
      const value = snapshot.entry(key) === undefined ? snapshot.get(key) : undefined;
      if (value === undefined || isReserved(key)) return [];
      const isMasked = secret && !reveal;
      return [
        {
          key,
          value: isMasked ? masked(value) : value,
          secret,
          masked: isMasked,
          readable: true,
          updated_at: null,
          source: 'process' as const,
        },
      ];
    });
  }

  /** Gives the time of the write. */
  async function write(
    variables: ReadonlyMap<string, string>,
    entry: (diff: Fingerprints) => AuditEntry,
  ): Promise<Date> {
    const updatedAt = await store.tx(async (tx) => {
      const kid = keyIdOf(await store.lockCanary(tx, 'share'));
      if (!vault.has(kid)) throw keysChanged();
      const versions = await store.newVersions(tx, variables.size);
      const sealed = [...variables].map(([key, value], index): SealedVariable => {
        const version = versions[index] as number;
        return { key, version, sealed: vault.seal(kid, { table: variablesTable, key, version }, value) };
      });
      const writtenAt = await store.upsert(tx, sealed);
      await audit.record(tx, entry(fingerprints(variables)));
      await changes.bump(tx);
      return writtenAt;
    });
    await takeOver();
    return updatedAt;
  }

  function fingerprints(variables: ReadonlyMap<string, string>): Fingerprints {
    return Object.fromEntries(
      [...variables].map(([key, value]) => {
        const before = snapshot.entry(key)?.value ?? null;
        return [
          key,
          { before: before === null ? null : vault.fingerprint(before), after: vault.fingerprint(value) },
        ];
      }),
    );
  }

  // The write is committed; that this replica cannot read it back at once is no failure of the call.
  async function takeOver(): Promise<void> {
    await snapshot
      .refresh()
      .catch((error: unknown) =>
        log.warn({ err: error }, 'the environment could not be read again; it is tried until it can'),
      );
  }

  async function rewrap(): Promise<Rewrapped> {
    const result = await store.tx((tx) => rewrapAll(tx, { store, vault, audit, changes }));
    await takeOver();
    return result;
  }

  return {
    name: 'env',
    title: 'Environment',
    env: [publicAddress],
    reader: { get: (key) => snapshot.get(key) },
    start() {
      snapshot.reviewSecrets();
      stopFollowing = changes.onChange(() => void takeOver());
      if (activeKid !== vault.primaryKid)
        log.warn(
          {},
          'values are under the previous master key; run "townhall env rewrap" once every server has the new one',
        );
    },
    rewrap,
    controls: {
      async 'env.rewrap'(input) {
        requireSameKey(vault.primaryKid, (input as { kid?: unknown } | null)?.kid);
        return rewrap();
      },
      'env.keys': async () => ({ ...(await sealingKeys(store)), server: vault.primaryKid }),
    },
    async close() {
      stopFollowing();
      await snapshot.close();
    },
    handlers: {
      'env.listVariables': async (call) => {
        const reveal = call.query.reveal === true;
        const items = [...snapshot.entries().map((entry) => shown(entry, reveal)), ...ofProcess(reveal)].sort(
          byKey,
        );
        if (reveal) {
          const keys = items
            .filter(({ secret, masked: isMasked }) => secret && !isMasked)
            .map(({ key }) => key);
          await store.tx((tx) =>
            audit.record(tx, entryOf(originOf(call), 'env.revealVariables', null, { keys })),
          );
        }
        return { status: 200, body: { items } };
      },
      'env.upsertVariable': async (call) => {
        const { key, value } = call.body;
        const fault = faultOf(key, value, isReserved);
        if (fault !== null) throw refused(fault);
        const updatedAt = await write(new Map([[key, value]]), (diff) =>
          entryOf(originOf(call), call.operationId, key, diff[key]),
        );
        return { status: 200, body: shown({ key, value, updatedAt }) };
      },
      'env.removeVariable': async (call) => {
        const { key } = call.body;
        const fault = keyFault(key, isReserved);
        if (fault !== null) throw refused(fault);
        const removed = await store.tx(async (tx) => {
          if (!(await store.remove(tx, key))) return false;
          const before = snapshot.entry(key)?.value ?? null;
          await audit.record(
            tx,
            entryOf(originOf(call), call.operationId, key, {
              before: before === null ? null : vault.fingerprint(before),
              after: null,
            }),
          );
          await changes.bump(tx);
          return true;
        });
        await takeOver();
        return { status: 200, body: { removed } };
      },
      'env.importVariables': async (call) => {
        const variables = variablesIn(call.body.content, isReserved);
        const keys = [...variables.keys()];
        if (keys.length > 0)
          await write(variables, (diff) => entryOf(originOf(call), call.operationId, null, diff));
        return { status: 200, body: { imported: keys.length, keys } };
      },
      'env.getCatalog': async () => ({
        status: 200,
        body: {
          items: [...declarations().values()].map(({ declaredBy, ...declared }) => {
            const value = snapshot.get(declared.key);
            const configured = value !== undefined && value !== '';
            const source =
              snapshot.entry(declared.key) === undefined ? ('process' as const) : ('database' as const);
            return { ...declared, configured, source: configured ? source : null, declared_by: declaredBy };
          }),
        },
      }),
    },
  };
}

function byKey(a: { key: string }, b: { key: string }): number {
  return a.key < b.key ? -1 : 1;
}

function entryOf(
  origin: Origin,
  action: string,
  key: string | null,
  diff: Record<string, unknown> | undefined,
): AuditEntry {
  return {
    ...origin,
    action,
    target: key === null ? null : { kind: 'env', id: key },
    outcome: 'ok',
    ...(diff === undefined ? {} : { diff }),
  };
}

function refused({ code, member, message }: Fault): Problem {
  return new Problem('bad_request', code, `\`${member}\`: ${message}.`, {
    param: member,
    details: [{ path: member, message }],
  });
}

// A replica that was started without the key to which the others have moved; it must not write what they cannot read.
function keysChanged(): Problem {
  return new Problem(
    'unavailable',
    'env_sealed',
    'This server does not have the master key that is in use now.',
    { headers: { 'retry-after': '30' } },
  );
}
