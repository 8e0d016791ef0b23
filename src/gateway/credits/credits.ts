// The service `credits`: wires the ledger, its write batcher and its maintenance.
// handlers.ts has its operations.
import type { AllotmentStore } from './allotments/store.ts';
import type { AllotmentTimes } from './allotments/times.ts';
import type { Clock } from '../../kernel/clock.ts';
import type { Tx } from '../../kernel/data/database.ts';
import type { Log } from '../../kernel/log.ts';
import type { Metrics } from '../../kernel/telemetry/metrics.ts';
import { id } from '../../kernel/ids.ts';
import type { AuditEntry } from '../audit/index.ts';
import type { Service } from '../service.ts';
import { createBalances } from './balances.ts';
import { type CallTotals, creditsHandlers } from './handlers.ts';
import type { JournalDirectory } from './journal/journal.ts';
import type { SettlementJournal } from './journal/settlements.ts';
import { createLedgerMaintenance, defaultTimes, type LedgerTimes } from './maintenance.ts';
import { createWriteBatcher } from './write-batcher.ts';
import { HoldLedger, type LedgerCounters } from './ledger.ts';
import { registerLedgerMetrics } from './ledger-metrics.ts';
import { PaidLedger } from './paid-ledger.ts';
import type { Balances, Ledger } from './core/ports.ts';
import type { CreditsStore, KeyBudget } from './core/store.ts';
import { verifyLedger, type LedgerVerdict } from './core/verify.ts';

export interface CreditsOptions {
  store: CreditsStore;
  allotmentStore: AllotmentStore;
  /** Settlements of holds during an outage of the database. */
  journal: SettlementJournal;
  /** Journals of charges; null when charges wait for the database instead. */
  journals: JournalDirectory | null;
  users: {
    /** Looks up the owner of a balance. A user in the state `removed` counts as unknown. */
    findUser(userId: string): Promise<{ state: string } | null>;
    /**
     * Returns those of the tokens that may not make further calls: revoked and expired tokens, and
     * tokens of an inactive user or Bureau.
     */
    endedTokens(tokenIds: readonly string[]): Promise<readonly string[]>;
  };
  audit: { record(tx: Tx, entry: AuditEntry): Promise<void> };
  usage: CallTotals;
  log: Log;
  clock: Clock;
  metrics?: Metrics;
  /** No other process has this database open. */
  isAlone: boolean;
  /** Credits of a new user, unless the Bureau sets its own amount. */
  startingCredits: bigint;
  /** Retention of resolved holds, the same as of usage records. */
  retentionDays: number;
  /** Batches that may run at once; each takes a connection. */
  concurrentBatches?: number;
  times?: Partial<LedgerTimes>;
  allotmentTimes?: Partial<AllotmentTimes>;
}

export interface Credits extends Service<'credits'> {
  ledger: Ledger;
  balances: Balances;
  /**
   * Creates the account's row and posts its first credits, in the transaction
   * that creates the user.
   */
  openAccount(
    tx: Tx,
    user: { userId: string; bureauId: string; startingCredits: bigint | null },
  ): Promise<void>;
  /** Creates the key's row in the transaction that creates the key. */
  openKey(tx: Tx, key: { tokenId: string; userId: string; cap: bigint | null }): Promise<void>;
  keys(tokenIds: readonly string[]): Promise<KeyBudget[]>;
  /** Writes this process's charges and reservations to the database. Never throws. */
  report(userId?: string): Promise<void>;
  /**
   * Does what `report` does, and requests it from all other gateways too, for whose responses it
   * waits half a second at most. Never throws.
   */
  reportEverywhere(): Promise<void>;
  /** Gives back the idle credits of ended tokens. Call it after credentials have changed. */
  closeEndedTokens: PaidLedger['closeEndedTokens'];
  /** Throws 503 `journal_unavailable` while no charge can be made durable in the journal. */
  requireJournal(): void;
  /** Incidents since this process started. */
  counters(): LedgerCounters;
  /** Number of holds whose leases this process renews. */
  openHolds(): number;
  verify(): Promise<LedgerVerdict>;
  /**
   * Replays the journal, recovers orphaned holds and starts maintenance. Throws when
   * the journal cannot be written.
   */
  start(): Promise<void>;
  close(): Promise<void>;
}

export function credits(options: CreditsOptions): Credits {
  const { store, users, audit, usage, retentionDays } = options;
  const { batcher, holds, ledger, maintenance } = createLedger(options);
  const balances = createBalances(store, { recallIdle: (userId) => ledger.recallUser(userId) });
  if (options.metrics !== undefined) registerLedgerMetrics(options.metrics, { holds, ledger });

  return {
    name: 'credits',
    title: 'Credits',
    env: [],
    handlers: creditsHandlers({ store, users, audit, usage, ledger, balances }),
    ledger,
    balances,
    async openAccount(tx, { userId, bureauId, startingCredits }) {
      await store.openAccount(tx, userId, bureauId);
      const amount = startingCredits ?? options.startingCredits;
      if (amount > 0n)
        await balances.post(tx, {
          userId,
          kind: 'starting',
          ref: userId,
          credits: amount,
          reason: 'for a new user',
        });
    },
    openKey: store.openKey,
    async keys(tokenIds) {
      await ledger.reportEverywhere();
      return store.keys(tokenIds);
    },
    report: (userId) => ledger.report(userId),
    reportEverywhere: () => ledger.reportEverywhere(),
    closeEndedTokens: () => ledger.closeEndedTokens(),
    requireJournal: () => ledger.requireJournal(),
    counters: () => holds.counters(),
    openHolds: () => holds.openHolds(),
    verify: () => verifyLedger(store, retentionDays),
    async start() {
      await maintenance.start();
      await ledger.start();
    },
    async close() {
      await ledger.close();
      await maintenance.close();
      await batcher.waitForIdle();
    },
  };
}

/**
 * Constructs the parts of the ledger. The batcher and the holds call back into maintenance, which
 * is constructed last: each response to a batch counts as contact with the database, and a hold can
 * request an early renewal of its lease.
 */
function createLedger(options: CreditsOptions) {
  const { store, journal, log, clock, isAlone, retentionDays } = options;
  const times = { ...defaultTimes, ...options.times };
  const batcher = createWriteBatcher({
    store,
    clock,
    leaseMs: times.leaseMs,
    concurrentBatches: options.concurrentBatches ?? (isAlone ? 1 : 2),
    onDatabaseAnswer: () => maintenance.recordDatabaseContact(),
  });
  const holds = new HoldLedger({
    store,
    batcher,
    journal,
    log,
    clock,
    leaseMs: times.leaseMs,
    renewEveryMs: times.renewEveryMs,
    renewSoon: () => maintenance.renewSoon(),
  });
  const ledger = new PaidLedger({
    holds,
    store: options.allotmentStore,
    directory: options.journals,
    findEndedTokens: (tokenIds) => options.users.endedTokens(tokenIds),
    clock,
    makeId: id,
    log,
    isAlone,
    ...(options.allotmentTimes !== undefined && { times: options.allotmentTimes }),
  });
  const maintenance = createLedgerMaintenance({
    ledger: holds,
    store,
    allotments: options.allotmentStore,
    journal,
    log,
    clock,
    times,
    isAlone,
    retentionDays,
  });
  return { batcher, holds, ledger, maintenance };
}
