// Metrics of the ledger: open holds, and the incidents that an operator should be alerted to.
import type { Metrics } from '../../kernel/telemetry/metrics.ts';
import type { LedgerCounters } from './ledger.ts';

export function registerLedgerMetrics(
  metrics: Metrics,
  { openHolds, counters }: { openHolds(): number; counters(): LedgerCounters },
): void {
  metrics.gauge('townhall_ledger_open_holds', 'Holds that this process keeps alive.', openHolds);
  metrics.gauge(
    'townhall_ledger_overrun_credits',
    'Credits that the operator absorbed since the start: calls that cost more than was held and available.',
    () => Number(counters().overrunCredits),
  );
  metrics.gauge(
    'townhall_ledger_incidents',
    'What went wrong with money since the start, by what it was.',
    () => {
      const { overruns, lateSettlements, recovered, journaled, unreadable, mismatches } = counters();
      return [
        { labels: ['overrun'], value: overruns },
        { labels: ['late_settlement'], value: lateSettlements },
        { labels: ['recovered_hold'], value: recovered },
        { labels: ['journaled_settlement'], value: journaled },
        { labels: ['unreadable_journal'], value: unreadable },
        { labels: ['verify_fault'], value: mismatches },
      ];
    },
    ['kind'],
  );
}
