// The types between the kernel and a handler: its call and its reply. Both follow the
// generated `Operations` map, so a missing, unknown or wrongly typed handler does not compile.
import type { Remember } from '../data/idempotency.ts';
import type { Log } from '../log.ts';

/** The shape of one entry of a generated `Operations` map. */
export interface OperationShape {
  body: unknown;
  path: unknown;
  query: unknown;
  headers: unknown;
  /** The identity kinds that the operation's `security` admits. */
  identity: string;
  /** One member per declared success: `json`, `events` or `media` beside its status, or the status alone. */
  reply: unknown;
  /**
   * Whether the document has `x-passthrough: true`: the operation may return any status and media
   * type of an upstream.
   */
  passthrough: boolean;
}

export interface Call<Op extends OperationShape, Identity extends { kind: string }> {
  readonly operationId: string;
  readonly body: Op['body'];
  readonly path: Op['path'];
  readonly query: Op['query'];
  readonly headers: Op['headers'];
  readonly identity: Extract<Identity, { kind: Op['identity'] }>;
  /** The bytes exactly as received; empty when the operation has no body. */
  readonly rawBody: Uint8Array;
  /** Aborted when the client disconnects before the end of the response, and at the end of a drain. */
  readonly signal: AbortSignal;
  readonly requestId: string;
  /** Carries the request id, the operation and the caller's trace. */
  readonly log: Log;
  /** The client's address: the socket's peer, or the address that a trusted proxy reports. */
  readonly remoteAddress: string;
  readonly request: {
    readonly host: string;
    readonly origin: string | undefined;
    /** All headers as received, names in lower case. Most handlers use `headers`, the declared ones. */
    readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  };
  /** Adds one entry to `Server-Timing`; no effect once the head of the response is sent. */
  timing(name: string, durationMs: number): void;
  /**
   * Records the result of the call for its log line, the metrics and its trace. May
   * be called more than once, even while the response is being sent; a later value
   * of a member replaces the earlier one. The caller never receives it.
   */
  note(fields: CallNote): void;
  /**
   * Stores the response for retries with the same Idempotency-Key, in the transaction of
   * the call's effect, so that a crash cannot separate the two. No effect without a key.
   */
  readonly remember: Remember;
}

/** Facts of a call that only the handler has. Never user content, except where a provider quotes it. */
export interface CallNote {
  /** The catalog's id of the called model. */
  model?: string;
  provider?: string;
  /** Token counts by kind; the kinds are disjoint. */
  tokens?: { input?: number; cachedInput?: number; cacheWrite?: number; output?: number; reasoning?: number };
  /** The charged credits. */
  credits?: bigint | number;
  /** How long the response waited for other services. */
  upstreamMs?: number;
  /** From the arrival of the request to the first piece of the response's content. */
  ttftMs?: number;
  /** The error code of a failed call, and the header `x-townhall-attempts`. */
  code?: string;
  attempts?: string;
  /**
   * The provider's response to the last attempt: the status, and its text without
   * secrets, at most 500 characters.
   */
  providerStatus?: number;
  providerWords?: string;
}

export interface SseEvent<T> {
  data: T;
  event?: string;
  id?: string;
}

export type ReplyHeaders = Record<string, string>;

type ReplyOf<R> = R extends { status: infer S; json: infer T }
  ?
      | { status: S; body: T; headers?: ReplyHeaders }
      /** JSON that is already serialized. */
      | { status: S; content: Uint8Array; mediaType: 'application/json'; headers?: ReplyHeaders }
  : R extends { status: infer S; events: infer T }
    ? {
        status: S;
        events: AsyncIterable<SseEvent<T>>;
        /**
         * The last data line, such as `[DONE]`; the server writes it when the events end without an
         * error.
         */
        end?: string;
        headers?: ReplyHeaders;
      }
    : R extends { status: infer S; media: infer M extends string }
      ? {
          status: S;
          content: Uint8Array | AsyncIterable<Uint8Array>;
          mediaType: M | `${M};${string}`;
          headers?: ReplyHeaders;
        }
      : R extends { status: infer S }
        ? { status: S; headers?: ReplyHeaders }
        : never;

type PassthroughReply = {
  status: number;
  content: Uint8Array | AsyncIterable<Uint8Array>;
  mediaType: string;
  headers?: ReplyHeaders;
};

/** The replies that the operation allows. Errors are thrown as Problems, never replied. */
export type Reply<Op extends OperationShape> =
  | ReplyOf<Op['reply']>
  | (Op['passthrough'] extends true ? PassthroughReply : never);

export type Handler<Op extends OperationShape, Identity extends { kind: string }> = (
  call: Call<Op, Identity>,
) => Promise<Reply<Op>>;

/** The handlers of all operations whose id begins with `Prefix`. */
export type Handlers<
  Ops extends { [K in keyof Ops]: OperationShape },
  Prefix extends string,
  Identity extends { kind: string },
> = {
  [K in keyof Ops as K extends `${Prefix}.${string}` ? K : never]: Handler<Ops[K], Identity>;
};
