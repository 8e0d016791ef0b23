// Interface of the ledger's database for allotments and charges. Each method is one round trip and one transaction, exact at
// READ COMMITTED. SQL: allotments/sql-store.ts and the migrations 0064 to 0066 and 0090, which state the rules.
import type { ChargeLine } from '../journal/journal.ts';

/** An open allotment. An allotment that has ended has no row here: where a method leaves it out, it is gone for good. */
export interface AllotmentRow {
  allotmentId: string;
  /** Grows by one with each applied `allot` and `giveBack`. Charges, renewals and flags do not change it. */
  version: number;
  amount: bigint;
  /** What charges have taken from it: `amount + charged` changes only with the version. */
  charged: bigint;
  /** How often it was recalled. */
  recall: bigint;
  /**
   * Another gateway needs credits, or did when the allotment was granted: give back what is idle. A `giveBack` whose sender
   * knew of the latest recall clears it, also one that lowers nothing.
   */
  isRecalled: boolean;
  /** Takes no enlargement: give back what is idle and end it. */
  isClosed: boolean;
}

/**
 * What the holder counts. Stored up to the row's amount: unapplied first, then reserved. A charge that is applied after it, or
 * that its holder did not know as applied, lowers the stored `unapplied` by what the allotment paid.
 */
export interface AllotmentReport {
  allotmentId: string;
  reserved: bigint;
  unapplied: bigint;
  /** The row's `charged` that the holder knew; absent: that of now. */
  charged?: bigint;
  /** Grows with each report of the gateway: one that comes after a later one is ignored. Absent: never ignored. */
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
  /** The ticket that this request waited for, when it is not the first try. */
  ticket?: string | undefined;
}

export interface AllotResult {
  /**
   * - granted: the amount grew by x, need ≤ x ≤ want; opened when it was not there. The lease begins anew.
   * - short: account or key lack credits, or older tickets of other requesters come first. Nothing changed.
   * - stale: the version is another one, such as after a repeated request.
   * - gone: the allotment ended or is not there, or the ledger has another generation.
   * - closed: it takes no enlargement.
   */
  outcome: 'granted' | 'short' | 'stale' | 'gone' | 'closed';
  /** As it is afterwards; null when it is not open. */
  row: AllotmentRow | null;
  /** What account and key have left afterwards, promised credits of older tickets included. 0 when gone by generation. */
  available: bigint;
  /**
   * How much more could come back from allotments of other gateways, for account and key together:
   * min(account + its allotments, key + its allotments) − available. An allotment counts with its whole amount; with a
   * `ticket`, it counts only until its holder has answered. So available + idleElsewhere < need is a sure 402.
   */
  idleElsewhere: bigint;
}

export interface GiveBackRequest {
  allotmentId: string;
  version: number;
  /** The resulting amount, less the charges that were applied meanwhile; a smaller one stays. */
  amount: bigint;
  /** The row's `charged` that the amount is of; absent: that of now. */
  charged?: bigint;
  /** The row's `recall` that this answers; absent: that of now. */
  recall?: bigint;
  /** Ends the allotment; the amount counts as 0. */
  end: boolean;
}

export interface RecallRequest {
  /** Unique; a repeated one changes nothing. Ends when an `allot` of its gateway and token is granted, or a minute later. */
  ticket: string;
  gatewayId: string;
  userId: string;
  tokenId: string;
  need: bigint;
}

export interface CoveredCharge extends ChargeLine {
  /**
   * What the holder took from the allotment for this charge. The rest comes from what account and key have left, never from
   * other reservations. Absent: the whole price.
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
  /** Of the allotments of the batch. */
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
  /** As it is afterwards. 0 when the journal is unknown. */
  appliedSeq: number;
  /**
   * - applied
   * - repeated: appliedSeq ≥ toSeq already; nothing changed.
   * - mismatch: appliedSeq is not expectedSeq, or the journal is unknown; nothing changed. Leave out the lines up to appliedSeq.
   * - other_generation: the journal or the ledger has another generation; nothing changed.
   */
  outcome: 'applied' | 'repeated' | 'mismatch' | 'other_generation';
  /** One per charge when applied, else none. A usage id that is recorded already charges nothing: charged and overrun are 0. */
  results: ChargeResult[];
  /** The open allotments that the charges and reports name, as they are afterwards. */
  rows: AllotmentRow[];
}

export interface AllotmentView extends AllotmentRow, Omit<AllotmentReport, 'charged' | 'number'> {
  gatewayId: string;
  tokenId: string;
  leaseUntil: Date;
  createdAt: Date;
  /** Of the latest report. */
  reportedAt: Date;
}

