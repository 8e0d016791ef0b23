// The entries of a session's log, and the unit of work that appends them.
import type { Sql } from '../../../kernel/data/database.ts';
import type { SessionEvent, StoredEvent } from './events.ts';

/** The event log publishes what a unit of work appended, after its commit. */
export interface UnitOfWork {
  /** A transaction, or plain `sql` for work that writes with one statement. */
  tx: Sql;
  appended: StoredEvent[];
  applied: AppliedAppend[];
}

/** An append that was written, and the seq of its last event. */
export interface AppliedAppend {
  append: Append;
  headSeq: number;
}

/** An event; it names its run when that is not the run of the whole append. */
export type LogEntry = SessionEvent & { runId?: string | null };

export interface Append {
  sessionKey: string;
  runId?: string | null;
  /** Fencing token: write only while this run is the session's active run. */
  fence?: string;
  /**
   * Optimistic lock: write only while the session's newest event has this seq. Every
   * change of the row raises it.
   */
  expectedSeq?: number;
  events: readonly LogEntry[];
  /** Changes of the session's row in the same statement. */
  change?: SessionChange;
}

/** The numbers are added to the session's counters. */
export interface SessionChange {
  activeRunId?: string | null;
  queue?: number;
  approvals?: number;
  messages?: number;
  inputTokens?: number;
  outputTokens?: number;
  cachedInputTokens?: number;
  reasoningTokens?: number;
  credits?: number;
  /** The title of a session that has none yet. */
  title?: string;
}
