// Rules of the allotment store (src/gateway/credits/allotments/store.ts) in TypeScript, one method per
// statement. Each method is atomic, like a statement under its locks. The simulation runs the ledger
// against it, and test/gateway/credits compares it with the real statements, row by row.
import { Problem } from '../../src/kernel/problem.ts';
import type {
  AllotmentReport,
  AllotmentRow,
  AllotmentScope,
  AllotRequest,
  AllotResult,
  ApplyResult,
  ChargeBatch,
  ChargeResult,
  GatewayFlags,
  GiveBackRequest,
  RecallRequest,
} from '../../src/gateway/credits/allotments/store.ts';
import type { ChargeLine } from '../../src/gateway/credits/journal/journal.ts';
import { larger, smaller } from './bigint.ts';

export interface AccountRow {
  userId: string;
  posted: bigint;
  held: bigint;
  owed: bigint;
  /** `posted` without the charges of usage rows. */
  beforeCharges: bigint;
}

export interface KeyRow {
  tokenId: string;
  userId: string;
  cap: bigint | null;
  spent: bigint;
  held: bigint;
}

export interface StoredAllotment extends AllotmentRow {
  gatewayId: string;
  userId: string;
  bureauId: string;
  tokenId: string;
  leaseUntilMs: number;
  reserved: bigint;
  unapplied: bigint;
  /** Number of the report that is stored. */
  report: bigint;
}

export interface UsageRow {
  usageId: string;
  requestId: string;
  userId: string | null;
  tokenId: string;
  price: bigint;
  charged: bigint;
  isLate: boolean;
}

export interface HoldRow {
  holdId: string;
  userId: string;
  tokenId: string;
  amount: bigint;
}

export interface JournalRow {
  generation: string;
  appliedSeq: number;
  reportAsked: number;
  reportDone: number;
}

export type ShownBalance = Pick<AccountRow, 'posted' | 'held' | 'owed'>;

export interface Ticket extends RecallRequest {
  isKeyOnly: boolean;
  createdMs: number;
}

/** How long the need of a ticket has precedence over later requests of its account. */
const precedenceMs = 1_000;
/** After this time a ticket is forgotten. */
const ticketMs = 60_000;
/** Milliseconds after the end of its lease at which an allotment is taken back. */
const graceMs = 40_000;

type Requester = Pick<RecallRequest, 'gatewayId' | 'userId' | 'tokenId'>;

export class StoreModel {
  generationId: string;
  readonly accounts = new Map<string, AccountRow>();
  readonly keys = new Map<string, KeyRow>();
  /** The open allotments. */
  readonly allotments = new Map<string, StoredAllotment>();
  /** Ids of ended allotments, which cannot be opened again. */
  readonly endedIds = new Set<string>();
  readonly holds = new Map<string, HoldRow>();
  readonly journals = new Map<string, JournalRow>();
  readonly usage = new Map<string, UsageRow>();
  readonly recordedRequests = new Set<string>();
  readonly tickets = new Map<string, Ticket>();
  /** Request ids whose charge the database refuses, as it refuses a value out of range. */
  readonly refusedRequests = new Set<string>();
  /** Grows with each change of credits: of balances, caps, holds, allotments and their reports. */
  changes = 0;
  private readonly nowMs: () => number;
  private readonly startedMs: () => number;

  /** `nowMs` is the database's clock; `startedMs` is when the server started by it, long ago by default. */
  constructor(options: { generation: string; nowMs: () => number; startedMs?: () => number }) {
    this.generationId = options.generation;
    this.nowMs = options.nowMs;
    this.startedMs = options.startedMs ?? (() => Number.NEGATIVE_INFINITY);
  }

