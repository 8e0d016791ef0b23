// The types between the kernel and a handler: what a call brings, what a reply may be. Both follow the
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
  /** One member a declared success: `json`, `events` or `media` beside its status, or the status alone. */
  reply: unknown;
  /** Marked `x-passthrough: true`: any status and media type of an upstream may be handed on. */
  passthrough: boolean;
}

export interface Call<Op extends OperationShape, Identity extends { kind: string }> {
  readonly operationId: string;
  readonly body: Op['body'];
  readonly path: Op['path'];
  readonly query: Op['query'];
  readonly headers: Op['headers'];
  readonly identity: Extract<Identity, { kind: Op['identity'] }>;
  /** The bytes exactly as received; empty where the operation takes no body. */
  readonly rawBody: Uint8Array;
  /** Aborted when the client is gone before the answer's end, and at the end of a drain. */
  readonly signal: AbortSignal;
  readonly requestId: string;
  /** Carries the request id, the operation and the caller's trace. */
  readonly log: Log;
  /** The client's address: the socket's peer, or what a trusted proxy says of it. */
  readonly remoteAddress: string;
  readonly request: {
    readonly host: string;
    readonly origin: string | undefined;
    /** All headers as received, names in lower case. Most handlers want `headers`, the declared ones. */
    readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  };
  /** Adds one entry to `Server-Timing`; without effect once the head of the answer is out. */
  timing(name: string, durationMs: number): void;
  /**
   * Tells what came of the call, for its line in the log, the metrics and its trace. May be called more than once, also
   * while the answer is under way; of a member that is given twice the later one counts. Nothing of it reaches the caller.
   */
  note(fields: CallNote): void;
  /**
   * Keeps the answer for a call that is repeated with its Idempotency-Key, in the transaction that does what it
   * tells of: then no crash can come between the two. Without a key it does nothing.
   */
  readonly remember: Remember;
}

/** What a handler knows of a call that the server cannot see. Never what a person wrote, unless a provider quotes it. */
export interface CallNote {
  /** The model that ran, by the id that the catalog gives it. */
  model?: string;
  provider?: string;
  /** By disjoint kinds. */
  tokens?: { input?: number; cachedInput?: number; cacheWrite?: number; output?: number; reasoning?: number };
  /** What was charged. */
  credits?: bigint | number;
  /** How long others kept the answer waiting. */
  upstreamMs?: number;
  /** From the request's arrival to the first piece of the answer's content. */
  ttftMs?: number;
  /** Of a call that failed: its error code, and the header `x-townhall-attempts`. */
  code?: string;
  attempts?: string;
  /** What the provider answered to the last attempt: the status, and its own words without secrets, 500 characters at most. */
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
      /** JSON that is serialized already. */
      | { status: S; content: Uint8Array; mediaType: 'application/json'; headers?: ReplyHeaders }
  : R extends { status: infer S; events: infer T }
    ? {
        status: S;
        events: AsyncIterable<SseEvent<T>>;
        /** Written as a last data line, such as `[DONE]`, when the events end well. */
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

/** What a handler of the operation may answer with. Errors are thrown as Problems, never replied. */
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
