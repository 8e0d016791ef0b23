// One call over a WebSocket, as a request in the contract: it has the headers of the socket's
// handshake, and the body of one message.
import type { IncomingMessage } from 'node:http';
import { type BodyBudget, smallBodyBytes } from './body/budget.ts';
import type { Clock } from '../clock.ts';
import type { CallNote } from '../contract/operation.ts';
import type { ContractOperation } from '../contract/operations.ts';
import {
  type ContractRequest,
  type Credential,
  parseCredential,
  type RequestBody,
} from '../contract/request.ts';
import type { ErrorDialect } from '../error-dialects.ts';
import { id } from '../ids.ts';
import type { JsonRecord } from '../json-value.ts';
import type { Log } from '../log.ts';
import { Problem } from '../problem.ts';
import { noteFields } from './access-log.ts';
import type { RequestObserver } from './observer.ts';
import type { RequestTrace } from './request.ts';

export interface SocketRequestOptions {
  message: IncomingMessage;
  path: string;
  log: Log;
  clock: Pick<Clock, 'monotonicMs'>;
  budget: BodyBudget;
  /** The client's address, even if the socket was opened through a trusted proxy. */
  addressOf(message: IncomingMessage): string;
  callerOf(identity: { kind: string }): string | null;
  observer?: RequestObserver | undefined;
}

export class SocketRequest implements ContractRequest {
  readonly method = 'POST';
  readonly path: string;
  readonly query: string;
  readonly headers: IncomingMessage['headers'];
  readonly requestId = id('req');
  readonly remoteAddress: string;
  readonly startedMs: number;
  readonly log: Log;
  readonly isStream = true;
  credential: Credential;
  operation: ContractOperation | undefined = undefined;
  errorDialect: ErrorDialect | undefined = undefined;
  identity: { kind: string } | undefined = undefined;
  isHandled = false;
  responseHeaders: Record<string, string> | undefined = undefined;
  isClientGone = false;
  notes: CallNote | undefined = undefined;
  trace: RequestTrace | undefined = undefined;
  /** The status that the call would have over HTTP. */
  readonly response = { statusCode: 200 };
  readonly #options: SocketRequestOptions;
  readonly #controller = new AbortController();
  #body: Buffer | undefined;
  #value: JsonRecord | undefined;
  #maxBytes = 0;
  /** Returns the bytes of a large body to the budget. */
  #giveBytes = () => {};

  constructor(options: SocketRequestOptions) {
    const { message, path, log, clock } = options;
    this.path = path;
    const { url = '' } = message;
    const queryStart = url.indexOf('?');
    this.query = queryStart < 0 ? '' : url.slice(queryStart + 1);
    // Drop an idempotency key of the handshake: it would replay the first call for every message.
    const { 'idempotency-key': _key, ...headers } = message.headers;
    this.headers = { ...headers, 'content-type': 'application/json' };
    this.credential = parseCredential(headers.authorization);
    this.remoteAddress = options.addressOf(message);
    this.log = log.child({ requestId: this.requestId });
    this.#options = options;
    this.startedMs = clock.monotonicMs();
  }

  /** Sets the body of the call; a handshake has none. */
  useBody(value: JsonRecord, maxBytes: number): void {
    this.#value = value;
    this.#body = Buffer.from(JSON.stringify(value));
    this.#maxBytes = maxBytes;
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  get abortReason(): unknown {
    return this.signal.aborted ? (this.signal.reason as unknown) : undefined;
  }

  abort(reason?: Problem): void {
    this.#controller.abort(reason);
  }

  /** Does nothing: a message has no header for timings. */
  timing(): void {}

  note(fields: CallNote): void {
    this.notes = { ...this.notes, ...fields };
  }

  readBody(): RequestBody {
    const raw = this.#body ?? Buffer.alloc(0);
    if (raw.length > this.#maxBytes)
      throw new Problem(
        'too_large',
        'request_too_large',
        `The body may have at most ${this.#maxBytes} bytes.`,
      );
    if (raw.length > smallBodyBytes) {
      const { budget, callerOf } = this.#options;
      const caller = (this.identity && callerOf(this.identity)) ?? this.remoteAddress;
      budget.take(caller, raw.length);
      this.#giveBytes = () => budget.give(caller, raw.length);
    }
    return { raw, isPresent: true, value: this.#value, isForm: false };
  }

  /** Returns the body's bytes to the budget, and reports the call to the observer and the log. */
  end(): void {
    this.#giveBytes();
    this.#giveBytes = () => {};
    const durationMs = this.#options.clock.monotonicMs() - this.startedMs;
    this.#options.observer?.recordEnd(this, durationMs);
    this.log.info(
      {
        ...noteFields(this.notes ?? {}),
        operationId: this.operation?.handlerId,
        identity: this.identity?.kind,
        bytesIn: this.#body?.length ?? 0,
        status: this.response.statusCode,
        ms: Math.round(durationMs),
        ...(this.isClientGone ? { clientGone: true } : {}),
      },
      'socket call',
    );
  }
}