  allot(request: AllotRequest): AllotResult {
    if (request.generation !== this.generationId || this.endedIds.has(request.allotmentId))
      return { outcome: 'gone', row: null, available: 0n, idleElsewhere: 0n };
    const row = this.allotments.get(request.allotmentId);
    const { available, grantable, reach } = this.reach(request, request.ticket);
    const outcome = allotOutcome(request, row, grantable);
    let addedCredits = 0n;
    let target = row;
    if (outcome === 'granted') {
      this.changes += 1;
      addedCredits = larger(request.need, smaller(request.want, grantable));
      target ??= this.open(request);
      this.setAside(target, addedCredits);
      target.version += 1;
      target.leaseUntilMs = this.nowMs() + request.leaseMs;
      target.isRecalled ||= this.isAwaited(request);
      for (const [id, ticket] of this.tickets) if (isSameRequester(ticket, request)) this.tickets.delete(id);
    }
    return {
      outcome,
      row: target === undefined || outcome === 'gone' ? null : copyRow(target),
      available: available - addedCredits,
      idleElsewhere: reach - available,
    };
  }

  giveBack(requests: readonly GiveBackRequest[]): (AllotmentRow | null)[] {
    this.lower(
      requests.flatMap(({ allotmentId, version, amount, charged, recall, end }) => {
        const row = this.openRow(allotmentId);
        if (row === null || row.version !== version) return [];
        const chargedSince = charged === undefined ? 0n : larger(row.charged - charged, 0n);
        const isAnswered = recall === undefined || row.recall <= recall;
        return [{ row, amount: end ? 0n : larger(amount - chargedSince, 0n), end, isAnswered }];
      }),
    );
    return requests.map(({ allotmentId }) => {
      const row = this.openRow(allotmentId);
      return row === null ? null : copyRow(row);
    });
  }

  ofGateway(gatewayId: string): AllotmentRow[] {
    return [...this.allotments.values()].filter((row) => row.gatewayId === gatewayId).map(copyRow);
  }

  read(allotmentIds: readonly string[]): AllotmentRow[] {
    return allotmentIds.flatMap((allotmentId) => {
      const row = this.openRow(allotmentId);
      return row === null ? [] : [copyRow(row)];
    });
  }

  renew(gatewayId: string, reports: readonly AllotmentReport[], leaseMs: number): AllotmentRow[] {
    this.changes += 1;
    const reportOf = new Map(reports.map((report) => [report.allotmentId, report]));
    const rows: AllotmentRow[] = [];
    for (const row of this.allotments.values()) {
      if (row.gatewayId !== gatewayId) continue;
      row.leaseUntilMs = this.nowMs() + leaseMs;
      const report = reportOf.get(row.allotmentId);
      if (report !== undefined) storeReport(row, report);
      rows.push(copyRow(row));
    }
    return rows;
  }

  report(gatewayId: string, reports: readonly AllotmentReport[], answerNumber: number | null): void {
    const journal = this.journals.get(gatewayId);
    if (answerNumber !== null && journal !== undefined)
      journal.reportDone = Math.max(journal.reportDone, answerNumber);
    if (reports.length > 0) this.changes += 1;
    for (const report of reports) {
      const row = this.openRow(report.allotmentId);
      if (row?.gatewayId === gatewayId) storeReport(row, report);
    }
  }

  /** The rest of the lease by the clock of the database; 0 or less when it has expired. */
  leaseMsLeft({ leaseUntilMs }: StoredAllotment): number {
    return leaseUntilMs - this.nowMs();
  }

  askReports(gatewayId: string | null, userId: string | null): Map<string, number> {
    const numbers = new Map<string, number>();
    for (const row of this.allotments.values()) {
      const journal = this.journals.get(row.gatewayId);
      if (journal === undefined || row.gatewayId === gatewayId || numbers.has(row.gatewayId)) continue;
      if ((userId !== null && row.userId !== userId) || row.amount <= 0n || row.leaseUntilMs <= this.nowMs())
        continue;
      journal.reportAsked += 1;
      numbers.set(row.gatewayId, journal.reportAsked);
    }
    return numbers;
  }