/** Which allotments: of a user, a token or a Bureau. */
export type AllotmentScope = { userId: string } | { tokenId: string } | { bureauId: string };

/** How long a ticket has precedence over later tickets and requests without one, of the same account. */
export const ticketMs = 1_000;

/** An allotment is taken back this long after its lease has ended. */
export const takeBackAfterMs = 40_000;

/** What a gateway reads several times a second. */
export interface GatewayFlags {
  /** Its open allotments that are recalled or closed. */
  rows: AllotmentRow[];
  /** Number of the latest report that another process asked for; 0 for none. */
  reportAsked: number;
}

export interface AllotmentStore {
  /**
   * Opens (version 0) or enlarges an allotment by x, need ≤ x ≤ want, under the locks account → key → allotment, checked
   * against balance and key cap at once. x is `want` as far as account and key have it after older tickets, `need` at least.
   */
  allot(request: AllotRequest): Promise<AllotResult>;
  /**
   * Lowers each allotment to `amount` when the version matches, and pays debts of the account from it. Returns the rows as
   * they are afterwards, in the order of the requests; null for one that ended or is not there.
   */
  giveBack(requests: readonly GiveBackRequest[]): Promise<(AllotmentRow | null)[]>;
  /** Open allotments of these ids. */
  read(allotmentIds: readonly string[]): Promise<AllotmentRow[]>;
  /** Open allotments of a gateway, such as of one that is gone. */
  ofGateway(gatewayId: string): Promise<AllotmentRow[]>;
  /**
   * Renews the leases of all open allotments of this gateway from now on, stores the reports, and returns the allotments: also
   * one that the process does not know, opened by a request whose answer was lost.
   */
  renew(gatewayId: string, reports: readonly AllotmentReport[], leaseMs: number): Promise<AllotmentRow[]>;
  /**
   * Queues a ticket and flags open allotments with an amount of other gateways: of the key alone when the account has `need`
   * left, else of the whole account.
   */
  recall(request: RecallRequest): Promise<void>;
  /** Stores reports of this gateway, and that it has answered up to the number that it was asked for, unless that is null. */
  report(gatewayId: string, reports: readonly AllotmentReport[], answerNumber: number | null): Promise<void>;
  /**
   * Asks each other gateway that holds credits of the user, or of any user, on a valid lease for a report. Returns their
   * numbers, by gateway.
   */
  askReports(gatewayId: string | null, userId: string | null): Promise<Map<string, number>>;
  /** The latest number that each gateway has answered. */
  answeredReports(gatewayIds: readonly string[]): Promise<Map<string, number>>;
  flags(gatewayId: string): Promise<GatewayFlags>;
  /** Closes and recalls the open allotments of the scope, of every gateway. Returns how many were open. */
  close(scope: AllotmentScope): Promise<number>;
  /** What a token may still get without a call: the numbers of `allot`, for holds. */
  affordable(request: {
    gatewayId: string;
    userId: string;
    tokenId: string;
    ticket?: string | undefined;
  }): Promise<{ available: bigint; idleElsewhere: bigint }>;
  /**
   * Raises the journal's `applied_seq` by compare-and-set, then writes usage rows and one ledger transaction per account (`ref`
   * is journalId:first-last seq of its lines), and lowers account, key and allotment. A charge takes what its allotment covers,
   * then what account and key have left, in the order of seq; the operator absorbs the rest.
   */
  applyCharges(batch: ChargeBatch): Promise<ApplyResult>;
  /** Of the journals that the database knows. */
  appliedSeqs(journalIds: readonly string[]): Promise<Map<string, number>>;
  /** Registers a journal with applied_seq 0; no effect when it is there. */
  openJournal(journalId: string, generation: string): Promise<void>;
  /**
   * Ends up to `limit` allotments whose lease ended `takeBackAfterMs` ago, by the database's clock under the row's lock. None
   * while the database has been up for less than 60 s.
   */
  takeBackExpired(limit: number): Promise<{ allotmentId: string; amount: bigint }[]>;
  /** The ledger's uuid. */
  generation(): Promise<string>;
  /** Open allotments of a user, for `townhall ledger show`. */
  listAllotments(userId: string): Promise<AllotmentView[]>;
  /**
   * Deletes up to `limit` allotments that ended more than `days` ago and returns their number. Journals stay: their
   * `applied_seq` is what keeps a folder that is found years later from being charged again.
   */
  dropOld(days: number, limit: number): Promise<number>;
}
