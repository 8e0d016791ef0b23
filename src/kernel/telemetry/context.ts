// Where the work that runs now belongs: which request it is done for, and below which span it stands.
import type { CallNote } from '../contract/operation.ts';
import type { Span } from './traces.ts';

/** What is done for one request, as seen from within. */
export interface RequestScope {
  readonly requestId: string;
  readonly operationId: string | undefined;
  readonly startedMs: number;
  note(fields: CallNote): void;
  /** Calls back when the whole answer is out, or the client is gone. */
  onEnd(listener: (end: RequestEnd) => void): void;
}

export interface RequestEnd {
  isStream: boolean;
  clientGone: boolean;
  noted: CallNote;
}

/** Where the work that runs now belongs. */
export interface TelemetryContext {
  request: RequestScope | undefined;
  span: Span | undefined;
}