  answeredReports(gatewayIds: readonly string[]): Map<string, number> {
    return new Map(
      gatewayIds.flatMap((gatewayId) => {
        const journal = this.journals.get(gatewayId);
        return journal === undefined ? [] : [[gatewayId, journal.reportDone]];
      }),
    );
  }

  recall(request: RecallRequest): void {
    const { ticket, gatewayId, userId, tokenId, need } = request;
    if (need < 0n) throw outOfRange();
    const account = this.account(userId);
    const isKeyOnly = account.posted - account.held >= need;
    this.forgetTickets((other) => other.userId === userId);
    if (this.tickets.has(ticket)) return;
    this.tickets.set(ticket, { ...request, isKeyOnly, createdMs: this.nowMs() });
    this.flag(
      (row) =>
        row.userId === userId &&
        row.gatewayId !== gatewayId &&
        row.amount > 0n &&
        (!isKeyOnly || row.tokenId === tokenId),
      false,
    );
  }

  flags(gatewayId: string): GatewayFlags {
    const rows: AllotmentRow[] = [];
    for (const row of this.allotments.values())
      if (row.gatewayId === gatewayId && (row.isRecalled || row.isClosed)) rows.push(copyRow(row));
    return { rows, reportAsked: this.journals.get(gatewayId)?.reportAsked ?? 0 };
  }

  /** Closes and recalls the open allotments of the scope. Returns how many were open. */
  close(scope: AllotmentScope): number {
    return this.flag((row) => isInScope(row, scope), true);
  }

  affordable(request: Requester & { ticket?: string | undefined }): {
    available: bigint;
    idleElsewhere: bigint;
  } {
    const { available, reach } = this.reach(request, request.ticket);
    return { available, idleElsewhere: reach - available };
  }

  applyCharges(batch: ChargeBatch): ApplyResult {
    const journal = this.journals.get(batch.journalId);
    const outcome = this.batchOutcome(batch, journal);
    const allotmentIds = new Set(
      [...batch.charges, ...(batch.reports ?? [])].flatMap(({ allotmentId }) => allotmentId ?? []),
    );
    if (journal === undefined || outcome !== 'applied')
      return {
        appliedSeq: journal?.appliedSeq ?? 0,
        outcome,
        results: [],
        rows: this.read([...allotmentIds]),
      };
    if (batch.charges.some(({ call }) => this.refusedRequests.has(call.requestId))) throw outOfRange();
    this.changes += 1;
    journal.appliedSeq = batch.toSeq;
    const results = batch.charges.map((charge) => this.applyCharge(charge));
    for (const report of batch.reports ?? []) {
      const row = this.allotments.get(report.allotmentId);
      if (row !== undefined) storeReport(row, report);
    }
    return { appliedSeq: batch.toSeq, outcome, results, rows: this.read([...allotmentIds]) };
  }

  appliedSeqs(journalIds: readonly string[]): Map<string, number> {
    return new Map(
      journalIds.flatMap((journalId) => {
        const journal = this.journals.get(journalId);
        return journal === undefined ? [] : [[journalId, journal.appliedSeq]];
      }),
    );
  }

  openJournal(journalId: string, generation: string): void {
    if (!this.journals.has(journalId))
      this.journals.set(journalId, { generation, appliedSeq: 0, reportAsked: 0, reportDone: 0 });
  }

  takeBackExpired(limit: number): { allotmentId: string; amount: bigint }[] {
    // After an outage the holders could not renew their leases either.
    if (this.startedMs() > this.nowMs() - 60_000) return [];
    this.forgetTickets(() => true);
    const latestMs = this.nowMs() - graceMs;
    const expiredAllotments = [...this.allotments.values()]
      .filter((row) => row.leaseUntilMs < latestMs)
      .toSorted((a, b) => a.leaseUntilMs - b.leaseUntilMs)
      .slice(0, limit);
    const freedRows = expiredAllotments.map(({ allotmentId, amount }) => ({ allotmentId, amount }));
    this.lower(expiredAllotments.map((row) => ({ row, amount: 0n, end: true, isAnswered: true })));
    return freedRows;
  }

