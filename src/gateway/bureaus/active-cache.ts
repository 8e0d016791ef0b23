// In-memory rate limits and login origins of active Bureaus. Every request needs
// them, so they are not queried each time.
import type { BureausStore } from './store.ts';

export interface ActiveBureauCache {
  /** A Bureau's own limit for each of its users, as of the last `refresh`. */
  requestsPerMinute(bureauId: string): number | undefined;
  /** Whether pages of the origin may call the login operations, as of the last `refresh`. */
  hasLoginOrigin(origin: string): boolean;
  /** Reads limits and origins again. Call it after each change of a Bureau. */
  refresh(): Promise<void>;
}

export function createActiveBureauCache(store: Pick<BureausStore, 'listActive'>): ActiveBureauCache {
  let limits: ReadonlyMap<string, number> = new Map();
  let loginOrigins: ReadonlySet<string> = new Set();
  return {
    requestsPerMinute: (bureauId) => limits.get(bureauId),
    hasLoginOrigin: (origin) => loginOrigins.has(origin),
    async refresh() {
      const rows = await store.listActive();
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
