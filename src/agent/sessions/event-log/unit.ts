// One piece of work that writes, which whatever writes to the log is given; and what may be appended with it.
import type { Sql } from '../../../kernel/data/database.ts';
import type { SessionEvent, StoredEvent } from './events.ts';

/** What it appends is published once that has committed. */
export interface Unit {
  /** A transaction; or none, for what is one statement. */
  tx: Sql;
  appended: StoredEvent[];
  moved: Moved[];
}

/** An append that was written, and the seq at which its session stands since. */
export interface Moved {
  append: Append;
  headSeq: number;
}

/** An event, and the run that it tells of where that is not the one of the whole append. */
export type LogEntry = SessionEvent & { runId?: string | null };

export interface Append {
  sessionKey: string;
  /** The run that the events tell of. */
  runId?: string | null;
  /** Only while this run is the one that may write. */
  fence?: string;
  /** Only while the session stands at this seq: whatever changes in its row raises it. */
  expectedSeq?: number;
  events: readonly LogEntry[];
  /** What changes of the session's row with them. */
  change?: SessionChange;
}

export interface SessionChange {
  activeRunId?: string | null;
  queue?: number;
  approvals?: number;
  messages?: number;
  inputTokens?: number;
  outputTokens?: number;
  /** Set where the session has none. */
  title?: string;
}
