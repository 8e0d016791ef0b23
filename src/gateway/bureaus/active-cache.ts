// Keeps the rate limits and login origins of active Bureaus in memory: every request needs them, and a query
// per request would be too slow.
import type { BureausStore } from './store.ts';

export interface ActiveBureauCache {
  /** The limit that a Bureau sets for each of its users, as of the last `refresh`; undefined without one. */
  requestsPerMinute(bureauId: string): number | undefined;
  /** Whether pages of the origin may call the login operations, as of the last `refresh`. */
  hasLoginOrigin(origin: string): boolean;
  /** Reads limits and origins from the database. Call it after each change of a Bureau. */
  refresh(): Promise<void>;
}

export function createActiveBureauCache(store: Pick<BureausStore, 'listActive'>): ActiveBureauCache {
  let limits: ReadonlyMap<string, number> = new Map();
  let loginOrigins: ReadonlySet<string> = new Set();
  // Refreshes may overlap. The rows of an older one must not replace those of a newer one.
  let startedRefreshes = 0;
  let appliedRefresh = 0;
  return {
    requestsPerMinute: (bureauId) => limits.get(bureauId),
    hasLoginOrigin: (origin) => loginOrigins.has(origin),
    async refresh() {
      startedRefreshes += 1;
      const refresh = startedRefreshes;
      const rows = await store.listActive();
      if (refresh < appliedRefresh) return;
      appliedRefresh = refresh;
      loginOrigins = new Set(
        rows.flatMap(({ redirectOrigins, redirectUris, serverUrl }) => [
          ...redirectOrigins,
          ...[...redirectUris, serverUrl].flatMap((address) =>
            URL.canParse(address) ? [new URL(address).origin] : [],
          ),
        ]),
      );
      limits = new Map(
        rows.flatMap(({ bureauId, limits: ownLimits }) =>
          ownLimits?.requests_per_minute === undefined ? [] : [[bureauId, ownLimits.requests_per_minute]],
        ),
      );
    },
  };
}
