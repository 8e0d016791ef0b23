// The argument of a handler. operation.ts has its exact type for each operation.
import type { Remember } from '../data/idempotency.ts';
import type { Log } from '../log.ts';
import type { OperationInput } from './input.ts';
import type { CallNote } from './operation.ts';
import type { ContractRequest } from './request.ts';

/**
 * A class, unlike most values here: an object literal with getters gets a hidden class of its own
 * for every request, and V8 keeps those, and everything they refer to, until a full collection.
 */
export class HandlerCall {
  readonly operationId: string;
  readonly body: unknown;
  readonly path: Record<string, string>;
  readonly query: Record<string, unknown>;
  readonly headers: Record<string, unknown>;
  readonly identity: { kind: string };
  readonly rawBody: Uint8Array;
  readonly requestId: string;
  readonly remember: Remember;
  readonly #request: ContractRequest;

  constructor(
    request: ContractRequest,
    { body, path, query, headers, rawBody }: OperationInput,
    { operationId, identity, remember }: Pick<HandlerCall, 'operationId' | 'identity' | 'remember'>,
  ) {
    this.operationId = operationId;
    this.body = body;
    this.path = path;
    this.query = query;
    this.headers = headers;
    this.identity = identity;
    this.rawBody = rawBody;
    this.requestId = request.requestId;
    this.remember = remember;
    this.#request = request;
  }

  get remoteAddress(): string {
    return this.#request.remoteAddress;
  }

  get request(): { host: string; origin: string | undefined; headers: ContractRequest['headers'] } {
    const { headers } = this.#request;
    return { host: String(headers['host'] ?? ''), origin: headers['origin'] as string | undefined, headers };
  }

  get signal(): AbortSignal {
    return this.#request.signal;
  }

  get log(): Log {
    return this.#request.log.child({ operationId: this.operationId });
  }

  // Properties and not methods, so that handlers may destructure them.
  readonly timing = (name: string, durationMs: number): void => this.#request.timing(name, durationMs);
  readonly note = (fields: CallNote): void => this.#request.note(fields);
}
