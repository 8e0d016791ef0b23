// The contract at work, through openapi-backend, which only this file and its validator know. It matches a request to an
// operation, settles who is asking, holds that against the operation's `security`, and only then lets the
// body be read, validated and handled. Nothing is served that the contract does not say.
//
// openapi-backend's own pipeline (`handleRequest`) runs the steps. Its router and its validator are replaced
// by subclasses; the router because it walks the whole document for every request and lets a literal path fall
// through to a template.
import { OpenAPIBackend, OpenAPIRouter } from 'openapi-backend';
import { type Idempotency, type Remember, rememberNothing } from '../data/idempotency.ts';
import type { Log } from '../log.ts';
import type { CallNote } from './operation.ts';
import { Problem } from '../problem.ts';
import type { AnyReply, Exchange, OperationFacts, ReceivedBody } from './exchange.ts';
import { explainNulByte } from './storable.ts';
import {
  type ContractOperation,
  declaredResponse,
  listed,
  readOperations,
  refuseDisagreement,
} from './operations.ts';
import { type ContractRequest, parse, type ParsedRequest } from './request.ts';
import { createRouter, type Route, type Router } from './router.ts';
import { ContractValidator } from './validator.ts';

// The libraries' own types are `any` at their seams, and a handler's exact types are proven where it is
// written (operation.ts); this alias is the one place where they are forgotten.
type Any = any;

export interface Contract {
  /** Carries the request through; whatever the caller is to hear as an error is thrown as a Problem. */
  dispatch(exchange: Exchange): Promise<AnyReply>;
  /** Why an error body may not be sent for the operation, or null. Always null without `validateResponses`. */
  problemMismatch(exchange: Exchange, status: number, body: unknown): string | null;
  /** Compiles all validators, one a turn of the event loop, so that no caller waits for its own. */
  warm(log: Log): Promise<void>;
}

export interface ContractOptions<Identity extends { kind: string }> {
  /** The bundled document, an OpenAPI 3.1 object. */
  definition: object;
  /** By operationId; exactly the operations of the document. */
  handlers: Record<string, (call: Any) => Promise<Any>>;
  /** The identity kind that each security scheme admits. */
  identities: Record<string, string>;
  /** Whose credential this is; null or a thrown Problem when it is nobody's. */
  identify: (bearer: string) => Promise<Identity | null>;
  /** Who a caller without a credential is. */
  guest: Identity;
  /**
   * Lets a caller in once it is known, or throws, such as 429. The identity is null when the credential that was
   * sent is nobody's, which the caller hears after this.
   */
  admit?: (exchange: Exchange, operation: OperationFacts, identity: Identity | null) => void | Promise<void>;
  /** Keeps answers for operations that declare the header `Idempotency-Key`. */
  idempotency?: Idempotency;
  /** To whom an Idempotency-Key belongs; null for a caller who cannot be told from others. */
  callerOf?: (identity: Identity) => string | null;
  /** Holds every answer against the contract too; for tests, as it costs time. */
  validateResponses?: boolean;
}

// Longer ones are refused unseen: ours have 56 characters, and no lookup should be fed kilobytes.
const maximumBearerLength = 256;
// RFC 9110 compares the scheme without case. Everything else has one spelling: what intermediaries might read
// differently is not a credential here.
const bearerShape = /^bearer ([A-Za-z0-9._~+/-]+=*)$/i;

/**
 * Refuses to start, by throwing and naming them all, when the document and the handlers do not agree or an
 * operation does not say who may call it.
 */
