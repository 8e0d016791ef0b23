// Interface of the ledger's database for allotments and charges. Each method is one
// round trip and one transaction, exact at READ COMMITTED. SQL: allotments/sql-store.ts
// and the migrations 0064 to 0066 and 0090, which state the rules.
import type { ChargeLine } from '../journal/journal.ts';

/** An open allotment. An ended allotment has no row here: a missing row in a result is final. */
export interface AllotmentRow {
  allotmentId: string;
  /**
   * Grows by one with each applied `allot` and `giveBack`. Charges, renewals
   * and flags do not change it.
   */
  version: number;
  amount: bigint;
  /** Credits that charges have taken from it: `amount + charged` changes only with the version. */
  charged: bigint;
  /** Number of recalls. */
  recall: bigint;
  /**
   * Another gateway needs credits, or needed them when the allotment was granted: give the
   * idle credits back. A `giveBack` that carries the latest recall number clears the flag,
   * even when it lowers nothing.
   */
  isRecalled: boolean;
  /** The allotment can no longer be enlarged: give the idle credits back and end it. */
  isClosed: boolean;
}

/**
 * The holder's counts. They are stored up to the row's amount: unapplied first, then
 * reserved. A later charge, or a charge that the holder did not yet count as applied,
 * lowers the stored `unapplied` by the allotment's part.
 */
export interface AllotmentReport {
  allotmentId: string;
  reserved: bigint;
  unapplied: bigint;
  /** The row's `charged` that the holder last read; absent: the current one. */
  charged?: bigint;
  /**
   * Grows with each report of the gateway; a report older than the stored one is
   * ignored. Absent: never ignored.
   */
  number?: bigint;
}

export interface AllotRequest {
  allotmentId: string;
  /** 0 opens the allotment. */
  version: number;
  gatewayId: string;
  generation: string;
  userId: string;
  bureauId: string;
  tokenId: string;
  need: bigint;
  /** At least `need`. */
  want: bigint;
  leaseMs: number;
  /** The ticket of an earlier try of this request. */
  ticket?: string | undefined;
}

export interface AllotResult {
  /**
   * - granted: the amount grew by x, need ≤ x ≤ want, from 0 for a new allotment. The lease
   *   starts again.
   * - short: account or key lack credits, or older tickets of other requesters come first.
   *   Nothing changed.
   * - stale: the row has another version, for example because the request was repeated.
   * - gone: the allotment ended or does not exist, or the ledger has another generation.
   * - closed: the allotment can no longer be enlarged.
   */
  outcome: 'granted' | 'short' | 'stale' | 'gone' | 'closed';
  /** The row after the operation; null when it is not open. */
  row: AllotmentRow | null;
  /**
   * Credits left in account and key, promised credits of older tickets included. 0
   * when the generation differs.
   */
  available: bigint;
  /**
   * Credits that could still come back from allotments of other gateways, for account
   * and key together: min(account + its allotments, key + its allotments) − available.
   * An allotment counts with its whole amount; with a `ticket`, it counts only until
   * its holder has answered. So available + idleElsewhere < need means a certain 402.
   */
  idleElsewhere: bigint;
}

export interface GiveBackRequest {
  allotmentId: string;
  version: number;
  /** The amount to keep, less the charges applied meanwhile. A row with less keeps its amount. */
  amount: bigint;
  /** The row's `charged` when the amount was computed; absent: the current one. */
  charged?: bigint;
  /** The number of the answered recall; absent: the current one. */
  recall?: bigint;
  /** Ends the allotment; the amount counts as 0. */
  end: boolean;
}

export interface RecallRequest {
  /**
   * Unique; a repeated ticket changes nothing. Expires when an `allot` of its gateway and
   * token is granted, or after a minute.
   */
  ticket: string;
  gatewayId: string;
  userId: string;
  tokenId: string;
  need: bigint;
}

export interface CoveredCharge extends ChargeLine {
  /**
   * The part of this charge that the holder took from the allotment. The rest comes from the
   * free credits of account and key, never from other reservations. Absent: the whole price.
   */
  covered?: bigint | undefined;
}

export interface ChargeBatch {
  journalId: string;
  generation: string;
  /** The journal's `applied_seq` before the batch. */
  expectedSeq: number;
  toSeq: number;
  /** Final lines with expectedSeq < seq ≤ toSeq, by ascending seq. May be empty. */
  charges: readonly CoveredCharge[];
  /** Reports of the allotments of the batch. */
  reports?: readonly AllotmentReport[];
}

export interface ChargeResult {
  seq: number;
  /** Credits that the account paid. */
  charged: bigint;
  /** Credits that the operator absorbed. */
  overrun: bigint;
  /** The allotment had ended. */
  isLate: boolean;
}