  generation(): string {
    return this.generationId;
  }

  // Movements of a balance that no allotment causes.

  addUser(
    userId: string,
    tokenIds: readonly { tokenId: string; cap: bigint | null }[],
    credits: bigint,
  ): void {
    this.accounts.set(userId, { userId, posted: credits, held: 0n, owed: 0n, beforeCharges: credits });
    for (const { tokenId, cap } of tokenIds)
      this.keys.set(tokenId, { tokenId, userId, cap, spent: 0n, held: 0n });
  }

  /** Adds credits; they pay a debt first. */
  post(userId: string, credits: bigint): void {
    this.changes += 1;
    const account = this.account(userId);
    const paidCredits = smaller(account.owed, credits);
    account.owed -= paidCredits;
    account.posted += credits - paidCredits;
    account.beforeCharges += credits - paidCredits;
  }

  /**
   * Takes back what is available. The rest becomes a debt, for which allotments are
   * closed; without `partial` nothing is taken then. Returns the credits that were taken.
   */
  takeBack(userId: string, credits: bigint, partial: boolean): bigint {
    const account = this.account(userId);
    const freeCredits = account.posted - account.held;
    if (!partial && freeCredits < credits) return 0n;
    this.changes += 1;
    const paidCredits = smaller(credits, freeCredits);
    account.posted -= paidCredits;
    account.beforeCharges -= paidCredits;
    account.owed += credits - paidCredits;
    if (paidCredits < credits) this.close({ userId });
    return paidCredits;
  }

  /** A cap never goes below what the key has spent and holds. Returns the cap of the key now. */
  lowerCap(tokenId: string, cap: bigint): bigint {
    this.changes += 1;
    const key = this.key(tokenId);
    key.cap = larger(cap, key.spent + key.held);
    return key.cap;
  }

  /** An exact hold, as of a job. Returns false when account or key lack the credits. */
  hold(hold: HoldRow): boolean {
    if (hold.amount > this.available(hold.userId, hold.tokenId)) return false;
    this.changes += 1;
    this.holds.set(hold.holdId, { ...hold });
    this.account(hold.userId).held += hold.amount;
    this.key(hold.tokenId).held += hold.amount;
    return true;
  }

  /** Charges up to what the hold, account and key have. Returns the charged credits. */
  settleHold(holdId: string, credits: bigint): bigint {
    const hold = this.holds.get(holdId);
    if (hold === undefined) return 0n;
    this.changes += 1;
    const [account, key] = [this.account(hold.userId), this.key(hold.tokenId)];
    const chargedCredits = smaller(
      credits,
      hold.amount + larger(this.available(hold.userId, hold.tokenId), 0n),
    );
    account.held -= hold.amount;
    key.held -= hold.amount;
    account.posted -= chargedCredits;
    account.beforeCharges -= chargedCredits;
    key.spent += chargedCredits;
    this.holds.delete(holdId);
    this.payDebt(hold.userId, account.posted - account.held);
    return chargedCredits;
  }

  /** The credits of account and key that are not held. */
  available(userId: string, tokenId: string): bigint {
    const account = this.account(userId);
    return least(account.posted - account.held, this.keyFree(tokenId));
  }

  /** The balance of the API: idle credits of allotments count as available, unless they pay a debt. */
  balance(userId: string): ShownBalance {
    const { posted, held, owed: debt } = this.account(userId);
    let idleCredits = 0n;
    for (const row of this.allotments.values())
      if (row.userId === userId) idleCredits += row.amount - row.reserved - row.unapplied;
    return { posted, held: debt === 0n ? held - idleCredits : held, owed: debt };
  }

  /** A copy that `restore` takes back. */
  snapshot(): LedgerSnapshot {
    const copyValues = <T extends object>(rows: Map<string, T>): [string, T][] =>
      [...rows].map(([id, row]) => [id, { ...row }]);
    return {
      accounts: copyValues(this.accounts),
      keys: copyValues(this.keys),
      allotments: copyValues(this.allotments),
      holds: copyValues(this.holds),
      journals: copyValues(this.journals),
      usage: copyValues(this.usage),
      endedIds: [...this.endedIds],
    };
  }

