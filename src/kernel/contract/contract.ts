// The contract at work: the only file that knows openapi-backend and ajv. It matches a request to an
// operation, settles who is asking, holds that against the operation's `security`, and only then lets the
// body be read, validated and handled. Nothing is served that the contract does not say.
//
// openapi-backend's own pipeline (`handleRequest`) runs the steps. Its router and its validator are replaced
// by subclasses, because its router walks the whole document for every request and lets a literal path fall
// through to a template, and its validator copies every schema and follows recursive ones without end.
import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js';
import addFormats from 'ajv-formats';
import { OpenAPIBackend, OpenAPIRouter, OpenAPIValidator } from 'openapi-backend';
import { invalidRequest, type SchemaError, type SchemaTools } from './faults.ts';
import { type Idempotency, type Remember, rememberNothing } from '../data/idempotency.ts';
import type { Log } from '../log.ts';
import type { CallNote } from './operation.ts';
import { Problem } from '../problem.ts';
import { createRouter, type Route, type Router } from './router.ts';

// The libraries' own types are `any` at their seams, and a handler's exact types are proven where it is
// written (operation.ts); this alias is the one place where they are forgotten.
type Any = any;

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

export interface Contract {
  readonly operationIds: readonly string[];
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

interface Parameter {
  name: string;
  in: string;
  required?: boolean;
  explode?: boolean;
  schema?: unknown;
  'x-spans-slashes'?: boolean;
}

interface ContractOperation {
  operationId: string;
  method: string;
  path: string;
  /** As the document has it; undefined is refused at start. */
  declaredSecurity: Record<string, string[]>[] | undefined;
  /** The answer holds a secret, which is shown once. */
  isSecret: boolean;
  /** What the pipeline is told: nothing for an operation that anyone may call, else the one requirement. */
  security: Record<string, string[]>[];
  /** The identity kinds that may call it. */
  admits: ReadonlySet<string>;
  parameters: Parameter[];
  requestBody?: Any;
  /** The members of its form that are files. */
  formFiles: ReadonlySet<string>;
  responses: Record<string, Any>;
  facts: OperationFacts;
  toleratesQuery: boolean;
  queryParameters: Map<string, { list: boolean; commas: boolean }>;
  headerNames: string[];
}

interface ParsedRequest {
  method: string;
  path: string;
  params: Record<string, string>;
  query: Record<string, unknown>;
  headers: Record<string, unknown>;
  cookies: Record<string, string>;
  requestBody: unknown;
  isForm: boolean;
  raw: Uint8Array;
}

/** What goes through openapi-backend as its request; the exchange's findings ride on it. */
interface ContractRequest {
  method: string;
  path: string;
  headers: Record<string, never>;
  exchange: Exchange;
  parsed: ParsedRequest | undefined;
  allow: string;
  params: Record<string, string>;
  failure: Problem | undefined;
}

// Where the document lives for ajv, so that its `$ref`s are compiled once and shared by all operations.
const documentKey = 'contract.json';
// The pipeline runs a chain of promises for each scheme of an operation. All of ours come down to one
// question, so the operations are handed to it with this one requirement in place of theirs.
const listed = 'an identity that the operation lists';
const methods = ['get', 'put', 'post', 'delete', 'options', 'head', 'patch', 'trace'];
const nothing = new Uint8Array(0);
const formType = 'multipart/form-data';
// Explaining every fault costs more than finding the first; beyond this size the first has to do.
const explainedBodyBytes = 16 * 1024;
// Longer ones are refused unseen: ours have 56 characters, and no lookup should be fed kilobytes.
const maximumBearerLength = 256;
// One spelling and no other: what intermediaries might read differently is not a credential here.
const bearerShape = /^Bearer ([A-Za-z0-9._~+/-]+=*)$/;

/**
 * Refuses to start, by throwing and naming them all, when the document and the handlers do not agree or an
 * operation does not say who may call it.
 */
export function createContract<Identity extends { kind: string }>(options: ContractOptions<Identity>): Contract {
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
      throw context.request.failure ?? new Problem('not_found', 'route_not_found', 'There is nothing at this path.');
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
        throw new Problem('forbidden', 'forbidden_for_identity', 'This operation is not for this kind of credential.');
      }
      throw new Problem('unauthenticated', 'authentication_required', 'This operation needs a credential.', {
        headers: { 'www-authenticate': 'Bearer' },
      });
    },
    postSecurityHandler: (context: Any, request: ContractRequest) => {
      const operation = context.operation as ContractOperation;
      if (operation.security.length === 0 || context.security.authorized) return receiveBody(operation, request);
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
      if (key === undefined || options.idempotency === undefined) return handler(new ContractCall(operationId, request, rememberNothing));
      return aroundKeyed(operationId, request, handler);
    });
  }

  function settleIdentity(operation: ContractOperation, exchange: Exchange): void | Promise<void> {
    exchange.operation = operation.facts;
    exchange.identity = options.guest;
    const presented = exchange.headers.authorization;
    if (operation.facts.ignoresCredential) return;
    if (presented === undefined) return options.admit?.(exchange, operation.facts, options.guest);
    const bearer = typeof presented === 'string' && presented.length <= maximumBearerLength ? bearerShape.exec(presented)?.[1] : undefined;
    return identifyAndAdmit(operation, exchange, bearer);
  }

  async function identifyAndAdmit(operation: ContractOperation, exchange: Exchange, bearer: string | undefined): Promise<void> {
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

  function aroundKeyed(operationId: string, request: ContractRequest, handler: (call: Any) => Promise<Any>): Promise<Any> {
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
    return (options.idempotency as Idempotency).around(keyed, (remember) => handler(new ContractCall(operationId, request, remember)));
  }

  function receiveBody(operation: ContractOperation, request: ContractRequest): void | Promise<void> {
    const received = request.exchange.readBody(operation.facts);
    return received instanceof Promise ? received.then((body) => takeBody(operation, request, body)) : takeBody(operation, request, received);
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
    operationIds: [...byId.keys()],
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
      const replied = backend.handleRequest(request as Any, request) as Promise<AnyReply>;
      if (!options.validateResponses) return replied;
      return replied.then((reply) => {
        const operation = exchange.handled && exchange.operation ? byId.get(exchange.operation.operationId) : undefined;
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
      if (!declared) return status !== 500 ? `${operation.operationId} does not declare the status ${status}` : null;
      return validator.jsonMismatch(operation, status, body);
    },
    async warm(log) {
      for (const operation of operations) {
        await new Promise((resolve) => setImmediate(resolve));
        try {
          validator.getRequestValidatorsForOperation(operation.operationId);
        } catch (error) {
          log.error({ operationId: operation.operationId, err: error }, 'a schema of the contract does not compile');
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

function readOperations(document: Any, identities: Record<string, string>): ContractOperation[] {
  const operations: ContractOperation[] = [];
  for (const [path, item] of Object.entries<Any>(document.paths ?? {})) {
    for (const method of methods) {
      const own = item[method];
      if (!own) continue;
      const body = own.requestBody ? resolvePointer(document, own.requestBody) : undefined;
      const parameters = [...(own.parameters ?? []), ...(item.parameters ?? [])].map((parameter) => resolvePointer(document, parameter));
      operations.push({
        operationId: own.operationId ?? '',
        method,
        path,
        declaredSecurity: own.security,
        // An empty requirement among others admits anyone just as an empty list does.
        security: schemesOf(own.security).length === 0 || own.security.some((one: object) => Object.keys(one).length === 0) ? [] : [{ [listed]: [] }],
        admits: new Set(schemesOf(own.security).map((scheme) => identities[scheme] ?? '')),
        parameters,
        requestBody: body,
        formFiles: formFilesOf(document, body?.content?.[formType]?.schema),
        responses: Object.fromEntries(
          Object.entries(own.responses ?? {}).map(([status, response]) => [status, resolvePointer(document, response)]),
        ),
        facts: {
          operationId: own.operationId ?? '',
          maxBodyBytes: own['x-max-body-bytes'],
          body: body ? { required: body.required === true, mediaTypes: Object.keys(body.content ?? {}) } : null,
          passthrough: own['x-passthrough'] === true,
          rawBody: own['x-raw-body'] === true,
          bodyDeadlineMs: own['x-body-deadline-ms'],
          rateLimit: own['x-rate-limit'],
          ignoresCredential: own['x-ignores-credential'] === true,
        },
        isSecret: own['x-secret-response'] === true,
        toleratesQuery: own['x-tolerates-query'] === true,
        queryParameters: new Map(
          parameters
            .filter((parameter) => parameter.in === 'query')
            .map((parameter) => {
              const type = resolvePointer(document, parameter.schema ?? {}).type;
              const list = type === 'array' || (Array.isArray(type) && type.includes('array'));
              return [parameter.name, { list, commas: list && parameter.explode === false }];
            }),
        ),
        headerNames: parameters
          .filter((parameter) => parameter.in === 'header')
          .map((parameter) => String(parameter.name).toLowerCase())
          // OpenAPI says that these three are described elsewhere.
          .filter((name) => !['accept', 'content-type', 'authorization'].includes(name)),
      });
    }
  }
  return operations;
}

function formFilesOf(document: Any, schema: Any): ReadonlySet<string> {
  const members = Object.entries<Any>(resolvePointer(document, schema)?.properties ?? {});
  return new Set(members.filter(([, member]) => resolvePointer(document, member).format === 'binary').map(([name]) => name));
}

function schemesOf(security: Record<string, string[]>[] | undefined): string[] {
  return Array.isArray(security) ? security.flatMap((requirement) => Object.keys(requirement)) : [];
}

function refuseDisagreement(document: Any, operations: ContractOperation[], options: Pick<ContractOptions<{ kind: string }>, 'handlers' | 'identities'>): void {
  const faults: string[] = [];
  const seen = new Set<string>();
  const used = new Set(Object.keys(document.components?.securitySchemes ?? {}));
  for (const { operationId, method, path, declaredSecurity } of operations) {
    const name = operationId === '' ? `${method.toUpperCase()} ${path}` : operationId;
    if (operationId === '') faults.push(`${name} has no operationId`);
    else if (seen.has(operationId)) faults.push(`${name} is the id of two operations`);
    seen.add(operationId);
    if (!Array.isArray(declaredSecurity)) faults.push(`${name} has no security of its own`);
    for (const scheme of schemesOf(declaredSecurity)) used.add(scheme);
    if (declaredSecurity?.some?.((requirement) => Object.keys(requirement).length > 1)) {
      faults.push(`${name} asks for two credentials at once`);
    }
    if (operationId !== '' && !Object.hasOwn(options.handlers, operationId)) faults.push(`${name} has no handler`);
  }
  for (const operationId of Object.keys(options.handlers)) {
    if (!seen.has(operationId)) faults.push(`the handler ${operationId} has no operation`);
  }
  for (const scheme of used) {
    if (!Object.hasOwn(options.identities, scheme)) faults.push(`the security scheme ${scheme} is not mapped to an identity`);
    else if (!document.components?.securitySchemes?.[scheme]) faults.push(`the security scheme ${scheme} is not declared`);
  }
  if (faults.length > 0) throw new Error(`The contract cannot be served: ${faults.join('; ')}.`);
}

function resolvePointer(document: Any, schema: Any): Any {
  let found = schema;
  // The bound is for a `$ref` that leads to itself.
  for (let hops = 0; hops < 32 && typeof found?.$ref === 'string'; hops += 1) {
    const [, pointer = ''] = found.$ref.split('#');
    found = pointer
      .split('/')
      .slice(1)
      .map((part: string) => decodeURIComponent(part).replaceAll('~1', '/').replaceAll('~0', '~'))
      .reduce((value: Any, part: string) => value?.[part], document);
    if (found === undefined) throw new Error(`The contract has a dangling reference: ${schema.$ref}.`);
  }
  return found;
}

class ContractRouter extends OpenAPIRouter {
  readonly #operations: ContractOperation[];
  readonly #byId: Map<string, ContractOperation>;
  readonly #routes: Router<ContractOperation>;

  constructor(document: Any, operations: ContractOperation[], byId: Map<string, ContractOperation>) {
    super({ definition: document, apiRoot: '/' });
    this.#operations = operations;
    this.#byId = byId;
    const routes = new Map<string, Route<ContractOperation> & { operations: Map<string, ContractOperation> }>();
    for (const operation of operations) {
      const spansSlashes = operation.parameters.find((parameter) => parameter.in === 'path' && parameter['x-spans-slashes'])?.name;
      const route = routes.get(operation.path) ?? { template: operation.path, operations: new Map(), spansSlashes };
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

function parse(request: ContractRequest, operation: ContractOperation): ParsedRequest {
  const { exchange } = request;
  const headers: Record<string, unknown> = {};
  for (const name of operation.headerNames) {
    const value = exchange.headers[name];
    if (value !== undefined) headers[name] = value;
  }
  return {
    method: request.method,
    path: request.path,
    params: request.params,
    query: exchange.query === '' ? {} : parseQuery(exchange.query, operation),
    headers,
    cookies: {},
    requestBody: undefined,
    isForm: false,
    raw: nothing,
  };
}

function parseQuery(text: string, operation: ContractOperation): Record<string, unknown> {
  // Without a prototype, so that a parameter called `__proto__` is one more undeclared name.
  const query = Object.create(null) as Record<string, unknown>;
  for (const pair of text.split('&')) {
    if (pair === '') continue;
    const cut = pair.indexOf('=');
    const name = decodeQuery(cut < 0 ? pair : pair.slice(0, cut));
    const value = cut < 0 ? '' : decodeQuery(pair.slice(cut + 1));
    const parameter = operation.queryParameters.get(name);
    const before = query[name];
    if (parameter?.list) query[name] = [...((before as string[]) ?? []), ...(parameter.commas ? value.split(',') : [value])];
    else if (before !== undefined && parameter) throw repeated(name);
    // Somebody else's names may repeat, and nothing that was sent is passed over.
    else query[name] = before === undefined ? value : [before, value].flat();
  }
  return query;
}

function repeated(name: string): Problem {
  const message = 'appears more than once';
  return new Problem('bad_request', 'invalid_request', `The query parameter \`${name}\` ${message}.`, {
    param: name,
    details: [{ path: name, message }],
  });
}

function decodeQuery(text: string): string {
  try {
    return decodeURIComponent(text.replaceAll('+', ' '));
  } catch (cause) {
    throw new Problem('bad_request', 'invalid_request', 'The query holds a percent encoding that cannot be decoded.', { cause });
  }
}

class ContractValidator extends OpenAPIValidator {
  readonly #document: Any;
  readonly #body: Ajv2020;
  readonly #parameters: Ajv2020;
  #thorough: Ajv2020 | undefined;
  readonly #thoroughChecks = new WeakMap<object, ValidateFunction>();
  readonly #replyChecks = new Map<string, ValidateFunction | null>();
  readonly #tools: SchemaTools;

  constructor(document: Any, router: ContractRouter) {
    super({ definition: document, router: router as Any, lazyCompileValidators: true });
    this.#document = document;
    this.#body = engine(document, {});
    // Parameters arrive as text, so `"5"` has to pass for 5; in a body it does not.
    this.#parameters = engine(document, { coerceTypes: true });
    this.#tools = {
      resolve: (schema) => resolvePointer(document, schema) ?? {},
      check: (schema, value) => this.#thoroughErrors(schema, value),
    };
  }

  override validateRequest(request: Any, operation: Any): Any {
    const { params, query, headers, requestBody, isForm } = (request as ContractRequest).parsed as ParsedRequest;
    const values = { path: params, query, header: headers, ...(isForm ? { requestForm: writtenForm(operation, requestBody) } : { requestBody }) };
    for (const validate of this.getRequestValidatorsForOperation(operation.operationId) ?? []) {
      if (!validate(values)) return { valid: false, errors: validate.errors };
    }
    return { valid: true, errors: null };
  }

  // Two functions at most: the parameters, and the body.
  override buildRequestValidatorsForOperation(operation: Any): ValidateFunction[] {
    const { facts } = operation as ContractOperation;
    const validators = [this.#parameters.compile(parameterSchema(operation))];
    const { 'application/json': json, [formType]: form } = operation.requestBody?.content ?? {};
    if (facts.body && (json?.schema || form?.schema)) {
      const properties = { requestBody: rebase(json?.schema ?? {}), requestForm: rebase(form?.schema ?? {}) };
      validators.push(this.#body.compile({ type: 'object', properties }));
    }
    return validators;
  }

  explain(operation: ContractOperation, parsed: ParsedRequest, errors: SchemaError[]): Problem {
    if (parsed.isForm) return invalidRequest(errors.map((error) => ({ ...error, instancePath: error.instancePath.replace(/^\/requestForm/, '/requestBody') })), this.#tools);
    const inBody = errors.some((error) => error.instancePath.startsWith('/requestBody'));
    const schema = operation.requestBody?.content?.['application/json']?.schema;
    if (!inBody || parsed.raw.byteLength > explainedBodyBytes) return invalidRequest(errors, this.#tools);
    const all = this.#thoroughErrors(schema, parsed.requestBody);
    return invalidRequest(
      all.map((error) => ({ ...error, instancePath: `/requestBody${error.instancePath}` })),
      this.#tools,
    );
  }

  #thoroughErrors(schema: unknown, value: unknown): SchemaError[] {
    this.#thorough ??= engine(this.#document, { allErrors: true });
    const key = schema as object;
    const check = this.#thoroughChecks.get(key) ?? this.#thorough.compile(rebase(schema));
    this.#thoroughChecks.set(key, check);
    return check(value) ? [] : [...((check.errors ?? []) as SchemaError[])];
  }

  jsonMismatch(operation: ContractOperation, status: number, body: unknown): string | null {
    return this.#mismatch(operation, status, 'application/json', body);
  }

  #mismatch(operation: ContractOperation, status: number, mediaType: string, value: unknown): string | null {
    const schema = declaredResponse(operation, status)?.content?.[mediaType]?.schema;
    if (schema === undefined) return `${operation.operationId} does not declare ${mediaType} for ${status}`;
    const key = `${operation.operationId} ${status} ${mediaType}`;
    const check = this.#replyChecks.get(key) ?? this.#body.compile(rebase(schema));
    this.#replyChecks.set(key, check);
    // What the caller will see is the serialized form: without undefined members, with dates as text.
    if (check(JSON.parse(JSON.stringify(value ?? null)))) return null;
    const [error] = check.errors ?? [];
    return `${operation.operationId} ${status} at ${error?.instancePath || '/'}: ${error?.message} ${JSON.stringify(error?.params)}`;
  }

  checkedReply(operation: ContractOperation, reply: AnyReply): AnyReply {
    const refuse = (reason: string | null) => {
      if (reason !== null) throw new Error(`A reply does not match the contract: ${reason}`);
    };
    if (operation.facts.passthrough && reply.content !== undefined) return reply;
    const declared = declaredResponse(operation, reply.status);
    if (!declared) refuse(`${operation.operationId} does not declare the status ${reply.status}`);
    if (reply.events !== undefined) {
      const { events, status } = reply;
      const check = (data: unknown) => refuse(this.#mismatch(operation, status, 'text/event-stream', data));
      return { ...reply, events: checkedEvents(events, check) };
    }
    if (reply.content !== undefined) {
      const mediaType = (reply.mediaType ?? '').split(';', 1)[0]?.trim() ?? '';
      if (!declared.content?.[mediaType]) refuse(`${operation.operationId} does not declare ${mediaType} for ${reply.status}`);
    } else if ('body' in reply) {
      refuse(this.jsonMismatch(operation, reply.status, reply.body));
    } else if (declared.content) {
      refuse(`${operation.operationId} declares content for ${reply.status} and the reply has none`);
    }
    return reply;
  }
}

// A form as its schema sees it, where a file is a text of any content. What is a file and what is not is held here.
function writtenForm(operation: Any, members: unknown): unknown {
  const declared = (operation as ContractOperation).formFiles;
  return Object.fromEntries(
    Object.entries(members as Record<string, unknown>).map(([name, value]) => {
      const isFile = typeof value === 'object';
      if (declared.has(name) === isFile) return [name, isFile ? '' : value];
      const message = declared.has(name) ? 'must be a file' : 'must not be a file';
      throw new Problem('bad_request', 'invalid_request', `The member \`${name}\` ${message}.`, { param: name, details: [{ path: name, message }] });
    }),
  );
}

async function* checkedEvents(
  events: NonNullable<AnyReply['events']>,
  check: (data: unknown) => void,
): NonNullable<AnyReply['events']> {
  for await (const event of events) {
    check(event.data);
    yield event;
  }
}

function declaredResponse(operation: ContractOperation, status: number): Any {
  return operation.responses[String(status)] ?? operation.responses[`${Math.floor(status / 100)}XX`] ?? operation.responses.default;
}

function engine(document: Any, options: { coerceTypes?: boolean; allErrors?: boolean }): Ajv2020 {
  // Not strict: a contract has keywords that are for readers. Verbose: errors carry what faults.ts explains
  // them by. The discriminator keyword stays off, as ajv refuses its mapping; `oneOf` with `const` says it too.
  const ajv = new Ajv2020({ strict: false, verbose: true, logger: false, ...options });
  addFormats.default(ajv);
  // Its JSON Schema parts are valid by the lint of the contract; the whole is not a schema.
  return ajv.addSchema(document, documentKey, false, false);
}

function parameterSchema(operation: ContractOperation): object {
  const place = (where: string, open: boolean) => {
    const own = operation.parameters.filter((parameter) => parameter.in === where);
    const nameOf = (parameter: Parameter) => (where === 'header' ? parameter.name.toLowerCase() : parameter.name);
    const listed = own.filter((parameter) => where !== 'header' || operation.headerNames.includes(nameOf(parameter)));
    return {
      type: 'object',
      additionalProperties: open,
      properties: Object.fromEntries(listed.map((parameter) => [nameOf(parameter), rebase(parameter.schema ?? {})])),
      required: listed.filter((parameter) => parameter.required).map(nameOf),
    };
  };
  return {
    type: 'object',
    properties: { path: place('path', false), query: place('query', operation.toleratesQuery), header: place('header', true) },
  };
}

// A schema that leaves the document takes the address of the document along in its references.
function rebase(schema: unknown): Any {
  if (Array.isArray(schema)) return schema.map(rebase);
  if (typeof schema !== 'object' || schema === null) return schema;
  return Object.fromEntries(
    Object.entries(schema).map(([name, value]) =>
      name === '$ref' && typeof value === 'string' && value.startsWith('#') ? [name, documentKey + value] : [name, rebase(value)],
    ),
  );
}