export function createContract<Identity extends { kind: string }>(
  options: ContractOptions<Identity>,
): Contract {
  const document = options.definition as Any;
  const operations = readOperations(document, options.identities);
  refuseDisagreement(document, operations, options);
  const byId = new Map(operations.map((operation) => [operation.operationId, operation]));
  const router = new ContractRouter(document, operations, byId);
  const validator = new ContractValidator(document, router);

  const backend = new OpenAPIBackend({ definition: document, strict: true, quick: true });
  // What `init` would do, but with our router and validator and without copying the document.
  backend.definition = document;
  backend.router = router as Any;
  backend.validator = validator as Any;
  backend.initialized = true;

  backend.register({
    notFound: (context: Any) => {
      throw (
        context.request.failure ??
        new Problem('not_found', 'route_not_found', 'There is nothing at this path.')
      );
    },
    methodNotAllowed: (_context: Any, request: ContractRequest) => {
      if (request.method === 'options') return { status: 204, headers: { allow: request.allow } };
      throw new Problem('method_not_allowed', 'method_not_allowed', `This path answers ${request.allow}.`, {
        headers: { allow: request.allow },
      });
    },
    postRoutingHandler: (context: Any, request: ContractRequest) => {
      const operation = context.operation as ContractOperation | undefined;
      if (operation) return settleIdentity(operation, request.exchange);
    },
    unauthorizedHandler: (_context: Any, { exchange }: ContractRequest) => {
      if (exchange.identity?.kind !== options.guest.kind) {
        throw new Problem(
          'forbidden',
          'forbidden_for_identity',
          'This operation is not for this kind of credential.',
        );
      }
      throw new Problem('unauthenticated', 'authentication_required', 'This operation needs a credential.', {
        headers: { 'www-authenticate': 'Bearer' },
      });
    },
    postSecurityHandler: (context: Any, request: ContractRequest) => {
      const operation = context.operation as ContractOperation;
      if (operation.security.length === 0 || context.security.authorized)
        return receiveBody(operation, request);
    },
    validationFail: (context: Any, request: ContractRequest) => {
      throw validator.explain(context.operation, request.parsed as ParsedRequest, context.validation.errors);
    },
    notImplemented: () => {
      throw new Error('An operation without a handler passed the check at start.');
    },
  });
  backend.securityHandlers[listed] = (context: Any, { exchange }: ContractRequest) => {
    const { admits, operationId } = context.operation as ContractOperation;
    // A credential may be good for some operations only; then it is nobody's at all others.
    const identity = exchange.identity as { kind: string; operations?: ReadonlySet<string> } | undefined;
    return admits.has(identity?.kind ?? '') && (identity?.operations?.has(operationId) ?? true);
  };
  for (const [operationId, handler] of Object.entries(options.handlers)) {
    backend.register(operationId, (_context: Any, request: ContractRequest) => {
      request.exchange.handled = true;
      const key = request.parsed?.headers['idempotency-key'];
      if (key === undefined || options.idempotency === undefined)
        return handler(new ContractCall(operationId, request, rememberNothing));
      return aroundKeyed(operationId, request, handler);
    });
  }

  function settleIdentity(operation: ContractOperation, exchange: Exchange): void | Promise<void> {
    exchange.operation = operation.facts;
    exchange.identity = options.guest;
    const presented = exchange.headers.authorization;
    if (operation.facts.ignoresCredential) return;
    if (presented === undefined) return options.admit?.(exchange, operation.facts, options.guest);
    const bearer =
      typeof presented === 'string' && presented.length <= maximumBearerLength
        ? bearerShape.exec(presented)?.[1]
        : undefined;
    return identifyAndAdmit(operation, exchange, bearer);
  }

  async function identifyAndAdmit(
    operation: ContractOperation,
    exchange: Exchange,
    bearer: string | undefined,
  ): Promise<void> {
    let identity: Identity | null;
    try {
      identity = bearer === undefined ? null : await options.identify(bearer);
    } catch (refusal) {
      await options.admit?.(exchange, operation.facts, null);
      throw refusal;
    }
    await options.admit?.(exchange, operation.facts, identity);
    if (identity === null) throw invalidToken();
    exchange.identity = identity;
  }

  function aroundKeyed(
    operationId: string,
    request: ContractRequest,
    handler: (call: Any) => Promise<Any>,
  ): Promise<Any> {
    const { exchange } = request;
    const { params, query, headers, requestBody, raw } = request.parsed as ParsedRequest;
    const keyed = {
      operationId,
      caller: options.callerOf?.(exchange.identity as Identity) ?? null,
      key: headers['idempotency-key'] as string,
      request: { path: params, query, body: requestBody, rawBody: raw },
      requestId: exchange.requestId,
      isSecret: byId.get(operationId)?.isSecret === true,
      signal: exchange.signal,
    };
    return (options.idempotency as Idempotency).runOnce(keyed, (remember) =>
      handler(new ContractCall(operationId, request, remember)),
    );
  }

  function receiveBody(operation: ContractOperation, request: ContractRequest): void | Promise<void> {
    const received = request.exchange.readBody(operation.facts);
    return received instanceof Promise
      ? received.then((body) => takeBody(operation, request, body))
      : takeBody(operation, request, received);
  }

  function takeBody(operation: ContractOperation, request: ContractRequest, received: ReceivedBody): void {
    if (operation.facts.body?.required && !received.present) {
      throw new Problem('bad_request', 'invalid_request', 'This operation needs a body.');
    }
    const parsed = request.parsed as ParsedRequest;
    parsed.requestBody = received.value;
    parsed.isForm = received.isForm;
    parsed.raw = received.raw;
  }

  return {
    dispatch(exchange) {
      const request: ContractRequest = {
        method: exchange.method.toLowerCase(),
        path: exchange.path,
        headers: {},
        exchange,
        parsed: undefined,
        allow: '',
        failure: undefined,
        params: {},
      };
      const replied = (backend.handleRequest(request as Any, request) as Promise<AnyReply>).catch(
        (error: unknown) => {
          throw explainNulByte(error, request.parsed?.query, request.parsed?.requestBody);
        },
      );
      if (!options.validateResponses) return replied;
      return replied.then((reply) => {
        const operation =
          exchange.handled && exchange.operation ? byId.get(exchange.operation.operationId) : undefined;
        return operation ? validator.checkedReply(operation, reply) : reply;
      });
    },
    problemMismatch(exchange, status, body) {
      const operation = exchange.operation && byId.get(exchange.operation.operationId);
      if (!options.validateResponses || !operation) return null;
      const declared = declaredResponse(operation, status);
      // What the floor itself refuses (a body too large, a drain) is the same everywhere and need not be
      // repeated on each operation, nor beside a page of it; what a handler throws is part of its operation.
      if (!exchange.handled && !declared?.content?.['application/json']) return null;
      if (!declared)
        return status !== 500 ? `${operation.operationId} does not declare the status ${status}` : null;
      return validator.jsonMismatch(operation, status, body);
    },
    async warm(log) {
      for (const operation of operations) {
        await new Promise((resolve) => setImmediate(resolve));
        try {
          validator.getRequestValidatorsForOperation(operation.operationId);
        } catch (error) {
          log.error(
            { operationId: operation.operationId, err: error },
            'a schema of the contract does not compile',
          );
        }
      }
    },
  };
}