  /** An older copy of the database under a new generation: journals of the old one no longer apply. */
  restore(snapshot: LedgerSnapshot, generation: string): void {
    refill(this.accounts, snapshot.accounts);
    refill(this.keys, snapshot.keys);
    refill(this.allotments, snapshot.allotments);
    refill(this.holds, snapshot.holds);
    refill(this.journals, snapshot.journals);
    refill(this.usage, snapshot.usage);
    this.recordedRequests.clear();
    for (const { requestId } of this.usage.values()) this.recordedRequests.add(requestId);
    this.tickets.clear();
    this.endedIds.clear();
    for (const id of snapshot.endedIds) this.endedIds.add(id);
    // After a restore the holders have ended or have another generation.
    this.lower(
      [...this.allotments.values()].map((row) => ({ row, amount: 0n, end: true, isAnswered: true })),
    );
    this.changes += 1;
    this.generationId = generation;
  }

  private account(userId: string): AccountRow {
    return existing(this.accounts.get(userId), userId);
  }

  private key(tokenId: string): KeyRow {
    return existing(this.keys.get(tokenId), tokenId);
  }

  private openRow(allotmentId: string): StoredAllotment | null {
    return this.allotments.get(allotmentId) ?? null;
  }

  private open({ allotmentId, gatewayId, userId, bureauId, tokenId }: AllotRequest): StoredAllotment {
    const row: StoredAllotment = {
      allotmentId,
      version: 0,
      amount: 0n,
      charged: 0n,
      recall: 0n,
      report: 0n,
      isRecalled: false,
      isClosed: false,
      gatewayId,
      userId,
      bureauId,
      tokenId,
      leaseUntilMs: 0,
      reserved: 0n,
      unapplied: 0n,
    };
    this.allotments.set(allotmentId, row);
    return row;
  }

  /**
   * `available`: the rest of account and key. `grantable`: without the part reserved for older
   * tickets. `reach`: with idle credits elsewhere.
   */
  private reach(
    requester: Requester,
    ticketId: string | undefined,
  ): { available: bigint; grantable: bigint; reach: bigint } {
    const { userId, tokenId, gatewayId } = requester;
    const ownTicket = ticketId === undefined ? undefined : this.tickets.get(ticketId);
    const account = this.account(userId);
    const accountFree = account.posted - account.held;
    const keyFree = this.keyFree(tokenId);
    let [accountPromised, keyPromised, accountElsewhere, keyElsewhere] = [0n, 0n, 0n, 0n];
    const sinceMs = this.nowMs() - precedenceMs;
    for (const ticket of this.tickets.values()) {
      if (ticket.userId !== userId || isSameRequester(ticket, requester) || ticket.createdMs <= sinceMs)
        continue;
      if (ownTicket !== undefined && !isOlder(ticket, ownTicket)) continue;
      accountPromised += ticket.need;
      if (ticket.tokenId === tokenId) keyPromised += ticket.need;
    }
    for (const row of this.allotments.values()) {
      if (row.userId !== userId || row.gatewayId === gatewayId) continue;
      if (ownTicket !== undefined && !row.isRecalled && !(ownTicket.isKeyOnly && row.tokenId !== tokenId))
        continue;
      accountElsewhere += row.amount;
      if (row.tokenId === tokenId) keyElsewhere += row.amount;
    }
    return {
      available: least(accountFree, keyFree),
      grantable: least(accountFree - accountPromised, keyFree === null ? null : keyFree - keyPromised),
      reach: least(accountFree + accountElsewhere, keyFree === null ? null : keyFree + keyElsewhere),
    };
  }

