// Interfaces of the journal of charges: an append-only log on the local disk, one
// folder per gateway process. The last byte of a response waits for the journal's
// fdatasync. Afterwards the charge is applied to the database exactly once, by its number.
import type { UsageFacts } from '../../usage/index.ts';
import type { FreeCall, PaidCall } from '../core/ports.ts';

export type JournalLine =
  /** The line that precedes a request upstream. `credits` is the estimate of its input. */
  | {
      kind: 'sent';
      usageId: string;
      call: PaidCall | FreeCall;
      allotmentId: string | null;
      credits: bigint;
      facts: Partial<UsageFacts>;
    }
  /** `credits` is the whole price of the output so far, input included. */
  | { kind: 'checkpoint'; usageId: string; credits: bigint; facts: Partial<UsageFacts> }
  | {
      kind: 'final';
      usageId: string;
      call: PaidCall | FreeCall;
      allotmentId: string | null;
      credits: bigint;
      facts: UsageFacts;
    };

/** A final line with its number in its journal. */
export interface ChargeLine {
  seq: number;
  usageId: string;
  call: PaidCall | FreeCall;
  allotmentId: string | null;
  credits: bigint;
  facts: UsageFacts;
}

/**
 * The journal of this process. One writer; no other process touches its folder while it is open.
 */
export interface Journal {
  /** `gwy_…`, new for each process; the gateway's id in the ledger too. */
  readonly journalId: string;
  /**
   * Buffers the line and writes it at the end of this turn of the event loop, without
   * a sync. Returns its number: 1, 2, … While the journal has failed, or 16 MiB wait
   * for the disk, a `sent` line throws 503 `journal_unavailable`, a `checkpoint` is
   * dropped (the last number is returned) and a `final` line is accepted.
   */
  append(line: JournalLine): number;
  /**
   * Group commit: resolves once all lines up to `seq` are on disk. Rejects with 503
   * `journal_unavailable` when this file and a new one both failed. The lines stay
   * in memory, and are written when a later attempt succeeds.
   */
  sync(seq: number): Promise<void>;
  /**
   * Records that a read of the database showed all final lines up to `seq` as applied. Segments up
   * to there are deleted ten minutes later; the lines of unfinished calls are copied forward first.
   */
  markApplied(seq: number): void;
  /**
   * The final lines above `afterSeq` that are on disk, in order, at most 500 at a time. For a
   * database that came back with a smaller `applied_seq`, such as a promoted standby.
   */
  charges(afterSeq: number): AsyncIterable<ChargeLine[]>;
  /** `failed`: no line can be made durable. Retried every 5 s. */
  readonly health: 'ok' | 'failed';
  /**
   * Writes and syncs the remaining lines, then releases the folder. The folder stays
   * for the next `takeAbandoned`.
   */
  close(): Promise<void>;
}

/** All journals below JOURNAL_PATH. */
export interface JournalDirectory {
  /**
   * Creates and locks the folder of a new journal. Throws a SettingError when
   * JOURNAL_PATH is unusable.
   */
  open(generation: string): Promise<Journal>;
  /**
   * Locks and returns each folder that no process has locked; the caller is then its
   * one writer until `unlock` or `remove`. Skips folders in use and folders put aside.
   */
  takeAbandoned(): Promise<AbandonedJournal[]>;
}

export interface AbandonedJournal {
  readonly journalId: string;
  readonly generation: string;
  /**
   * First closes each call that was sent and has no final line: appends and syncs a final line with
   * the larger of input estimate and last checkpoint, outcome `upstream_failed`, `estimated`. Then
   * yields the final lines above `afterSeq` in order, at most 500 at a time. A repetition yields
   * the same lines. A damaged segment is copied aside and logged as an error first; its readable
   * lines are still yielded.
   */
  charges(afterSeq: number): AsyncIterable<ChargeLine[]>;
  /**
   * Call it after a read of the database showed all charges as applied. The first call only records
   * the time; a call at least ten minutes later deletes the folder. Until then a database that lost
   * its last commits can get the charges again. Releases the lock.
   */
  remove(): Promise<void>;
  /**
   * Moves the folder aside, where only an operator applies or discards it (`townhall
   * ledger journal`). Releases the lock.
   */
  putAside(reason: AsideReason): Promise<void>;
  /** Releases the lock and leaves the folder for a later `takeAbandoned`. */
  unlock(): void;
}

/**
 * - other_generation: the ledger was restored or created anew after the journal was opened.
 * - damaged: synced lines cannot be read.
 * - refused: the ledger refused a line.
 */
export type AsideReason = 'other_generation' | 'damaged' | 'refused';
