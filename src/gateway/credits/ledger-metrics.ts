// Metrics of the ledger: what is open, what waits for the database, and the
// incidents that an operator should be alerted to.
import type { Metrics } from '../../kernel/telemetry/metrics.ts';
import type { LedgerCounters } from './ledger.ts';
import type { PaidLedger } from './paid-ledger.ts';

export function registerLedgerMetrics(
  metrics: Metrics,
  sources: { holds: { openHolds(): number; counters(): LedgerCounters }; ledger: PaidLedger },
): void {
  const { holds, ledger } = sources;
  metrics.gauge('townhall_ledger_open_holds', 'Open holds whose leases this process renews.', () =>
    holds.openHolds(),
  );
  metrics.gauge(
    'townhall_ledger_overrun_credits',
    'Credits that the operator absorbed since the process started: calls that cost more than was held and available.',
    () => Number(holds.counters().overrunCredits + (ledger.allotments?.ledger.counters.overrunCredits ?? 0n)),
  );
  metrics.gauge(
    'townhall_ledger_incidents',
    'Incidents of the ledger since the process started, by kind.',
    () => countIncidents(sources),
    ['kind'],
  );
  registerAllotmentMetrics(metrics, ledger);
}

function countIncidents({ holds, ledger }: { holds: { counters(): LedgerCounters }; ledger: PaidLedger }) {
  const { overruns, lateSettlements, recovered, journaled, unreadable, mismatches } = holds.counters();
  const chargeCounters = ledger.allotments?.ledger.counters;
  return [
    { labels: ['overrun'], value: overruns + (chargeCounters?.overruns ?? 0) },
    { labels: ['late_settlement'], value: lateSettlements },
    { labels: ['late_charge'], value: chargeCounters?.lateCharges ?? 0 },
    { labels: ['charge_put_aside'], value: chargeCounters?.linesPutAside ?? 0 },
    { labels: ['failed_sync'], value: chargeCounters?.failedSyncs ?? 0 },
    { labels: ['recovered_hold'], value: recovered },
    { labels: ['journaled_settlement'], value: journaled },
    { labels: ['unreadable_journal'], value: unreadable },
    // Unlike the others not a sum: the faults of the latest verification.
    { labels: ['verify_fault'], value: mismatches },
  ];
}

function registerAllotmentMetrics(metrics: Metrics, ledger: PaidLedger): void {
  const allotmentLedger = () => ledger.allotments?.ledger;
  metrics.gauge(
    'townhall_ledger_unapplied_charges',
    'Charges in the journal that are not in the database yet.',
    () => allotmentLedger()?.unapplied().count ?? 0,
  );
  metrics.gauge(
    'townhall_ledger_unapplied_credits',
    'Credits of charges that are not in the database yet.',
    () => Number(allotmentLedger()?.unapplied().credits ?? 0n),
  );
  metrics.gauge(
    'townhall_ledger_unapplied_seconds',
    'Age of the oldest charge that is not in the database yet. Alert above 10.',
    () => (allotmentLedger()?.unapplied().oldestMs ?? 0) / 1_000,
  );
  metrics.gauge(
    'townhall_ledger_allotments',
    'Tokens for which this process has credits set aside.',
    () => allotmentLedger()?.pool.size ?? 0,
  );
  metrics.gauge(
    'townhall_ledger_recalls',
    'Calls since the process started that had to recall idle credits from other gateways.',
    () => allotmentLedger()?.counters.recalls ?? 0,
  );
  metrics.gauge(
    'townhall_ledger_credits_busy',
    'Calls since the process started that were refused with 503 credits_busy.',
    () => allotmentLedger()?.counters.busy ?? 0,
  );
  metrics.gauge(
    'townhall_ledger_journal_syncs',
    'Syncs of the journal since the process started that an answer waited for.',
    () => allotmentLedger()?.counters.syncs ?? 0,
  );
  metrics.gauge(
    'townhall_ledger_journal_sync_seconds',
    'Total time that answers waited for syncs of the journal since the process started.',
    () => (allotmentLedger()?.counters.syncMs ?? 0) / 1_000,
  );
}
