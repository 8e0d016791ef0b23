// The service `credits`: wires the ledger, its write batcher and its maintenance,
// and serves balances to users and administrators.
import type { Balance, CreditAccount, CreditChange } from '../../contract/gateway/types.gen.ts';
import type { AllotmentStore } from './allotments/store.ts';
import type { AllotmentTimes } from './allotments/times.ts';
import type { Clock } from '../../kernel/clock.ts';
import type { Tx } from '../../kernel/data/database.ts';
import type { Log } from '../../kernel/log.ts';
import type { Metrics } from '../../kernel/telemetry/metrics.ts';
import { decodeCursor, isCursorText, pageLimit, pageOf } from '../../kernel/contract/page.ts';
import { id } from '../../kernel/ids.ts';
import { originOf } from '../identity.ts';
import type { AuditEntry } from '../audit/index.ts';
import type { Service } from '../service.ts';
import { createBalances, userNotFound } from './balances.ts';
import type { JournalDirectory } from './journal/journal.ts';
import type { SettlementJournal } from './journal/settlements.ts';
import { createLedgerMaintenance, defaultTimes, type LedgerTimes } from './maintenance.ts';
import { createWriteBatcher } from './write-batcher.ts';
import { HoldLedger, type LedgerCounters } from './ledger.ts';
import { registerLedgerMetrics } from './ledger-metrics.ts';
import { PaidLedger } from './paid-ledger.ts';
import type { Balances, Ledger } from './ports.ts';
import type { Account, Change, ChangeCursor, CreditsStore, KeyBudget } from './store.ts';
import { verifyLedger, type LedgerVerdict } from './verify.ts';

export interface CreditsOptions {
  store: CreditsStore;
  allotmentStore: AllotmentStore;
  /** Settlements of holds during an outage of the database. */
  journal: SettlementJournal;
  /** Journals of charges; null when charges wait for the database instead. */
  journals: JournalDirectory | null;
  users: {
    /** Looks up the owner of a balance; removed users have none. */
    findUser(userId: string): Promise<{ state: string } | null>;
    /**
     * Returns the tokens among these that may make no more calls: revoked, expired,
     * or of an inactive user or Bureau.
     */
    endedTokens(tokenIds: readonly string[]): Promise<readonly string[]>;
  };
  audit: { record(tx: Tx, entry: AuditEntry): Promise<void> };
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
   * Creates the rows of an account and of an API key, in the transaction that creates the user or the key.
   */
  openAccount(
    tx: Tx,
    user: { userId: string; bureauId: string; startingCredits: bigint | null },
  ): Promise<void>;
  openKey(tx: Tx, key: { tokenId: string; userId: string; cap: bigint | null }): Promise<void>;
  keys(tokenIds: readonly string[]): Promise<KeyBudget[]>;
  /** Writes this process's charges and reservations to the database. Never throws. */
  report(userId?: string): Promise<void>;
  /** As `report`, and requests the same of the other gateways, for half a second at most. Never throws. */
  reportEverywhere(): Promise<void>;
  /** Call it after credentials have changed: see `PaidLedger.closeEndedTokens`. */
  closeEndedTokens: PaidLedger['closeEndedTokens'];
  /** Throws 503 `journal_unavailable` while no charge can be made durable in the journal. */
  requireJournal(): void;
  /** Incidents since the start. */
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
  const { store, journal, users, audit, log, clock, isAlone, retentionDays } = options;
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
    findEndedTokens: (tokenIds) => users.endedTokens(tokenIds),
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
  const balances = createBalances(store, { recallIdle: (userId) => ledger.recallUser(userId) });
  if (options.metrics !== undefined) registerLedgerMetrics(options.metrics, { holds, ledger });

  /** Changes a balance for an administrator; audit entry and idempotent answer commit with the change. */
  async function adjust(
    call: AdjustCall,
    work: (tx: Tx, entry: Adjustment) => Promise<unknown>,
  ): Promise<{ status: 200; body: CreditAccount }> {
    const { user_id: userId, credits: amount, reason } = call.body;
    const user = await users.findUser(userId);
    if (user === null || user.state === 'removed') throw userNotFound();
    if (call.operationId === 'credits.deductCredits') await balances.recallIdle(userId);
    else await ledger.report(userId);
    return store.tx(async (tx) => {
      await work(tx, { userId, ref: call.requestId, credits: BigInt(amount), reason });
      const account = await store.findAccount(userId, tx);
      if (account === null) throw userNotFound();
      await audit.record(tx, {
        ...originOf(call),
        action: call.operationId,
        target: { kind: 'user', id: userId },
        outcome: 'ok',
        diff: { credits: amount, reason },
      });
      const answer = { status: 200 as const, body: serializeAccount(account) };
      await call.remember(tx, answer);
      return answer;
    });
  }

