// How metrics and traces follow a request. The server calls the observer; code far below the handler finds the request in
// its scope.
import type { CallNote } from '../contract/operation.ts';
import type { HttpRequest } from './request.ts';

export interface RequestObserver {
  /** Runs the work for the request, so that whatever is measured within is counted to it. */
  within<T>(request: HttpRequest, work: () => T): T;
  /** The whole response is out, or the client is gone. */
  ended(request: HttpRequest, durationMs: number): void;
}

/** A request as seen by the code that works for it. */
export interface RequestScope {
  readonly requestId: string;
  readonly operationId: string | undefined;
  readonly startedMs: number;
  note(fields: CallNote): void;
  /** Calls back when the whole response is out, or the client is gone. */
  onEnd(listener: (end: RequestEnd) => void): void;
}

export interface RequestEnd {
  isStream: boolean;
  clientGone: boolean;
  notes: CallNote;
}