export interface ApplyResult {
  /** The journal's `applied_seq` after the operation; 0 when the journal is unknown. */
  appliedSeq: number;
  /**
   * - applied
   * - repeated: appliedSeq ≥ toSeq already; nothing changed.
   * - mismatch: appliedSeq is not expectedSeq, or the journal is unknown; nothing changed.
   *   Leave out the lines up to appliedSeq.
   * - other_generation: the journal or the ledger has another generation; nothing changed.
   */
  outcome: 'applied' | 'repeated' | 'mismatch' | 'other_generation';
  /**
   * One per charge when applied, else none. A usage id that is recorded already
   * charges nothing: charged and overrun are 0.
   */
  results: ChargeResult[];
  /** The open allotments that the charges and reports name, after the operation. */
  rows: AllotmentRow[];
}

export interface AllotmentView extends AllotmentRow, Omit<AllotmentReport, 'charged' | 'number'> {
  gatewayId: string;
  tokenId: string;
  leaseUntil: Date;
  createdAt: Date;
  /** The time of the latest report. */
  reportedAt: Date;
}

/** Which allotments: of a user, a token or a Bureau. */
export type AllotmentScope = { userId: string } | { tokenId: string } | { bureauId: string };

/**
 * How long a ticket has precedence over later tickets and requests without one,
 * of the same account.
 */
export const ticketMs = 1_000;

/** The flags that a gateway polls several times a second. */
export interface GatewayFlags {
  /** Its open allotments that are recalled or closed. */
  rows: AllotmentRow[];
  /** Number of the latest report that another process requested; 0 for none. */
  reportAsked: number;
}

export interface AllotmentStore {
  /**
   * Opens (version 0) or enlarges an allotment by x, need ≤ x ≤ want, under the locks
   * account → key → allotment, checked against balance and key cap in one step. x is
   * the largest amount that account and key have left after older tickets.
   */
  allot(request: AllotRequest): Promise<AllotResult>;
  /**
   * Lowers each allotment to `amount` when the version matches, and pays debts of
   * the account from it. Returns the rows afterwards, in the order of the requests;
   * null for an allotment that ended or does not exist.
   */
  giveBack(requests: readonly GiveBackRequest[]): Promise<(AllotmentRow | null)[]>;
  /** Open allotments of these ids. */
  read(allotmentIds: readonly string[]): Promise<AllotmentRow[]>;
  /** Open allotments of a gateway, for example of a gateway that is gone. */
  ofGateway(gatewayId: string): Promise<AllotmentRow[]>;
  /**
   * Renews the leases of all open allotments of this gateway, stores the reports, and returns
   * the allotments, including any that were opened by a request whose response was lost.
   */
  renew(gatewayId: string, reports: readonly AllotmentReport[], leaseMs: number): Promise<AllotmentRow[]>;
  /**
   * Queues a ticket and flags the open allotments of other gateways that are not empty: only the
   * allotments of the key when the account has `need` left, otherwise all allotments of the
   * account.
   */
  recall(request: RecallRequest): Promise<void>;
  /** Stores reports of this gateway, and the number of the request that they answer, if any. */
  report(gatewayId: string, reports: readonly AllotmentReport[], answerNumber: number | null): Promise<void>;
  /**
   * Requests a report from each other gateway that holds credits of the user, or of
   * any user, on a valid lease. Returns the request numbers by gateway.
   */
  askReports(gatewayId: string | null, userId: string | null): Promise<Map<string, number>>;
  /** The latest number that each gateway has answered. */
  answeredReports(gatewayIds: readonly string[]): Promise<Map<string, number>>;
  flags(gatewayId: string): Promise<GatewayFlags>;
  /**
   * Closes and recalls the open allotments of the scope, of every gateway.
   * Returns how many were open.
   */
  close(scope: AllotmentScope): Promise<number>;
  /** Credits that a hold of the token could get, in the same two numbers that `allot` returns. */
  affordable(request: {
    gatewayId: string;
    userId: string;
    tokenId: string;
    ticket?: string | undefined;
  }): Promise<{ available: bigint; idleElsewhere: bigint }>;
  /**
   * Raises the journal's `applied_seq` by compare-and-set, then writes usage rows and one
   * ledger transaction per account (`ref` is journalId:first-last seq of its lines), and lowers
   * account, key and allotment. A charge takes the covered part from its allotment, then the
   * free credits of account and key, in the order of seq; the operator absorbs the rest.
   */
  applyCharges(batch: ChargeBatch): Promise<ApplyResult>;
  /** The `applied_seq` of each journal in the database. */
  appliedSeqs(journalIds: readonly string[]): Promise<Map<string, number>>;
  /** Registers a journal with applied_seq 0; no effect on an existing one. */
  openJournal(journalId: string, generation: string): Promise<void>;
  /**
   * Ends up to `limit` allotments whose lease ended 40 s ago, by the database's clock under the
   * row's lock. Ends none while the database has been up for less than 60 s.
   */
  takeBackExpired(limit: number): Promise<{ allotmentId: string; amount: bigint }[]>;
  /** The ledger's uuid. */
  generation(): Promise<string>;
  /** Open allotments of a user, for `townhall ledger show`. */
  listAllotments(userId: string): Promise<AllotmentView[]>;
  /**
   * Deletes up to `limit` allotments that ended more than `days` ago and returns their
   * number. Journals stay: their `applied_seq` prevents a second charge when an old
   * folder reappears years later.
   */
  dropOld(days: number, limit: number): Promise<number>;
}