  /** Whether other requesters of the account wait; then the idle part of a grant is recalled at once. */
  private isAwaited(requester: Requester): boolean {
    const sinceMs = this.nowMs() - precedenceMs;
    for (const ticket of this.tickets.values())
      if (
        ticket.userId === requester.userId &&
        !isSameRequester(ticket, requester) &&
        ticket.createdMs > sinceMs
      )
        return true;
    return false;
  }

  private keyFree(tokenId: string): bigint | null {
    const key = this.key(tokenId);
    return key.cap === null ? null : key.cap - key.spent - key.held;
  }

  /** Changes the amount of an allotment and what account and key hold for it. */
  private setAside(row: StoredAllotment, addedCredits: bigint): void {
    row.amount += addedCredits;
    this.account(row.userId).held += addedCredits;
    this.key(row.tokenId).held += addedCredits;
  }

  /** Lowers or ends allotments, and pays debts from the freed credits. */
  private lower(
    changes: readonly { row: StoredAllotment; amount: bigint; end: boolean; isAnswered: boolean }[],
  ): void {
    if (changes.length === 0) return;
    this.changes += 1;
    const freedOf = new Map<string, bigint>();
    for (const { row, amount, end, isAnswered } of changes) {
      const freedCredits = row.amount - smaller(row.amount, amount);
      this.setAside(row, -freedCredits);
      row.version += 1;
      row.isRecalled = !isAnswered;
      fitReport(row, row.reserved, row.unapplied);
      if (end) {
        this.allotments.delete(row.allotmentId);
        this.endedIds.add(row.allotmentId);
      }
      freedOf.set(row.userId, (freedOf.get(row.userId) ?? 0n) + freedCredits);
    }
    for (const [userId, freed] of freedOf) this.payDebt(userId, freed);
  }

  private flag(matches: (row: StoredAllotment) => boolean, closes: boolean): number {
    const rows = [...this.allotments.values()].filter(matches);
    for (const row of rows) {
      row.isRecalled = true;
      row.recall += 1n;
      row.isClosed ||= closes;
    }
    return rows.length;
  }

  private isForgotten({ createdMs }: Ticket): boolean {
    return createdMs <= this.nowMs() - ticketMs;
  }

  private forgetTickets(matches: (ticket: Ticket) => boolean): void {
    for (const [id, ticket] of this.tickets)
      if (this.isForgotten(ticket) && matches(ticket)) this.tickets.delete(id);
  }

  private batchOutcome(batch: ChargeBatch, journal: JournalRow | undefined): ApplyResult['outcome'] {
    if (batch.generation !== this.generationId) return 'other_generation';
    if (journal === undefined) return 'mismatch';
    if (journal.generation !== batch.generation) return 'other_generation';
    if (journal.appliedSeq >= batch.toSeq) return 'repeated';
    return journal.appliedSeq === batch.expectedSeq ? 'applied' : 'mismatch';
  }

  private applyCharge(charge: ChargeLine & { covered?: bigint }): ChargeResult {
    const { seq, usageId, call, allotmentId, credits } = charge;
    const row = allotmentId === null ? null : this.openRow(allotmentId);
    const isLate = call.userId !== null && allotmentId !== null && row === null;
    if (this.usage.has(usageId)) return { seq, charged: 0n, overrun: 0n, isLate };
    const chargedCredits = call.userId === null ? 0n : this.charge(call.userId, call.tokenId, row, charge);
    const { requestId, userId, tokenId } = call;
    this.recordedRequests.add(call.requestId);
    this.usage.set(usageId, {
      usageId,
      requestId,
      userId,
      tokenId,
      price: credits,
      charged: chargedCredits,
      isLate,
    });
    return {
      seq,
      charged: chargedCredits,
      overrun: call.userId === null ? 0n : credits - chargedCredits,
      isLate,
    };
  }

