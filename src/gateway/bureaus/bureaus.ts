// Bureaus, the tenants of the gateway: create, change, pause, archive. Other slices check here whether a
// Bureau may be served, and embed its state into their own queries as SQL fragments.
import type { Bureau as BureauBody } from '../../contract/gateway/types.gen.ts';
import type { Sql, Tx } from '../../kernel/data/database.ts';
import type { Log } from '../../kernel/log.ts';
import { decodeCursor, isTimeAndId, pageLimit, pageOf } from '../../kernel/contract/page.ts';
import type { AuditEntry } from '../audit/index.ts';
import { originOf, type Identity } from '../identity.ts';
import type { Service } from '../service.ts';
import { createActiveBureauCache, type ActiveBureauCache } from './active-cache.ts';
import { createCreateBureau } from './create-bureau.ts';
import { createGetCurrentBureau, type FindTokenOwner } from './current-bureau.ts';
import {
  bureauNotFound,
  changesState,
  refuseArchived,
  refuseUnlessActive,
  type BureauState,
} from './lifecycle.ts';
import { serializeBureau } from './serialize.ts';
import { requireServerUrl } from './server-url.ts';
import { diffSettings, readSettings } from './settings.ts';
import type { Bureau, BureausStore, BureauSettings, SqlFragment } from './store.ts';

interface BureausOptions {
  store: BureausStore;
  log: Log;
  audit: { record(tx: Tx, entry: AuditEntry): Promise<void> };
  /**
   * Tells every replica, once the transaction has committed, to check the credentials of its running calls
   * again and to reload the limits and origins of Bureaus.
   */
  changes: { bump(tx: Tx): Promise<void> };
  findTokenOwner: FindTokenOwner;
}

export interface Bureaus extends Service<'bureaus'>, ActiveBureauCache {
  /**
   * Creates the Bureau `local` of the local edition. Changes nothing when it exists, also when it is paused
   * or archived. Throws a Problem when `serverUrl` is not a valid entrypoint.
   */
  ensureLocal(serverUrl: string): Promise<void>;
  find(bureauId: string): Promise<Bureau | null>;
  /** SQL for the state of the Bureau whose ID is in the column; null when there is none. */
  stateOf(sql: Sql, column: string): SqlFragment;
  /** SQL for the models that the Bureau's users may call; null for all. */
  modelsOf(sql: Sql, column: string): SqlFragment;
  startingCreditsOf(sql: Sql, column: string): SqlFragment;
  /** Throws 403 `bureau_paused` or `bureau_archived` unless the state is active. */
  refuseUnlessActive(state: BureauState): void;
}

/** The members of a call that the changing operations use. */
interface ChangeCall {
  operationId: string;
  body: { bureau_id: string };
  identity: Identity;
  remoteAddress: string;
  requestId: string;
}

type BureauReply = { status: 200; body: BureauBody };

type ChangeOptions = Pick<BureausOptions, 'store' | 'audit' | 'changes'>;

export function bureaus(options: BureausOptions): Bureaus {
  const { store, log } = options;
  return {
    name: 'bureaus',
    title: 'Bureaus',
    env: [],
    handlers: {
      'bureaus.listBureaus': async (call) => {
        const afterPosition =
          call.query.cursor === undefined ? null : decodeCursor(call.query.cursor, isTimeAndId);
        const limit = pageLimit(call.query);
        const { items, next_cursor } = pageOf(await store.list(afterPosition, limit + 1), limit, (row) => [
          row.createdAtText,
          row.bureauId,
        ]);
        return { status: 200, body: { items: items.map(serializeBureau), next_cursor } };
      },
      'bureaus.createBureau': createCreateBureau(options),
      'bureaus.updateBureau': async (call) => changeSettings(options, call, readSettings(call.body)),
      'bureaus.updateServer': async (call) =>
        changeSettings(options, call, { serverUrl: requireServerUrl(call.body.server_url) }),
      'bureaus.pauseBureau': changeState(options, 'paused'),
      'bureaus.activateBureau': changeState(options, 'active'),
      'bureaus.archiveBureau': changeState(options, 'archived'),
      'bureaus.getCurrentBureau': createGetCurrentBureau(options),
    },
    async ensureLocal(serverUrl) {
      const isNew = await store.insertIfAbsent({
        bureauId: 'local',
        name: 'Local',
        serverUrl: requireServerUrl(serverUrl),
      });
      if (isNew) log.info({ bureauId: 'local' }, 'created the Bureau of the local edition');
    },
    find: (bureauId) => store.find(bureauId),
    stateOf: (sql, column) => store.stateOf(sql, column),
    modelsOf: (sql, column) => store.modelsOf(sql, column),
    startingCreditsOf: (sql, column) => store.startingCreditsOf(sql, column),
    refuseUnlessActive,
    ...createActiveBureauCache(store),
  };
}

/**
 * Changes one Bureau and records the change in the audit log, in one transaction. `work` returns null when
 * there is nothing to change.
 */
async function changeBureau(
  { store, audit, changes }: ChangeOptions,
  call: ChangeCall,
  work: (tx: Tx, before: Bureau) => Promise<{ after: Bureau; diff: Record<string, unknown> } | null>,
): Promise<BureauReply> {
  const bureauId = call.body.bureau_id;
  const bureau = await store.tx(async (tx) => {
    const before = await store.lock(tx, bureauId);
    if (!before) throw bureauNotFound();
    const result = await work(tx, before);
    if (result === null) return before;
    await audit.record(tx, {
      ...originOf(call),
      action: call.operationId,
      target: { kind: 'bureau', id: bureauId },
      outcome: 'ok',
      diff: result.diff,
    });
    await changes.bump(tx);
    return result.after;
  });
  return { status: 200, body: serializeBureau(bureau) };
}

function changeState(options: ChangeOptions, state: BureauState) {
  return (call: ChangeCall) =>
    changeBureau(options, call, async (tx, before) => {
      if (!changesState(before.state, state)) return null;
      const after = await options.store.setState(tx, before.bureauId, state);
      return { after, diff: { state: { from: before.state, to: state } } };
    });
}

function changeSettings(
  options: ChangeOptions,
  call: ChangeCall,
  settings: Partial<BureauSettings>,
): Promise<BureauReply> {
  return changeBureau(options, call, async (tx, before) => {
    refuseArchived(before.state);
    const diff = diffSettings(before, settings);
    if (Object.keys(diff).length === 0) return null;
    const after = await options.store.update(tx, before.bureauId, { ...before, ...settings });
    return { after, diff };
  });
}
