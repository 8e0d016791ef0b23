// The Bureaus: who the tenants are and whether they may be served. Other slices ask here before they act
// for a Bureau, and let its state into their own queries without naming its table.
import type { Sql } from '../../kernel/database.ts';
import type { Log } from '../../kernel/log.ts';
import type { Service } from '../service.ts';
import { refuseUnlessActive, type BureauState } from './lifecycle.ts';
import { requireServerUrl } from './server-url.ts';
import type { Bureau, BureausStore, SqlFragment } from './store.ts';

export interface BureausNeeds {
  store: BureausStore;
  log: Log;
}

export interface Bureaus extends Service<'bureaus'> {
  /**
   * Makes the Bureau `local` of the local edition unless it exists; what became of it since is left as it
   * is. Throws a Problem when `serverUrl` is not fit to be an entrypoint.
   */
  ensureLocal(serverUrl: string): Promise<void>;
  find(bureauId: string): Promise<Bureau | null>;
  /** SQL for the state of the Bureau that a column names, for a query of another slice; null when there is none. */
  stateOf(sql: Sql, column: string): SqlFragment;
  /** Throws 403 `bureau_paused` or `bureau_archived` unless the state is active. */
  refuseUnlessActive(state: BureauState): void;
}

export function bureaus({ store, log }: BureausNeeds): Bureaus {
  return {
    name: 'bureaus',
    title: 'Bureaus',
    env: [],
    handlers: {},
    async ensureLocal(serverUrl) {
      const isNew = await store.insertIfAbsent({ bureauId: 'local', name: 'Local', serverUrl: requireServerUrl(serverUrl) });
      if (isNew) log.info({ bureauId: 'local' }, 'made the Bureau of the local edition');
    },
    find: (bureauId) => store.find(bureauId),
    stateOf: (sql, column) => store.stateOf(sql, column),
    refuseUnlessActive,
  };
}