  /**
   * Charges the allotment as far as the holder counted on it, then what account and
   * key have. Returns the charged credits.
   */
  private charge(
    userId: string,
    tokenId: string,
    row: StoredAllotment | null,
    { credits, covered = credits }: { credits: bigint; covered?: bigint },
  ): bigint {
    const coveredCredits = row === null ? 0n : smaller(smaller(credits, covered), row.amount);
    const otherCredits = smaller(credits - coveredCredits, larger(this.available(userId, tokenId), 0n));
    if (row !== null) {
      this.setAside(row, -coveredCredits);
      row.charged += coveredCredits;
      fitReport(row, row.reserved, larger(row.unapplied - coveredCredits, 0n));
    }
    this.account(userId).posted -= coveredCredits + otherCredits;
    this.key(tokenId).spent += coveredCredits + otherCredits;
    return coveredCredits + otherCredits;
  }

  private payDebt(userId: string, freed: bigint): void {
    const account = this.account(userId);
    const paidCredits = smaller(account.owed, freed);
    account.owed -= paidCredits;
    account.posted -= paidCredits;
    account.beforeCharges -= paidCredits;
  }
}

export interface LedgerSnapshot {
  accounts: [string, AccountRow][];
  keys: [string, KeyRow][];
  allotments: [string, StoredAllotment][];
  holds: [string, HoldRow][];
  journals: [string, JournalRow][];
  usage: [string, UsageRow][];
  endedIds: string[];
}

/** The error of a column's check constraint. */
function outOfRange(): Problem {
  return new Problem('internal', 'internal_error', 'A value is out of range.');
}

function allotOutcome(
  request: AllotRequest,
  row: StoredAllotment | undefined,
  grantable: bigint,
): AllotResult['outcome'] {
  const isOthers = row !== undefined && (!isSameRequester(row, request) || row.userId !== request.userId);
  if (isOthers || (row === undefined && request.version !== 0)) return 'gone';
  if (row !== undefined && row.version !== request.version) return 'stale';
  if (row?.isClosed === true) return 'closed';
  return grantable < request.need ? 'short' : 'granted';
}

function isSameRequester(a: Omit<Requester, 'userId'>, b: Omit<Requester, 'userId'>): boolean {
  return a.gatewayId === b.gatewayId && a.tokenId === b.tokenId;
}

function isOlder(a: Ticket, b: Ticket): boolean {
  return a.createdMs < b.createdMs || (a.createdMs === b.createdMs && a.ticket < b.ticket);
}

function isInScope(row: StoredAllotment, scope: AllotmentScope): boolean {
  if ('userId' in scope) return row.userId === scope.userId;
  return 'tokenId' in scope ? row.tokenId === scope.tokenId : row.bureauId === scope.bureauId;
}

/**
 * Stores a report unless a later report is stored. Subtracts charges that its sender did not know to be
 * applied.
 */
function storeReport(
  row: StoredAllotment,
  { reserved, unapplied, charged = row.charged, number = row.report }: AllotmentReport,
): void {
  if (number < row.report) return;
  row.report = number;
  fitReport(row, reserved, larger(unapplied - larger(row.charged - charged, 0n), 0n));
}

/** Limits the report to the amount: unapplied first, then reserved. */
function fitReport(row: StoredAllotment, reserved: bigint, unapplied: bigint): void {
  row.unapplied = smaller(unapplied, row.amount);
  row.reserved = smaller(reserved, row.amount - row.unapplied);
}

function least(accountCredits: bigint, keyCredits: bigint | null): bigint {
  return keyCredits === null ? accountCredits : smaller(accountCredits, keyCredits);
}

function copyRow(row: StoredAllotment): AllotmentRow {
  const { allotmentId, version, amount, charged, recall, isRecalled, isClosed } = row;
  return { allotmentId, version, amount, charged, recall, isRecalled, isClosed };
}

function refill<T extends object>(rows: Map<string, T>, entries: readonly [string, T][]): void {
  rows.clear();
  for (const [id, row] of entries) rows.set(id, { ...row });
}

function existing<T>(row: T | undefined, id: string): T {
  if (row === undefined) throw new Error(`There is no row "${id}".`);
  return row;
}
