// The interface for metrics and traces of a request. The server calls the observer; code that
// a handler calls, however deep, finds the request in the current scope.
import type { CallNote } from '../contract/operation.ts';
import type { HttpRequest } from './request.ts';

/** A request over HTTP, or a call over a WebSocket. */
export type ObservedCall = Pick<
  HttpRequest,
  | 'method'
  | 'headers'
  | 'requestId'
  | 'startedMs'
  | 'operation'
  | 'identity'
  | 'isStream'
  | 'isClientGone'
  | 'notes'
  | 'trace'
> & { note(fields: CallNote): void; readonly response: { readonly statusCode: number } };

export interface RequestObserver {
  /**
   * Runs the work in the scope of the request, so that measurements within are attributed to it.
   */
  runWithin<T>(request: ObservedCall, work: () => T): T;
  /** Called when the whole response is sent or the client has disconnected. */
  recordEnd(request: ObservedCall, durationMs: number): void;
}

/** The request as seen by code below the handler. */
export interface RequestScope {
  readonly requestId: string;
  /** The operation of the handler; for an alias, its target. */
  readonly operationId: string | undefined;
  readonly startedMs: number;
  readonly isClientGone: boolean;
  note(fields: CallNote): void;
  /**
   * Calls the listener when the whole response is sent or the client has disconnected; at once if that is
   * past, as in a call that goes on without its client. In detached work it is called when the work ends.
   */
  onEnd(listener: (end: RequestEnd) => void): void;
}

export interface RequestEnd {
  isStream: boolean;
  isClientGone: boolean;
  notes: CallNote;
}
