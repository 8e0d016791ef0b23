// Metrics of the database pool: its connections, and the waits for a free connection.
import type { Database } from '../data/database.ts';
import { type Metrics, waitBuckets } from './metrics.ts';

export function registerDatabaseMetrics(
  metrics: Metrics,
  database: Pick<Database, 'pool' | 'onPoolWait'>,
): void {
  metrics.gauge(
    'townhall_database_connections',
    'Connections to the database by state.',
    () => {
      const { inUse, idle } = database.pool();
      return [
        { labels: ['in_use'], value: inUse },
        { labels: ['idle'], value: idle },
      ];
    },
    ['state'],
  );
  metrics.gauge(
    'townhall_database_connections_max',
    'Maximum number of connections to the database.',
    () => database.pool().max,
  );
  metrics.gauge(
    'townhall_database_waiting',
    'Statements and transactions that wait for a connection.',
    () => database.pool().waiting,
  );
  if (!metrics.isOn) return;
  const waitHistogram = metrics.histogram(
    'townhall_database_wait_seconds',
    'How long a statement or transaction waited that did not get a connection at once.',
    [],
    waitBuckets,
  );
  database.onPoolWait((ms) => waitHistogram.observe([], ms / 1000));
}