function invalidToken(): Problem {
  return new Problem('unauthenticated', 'invalid_token', 'The credential is not valid.', {
    headers: { 'www-authenticate': 'Bearer error="invalid_token"' },
  });
}

/**
 * What a handler is given (operation.ts has its exact type). A class, because a literal with getters makes a
 * new shape for each object, and shapes keep all that they see alive until a full collection.
 */
class ContractCall {
  readonly operationId: string;
  readonly body: unknown;
  readonly path: Record<string, string>;
  readonly query: Record<string, unknown>;
  readonly headers: Record<string, unknown>;
  readonly identity: { kind: string } | undefined;
  readonly rawBody: Uint8Array;
  readonly requestId: string;
  readonly remember: Remember;
  readonly #exchange: Exchange;

  constructor(operationId: string, { exchange, parsed }: ContractRequest, remember: Remember) {
    const { params, query, headers, requestBody, raw } = parsed as ParsedRequest;
    this.operationId = operationId;
    this.body = requestBody;
    this.path = params;
    this.query = query;
    this.headers = headers;
    this.identity = exchange.identity;
    this.rawBody = raw;
    this.requestId = exchange.requestId;
    this.remember = remember;
    this.#exchange = exchange;
  }

  get remoteAddress(): string {
    return this.#exchange.remoteAddress;
  }

  get request(): { host: string; origin: string | undefined; headers: Exchange['headers'] } {
    const { headers } = this.#exchange;
    return { host: String(headers.host ?? ''), origin: headers.origin as string | undefined, headers };
  }

  get signal(): AbortSignal {
    return this.#exchange.signal;
  }

  get log(): Log {
    return this.#exchange.log.child({ operationId: this.operationId });
  }

  // A property and not a method, so that handlers may take it out of the call.
  readonly timing = (name: string, durationMs: number): void => this.#exchange.timing(name, durationMs);
  readonly note = (fields: CallNote): void => this.#exchange.note(fields);
}

class ContractRouter extends OpenAPIRouter {
  readonly #operations: ContractOperation[];
  readonly #byId: Map<string, ContractOperation>;
  readonly #routes: Router<ContractOperation>;

  constructor(document: Any, operations: ContractOperation[], byId: Map<string, ContractOperation>) {
    super({ definition: document, apiRoot: '/' });
    this.#operations = operations;
    this.#byId = byId;
    const routes = new Map<
      string,
      Route<ContractOperation> & { operations: Map<string, ContractOperation> }
    >();
    for (const operation of operations) {
      const spansSlashes = operation.parameters.find(
        (parameter) => parameter.in === 'path' && parameter['x-spans-slashes'],
      )?.name;
      const route = routes.get(operation.path) ?? {
        template: operation.path,
        operations: new Map(),
        spansSlashes,
      };
      route.operations.set(operation.method, operation);
      routes.set(operation.path, route);
    }
    this.#routes = createRouter([...routes.values()]);
  }

  override getOperations(): Any[] {
    return this.#operations;
  }

  override getOperation(operationId: string): Any {
    return this.#byId.get(operationId);
  }

  override matchOperation(request: Any): Any {
    const { method, path } = request as ContractRequest;
    let match: ReturnType<Router<ContractOperation>['match']>;
    try {
      match = this.#routes.match(method, path);
    } catch (error) {
      // openapi-backend takes whatever is thrown here for a 404; its handler throws this instead.
      request.failure = error;
      throw error;
    }
    if (match.outcome === 'not_found') throw new Error('404-notFound');
    if (match.outcome === 'method_not_allowed') {
      request.allow = match.allow;
      throw new Error('405-methodNotAllowed');
    }
    request.params = match.params;
    return match.operation;
  }

  // Called three times a request by the pipeline; the work is done once.
  override parseRequest(request: Any, operation?: Any): Any {
    if (!operation) return request;
    request.parsed ??= parse(request as ContractRequest, operation as ContractOperation);
    return request.parsed;
  }
}