  return {
    name: 'credits',
    title: 'Credits',
    env: [],
    handlers: {
      'credits.getBalance': async ({ identity: { userId } }) => {
        await ledger.reportEverywhere(userId);
        return {
          status: 200,
          body: serializeBalance(
            (await store.findAccount(userId)) ?? { accountId: userId, posted: 0n, held: 0n, owed: 0n },
          ),
        };
      },
      'credits.listHistory': async ({ identity, query }) => {
        const before = query.cursor === undefined ? null : decodeCursor(query.cursor, isChangeCursor);
        const limit = pageLimit(query);
        await ledger.reportEverywhere(identity.userId);
        const { items, next_cursor } = pageOf(
          await store.listChanges(identity.userId, { before, limit }),
          limit,
          ({ txId, line }) => [String(txId), line],
        );
        return { status: 200, body: { items: items.map(serializeChange), next_cursor } };
      },
      'credits.grantCredits': (call) =>
        adjust(call, (tx, entry) => balances.post(tx, { ...entry, kind: 'grant' })),
      'credits.deductCredits': (call) =>
        adjust(call, (tx, entry) => balances.takeBack(tx, { ...entry, kind: 'deduct', partial: false })),
      'credits.listAccounts': async ({ identity, query }) => {
        const after = query.cursor === undefined ? null : decodeCursor(query.cursor, isCursorText);
        const limit = pageLimit(query);
        await ledger.reportEverywhere();
        const accounts = await store.listAccounts(
          { bureauId: identity.bureauId ?? query.bureau_id },
          { after, limit },
        );
        const { items, next_cursor } = pageOf(accounts, limit, ({ accountId }) => accountId);
        return { status: 200, body: { items: items.map(serializeAccount), next_cursor } };
      },
    },
    ledger,
    balances,
    async openAccount(tx, { userId, bureauId, startingCredits }) {
      await store.openAccount(tx, userId, bureauId);
      const starting = startingCredits ?? options.startingCredits;
      if (starting > 0n)
        await balances.post(tx, {
          userId,
          kind: 'starting',
          ref: userId,
          credits: starting,
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

type Adjustment = { userId: string; ref: string; credits: bigint; reason: string };

/** The members of a request that grant and deduct use. */
interface AdjustCall {
  operationId: string;
  body: { user_id: string; credits: number; reason: string };
  identity: Parameters<typeof originOf>[0]['identity'];
  remoteAddress: string;
  requestId: string;
  remember(tx: Tx, answer: { status: number; body?: unknown }): Promise<void>;
}

function isChangeCursor(value: unknown): value is ChangeCursor {
  if (!Array.isArray(value) || value.length !== 2) return false;
  const [txId, line] = value as unknown[];
  return typeof txId === 'string' && /^\d{1,18}$/.test(txId) && isCursorText(line);
}

// Balances stay below 2^53: the contract limits the amount of one grant.
function serializeBalance({
  accountId,
  posted,
  held: heldCredits,
  owed: debt,
}: Pick<Account, 'accountId' | 'posted' | 'held' | 'owed'>): Balance {
  return {
    user_id: accountId,
    available: Number(posted - heldCredits),
    held: Number(heldCredits),
    posted: Number(posted),
    owed: Number(debt),
  };
}

function serializeAccount(account: Account): CreditAccount {
  return {
    ...serializeBalance(account),
    bureau_id: account.bureauId,
    created_at: account.createdAt.toISOString(),
  };
}

function serializeChange({ kind, ref, credits: amount, reason, createdAt }: Change): CreditChange {
  return {
    kind: kind as CreditChange['kind'],
    ref,
    credits: Number(amount),
    reason,
    created_at: createdAt.toISOString(),
  };
}
