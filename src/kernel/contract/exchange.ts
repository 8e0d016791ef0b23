// What passes between the server and the contract: one request on its way, and the reply to it.
import type { ErrorDialect } from '../error-dialects.ts';
import type { Log } from '../log.ts';
import type { CallNote } from './operation.ts';

/** What the server must know about an operation before and after it is handled. */
export interface OperationFacts {
  operationId: string;
  maxBodyBytes: number | undefined;
  /** Null where the operation takes no body. */
  body: { required: boolean; mediaTypes: readonly string[] } | null;
  passthrough: boolean;
  /** The body is handed on as it came: its handler looks at its signature before anybody reads it. */
  rawBody: boolean;
  /** The whole body is here within this, or the request is refused. */
  bodyDeadlineMs: number | undefined;
  /** The name of a rate limit of its own, as `x-rate-limit` says. */
  rateLimit: string | undefined;
  /** Whose error types its errors carry, as `x-error-types` says; ours without it. */
  errorDialect: ErrorDialect | undefined;
  /** It answers alike whatever credential is sent, and is not counted. */
  ignoresCredential: boolean;
}

export interface ReceivedBody {
  raw: Uint8Array;
  present: boolean;
  /** The parsed document, or the members of a form; undefined when the body is absent or is neither. */
  value: unknown;
  isForm: boolean;
}

/** One request on its way. The server makes it; the contract writes down what it found out. */
export interface Exchange {
  readonly method: string;
  /** As received, still encoded, without the query. */
  readonly path: string;
  /** As received, without the question mark. */
  readonly query: string;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly requestId: string;
  readonly remoteAddress: string;
  readonly log: Log;
  readonly signal: AbortSignal;
  timing(name: string, durationMs: number): void;
  note(fields: CallNote): void;
  readBody(operation: OperationFacts): ReceivedBody | Promise<ReceivedBody>;
  operation: OperationFacts | undefined;
  identity: { kind: string } | undefined;
  /** True once the handler was called: from there on each answer is the operation's own. */
  handled: boolean;
  /** Sent with the answer, whatever it is; a reply's own headers win. */
  answerHeaders?: Record<string, string> | undefined;
}

/** A reply with its operation's types forgotten; operation.ts has the exact ones. */
export interface AnyReply {
  status: number;
  body?: unknown;
  events?: AsyncIterable<{ data: unknown; event?: string; id?: string }>;
  end?: string;
  content?: Uint8Array | AsyncIterable<Uint8Array>;
  mediaType?: string;
  headers?: Record<string, string>;
}
