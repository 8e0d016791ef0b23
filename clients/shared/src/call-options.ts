// The options of a client and of a single call, and an operation's target. All parts
// of the transport share them.

/** The options with which both clients are created. */
export interface ConnectionOptions {
  /** Base URL of the server, including its path if it has one, such as `http://127.0.0.1:43127`. */
  baseUrl: string;
  /**
   * The bearer credential, or a function that returns it. It is called for each call that needs one; the
   * deadline and an abort of the call apply to it too.
   */
  token?: string | (() => string | Promise<string>) | undefined;
  /** Replaces the global `fetch`. */
  fetch?: typeof globalThis.fetch | undefined;
  /** Headers of every request. */
  headers?: Readonly<Record<string, string | undefined>> | undefined;
  /**
   * Deadline of a whole call with its retries, for a stream until its headers; 5
   * minutes by default, 0 disables it.
   */
  timeoutMs?: number | undefined;
  /**
   * How often a call is repeated after a failure that is `retryable`; 0 by default.
   * A call that the server may have started is repeated only if it changes nothing
   * or the server recognizes it by its Idempotency-Key. Streams are never repeated.
   */
  maxRetries?: number | undefined;
  /**
   * The longest silence of a stream, where heartbeats count as activity; 2 minutes by default, 0 disables it.
   */
  idleTimeoutMs?: number | undefined;
}

/** The options of a single call, beside its members. */
export interface CallOptions {
  /**
   * Ends the call and closes its connection; the call then rejects with the signal's reason, as `fetch` does.
   */
  signal?: AbortSignal | undefined;
  headers?: Readonly<Record<string, string | undefined>> | undefined;
  /** Query members of an operation that takes a body as well. */
  query?: Readonly<Record<string, unknown>> | undefined;
  /** Replaces the client's `timeoutMs`. */
  timeoutMs?: number | undefined;
  /** Replaces the client's `maxRetries`. */
  maxRetries?: number | undefined;
}

export interface StreamCallOptions extends CallOptions {
  idleTimeoutMs?: number | undefined;
  /**
   * An event longer than this fails the stream with `stream_event_too_large`; 32 Mi characters by default.
   */
  maxEventChars?: number | undefined;
}

/** The method, address and body of an operation, from the generated code. */
export interface Target {
  method: string;
  url: string;
  secured: boolean;
  streams: boolean;
  /**
   * Media type of the body; undefined for an operation without one, null when fetch chooses it
   * (multipart).
   */
  bodyType: string | null | undefined;
  serializeBody: ((body: unknown) => unknown) | undefined;
}

export type Members = Readonly<Record<string, unknown>>;
