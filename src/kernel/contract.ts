// The contract at work: the only file that knows openapi-backend and ajv. It matches a request to an
// operation, settles who is asking, holds that against the operation's `security`, and only then lets the
// body be read, validated and handled. Nothing is served that the contract does not say.
//
// openapi-backend is used through subclasses of its three parts. Its router walks the whole document for every
// request and lets a literal path fall through to a template; its validator copies every schema and follows
// recursive ones without end; its pipeline costs more than all the rest of the kernel together.
import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js';
import addFormats from 'ajv-formats';
import { OpenAPIBackend, OpenAPIRouter, OpenAPIValidator } from 'openapi-backend';
import { invalidRequest, type SchemaError, type SchemaTools } from './faults.ts';
import type { Log } from './log.ts';
import { Problem } from './problem.ts';
import { createRouter, type Route, type Router } from './router.ts';

// The libraries' own types are `any` at their seams, and a handler's exact types are proven where it is
// written (operation.ts); this alias is the one place where they are forgotten.
// biome-ignore lint/suspicious/noExplicitAny: see above
type Any = any;

/** What the server must know about an operation before and after it is handled. */
export interface OperationFacts {
  operationId: string;
  maxBodyBytes: number | undefined;
  /** Null where the operation takes no body. */
  body: { required: boolean; mediaTypes: readonly string[] } | null;
  passthrough: boolean;
}

export interface ReceivedBody {
  raw: Uint8Array;
  present: boolean;
  /** The parsed document; undefined when the body is absent or is not JSON. */
  json: unknown;
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
  readBody(operation: OperationFacts): ReceivedBody | Promise<ReceivedBody>;
  operation: OperationFacts | undefined;
  identity: { kind: string } | undefined;
  /** True once the handler was called: from there on each answer is the operation's own. */
  handled: boolean;
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
  /** What the pipeline is told: nothing for an operation that anyone may call, else the one requirement. */
  security: Record<string, string[]>[];
  /** The identity kinds that may call it. */
  admits: ReadonlySet<string>;
  parameters: Parameter[];
  requestBody?: Any;
  responses: Record<string, Any>;
  facts: OperationFacts;
  ignoresCredential: boolean;
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
}

// Where the document lives for ajv, so that its `$ref`s are compiled once and shared by all operations.
const documentKey = 'contract.json';
// All schemes of ours come down to one question, so the operations carry this one requirement in place of theirs.
const listed = 'an identity that the operation lists';
const methods = ['get', 'put', 'post', 'delete', 'options', 'head', 'patch', 'trace'];
const nothing = new Uint8Array(0);
// Explaining every fault costs more than finding the first; beyond this size the first has to do.
const explainedBodyBytes = 16 * 1024;
// Longer ones are refused unseen: ours have 56 characters, and no lookup should be fed kilobytes.
const maximumBearerLength = 256;
const bearerShape = /^bearer +([A-Za-z0-9._~+/-]+=*)$/i;

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

  const backend = new ContractBackend({ definition: document, strict: true, quick: true });
  // What `init` would do, but with our router and validator and without copying the document.
  backend.definition = document;
  backend.router = router as Any;
  backend.validator = validator as Any;
  backend.initialized = true;

  backend.register({
    notFound: () => {
      throw new Problem('not_found', 'route_not_found', 'There is nothing at this path.');
    },
    methodNotAllowed: (_context: Any, request: ContractRequest) => {
      if (request.method === 'options') return { status: 204, headers: { allow: request.allow } };
      throw new Problem('method_not_allowed', 'method_not_allowed', `This path answers ${request.allow}.`, {
        headers: { allow: request.allow },
      });
    },
    postRoutingHandler: (context: Any, request: ContractRequest) => {
      return settleIdentity(context.operation as ContractOperation, request.exchange);
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
      return receiveBody(context.operation as ContractOperation, request);
    },
    validationFail: (context: Any, request: ContractRequest) => {
      throw validator.explain(context.operation, request.parsed as ParsedRequest, context.validation.errors);
    },
    notImplemented: () => {
      throw new Error('An operation without a handler passed the check at start.');
    },
  });
  backend.securityHandlers[listed] = (context: Any, { exchange }: ContractRequest) =>
    (context.operation as ContractOperation).admits.has(exchange.identity?.kind ?? '');
  for (const [operationId, handler] of Object.entries(options.handlers)) {
    backend.register(operationId, (_context: Any, request: ContractRequest) => {
      request.exchange.handled = true;
      return handler(callOf(operationId, request));
    });
  }

  function settleIdentity(operation: ContractOperation, exchange: Exchange): void | Promise<void> {
    exchange.operation = operation.facts;
    exchange.identity = options.guest;
    const presented = exchange.headers.authorization;
    if (presented === undefined || operation.ignoresCredential) return;
    const bearer = typeof presented === 'string' && presented.length <= maximumBearerLength ? bearerShape.exec(presented)?.[1] : undefined;
    if (bearer === undefined) throw invalidToken();
    return options.identify(bearer).then((identity) => {
      if (identity === null) throw invalidToken();
      exchange.identity = identity;
    });
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
    parsed.requestBody = received.json;
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
        params: {},
      };
      const replied = backend.handleRequest(request) as Promise<AnyReply>;
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
      // repeated on each operation; what a handler throws is part of its operation.
      if (!declared) return exchange.handled && status !== 500 ? `${operation.operationId} does not declare the status ${status}` : null;
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

function callOf(operationId: string, { exchange, parsed }: ContractRequest): object {
  const { params, query, headers, requestBody, raw } = parsed as ParsedRequest;
  const { host, origin } = exchange.headers;
  return {
    operationId,
    body: requestBody,
    path: params,
    query,
    headers,
    identity: exchange.identity,
    rawBody: raw,
    requestId: exchange.requestId,
    remoteAddress: exchange.remoteAddress,
    request: { host: host ?? '', origin, headers: exchange.headers },
    timing: (name: string, durationMs: number) => exchange.timing(name, durationMs),
    // Made when they are asked for: many handlers need neither.
    get signal() {
      return exchange.signal;
    },
    get log() {
      return exchange.log.child({ operationId });
    },
  };
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
        responses: Object.fromEntries(
          Object.entries(own.responses ?? {}).map(([status, response]) => [status, resolvePointer(document, response)]),
        ),
        facts: {
          operationId: own.operationId ?? '',
          maxBodyBytes: own['x-max-body-bytes'],
          body: body ? { required: body.required === true, mediaTypes: Object.keys(body.content ?? {}) } : null,
          passthrough: own['x-passthrough'] === true,
        },
        ignoresCredential: own['x-ignores-credential'] === true,
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

function schemesOf(security: Record<string, string[]>[] | undefined): string[] {
  return Array.isArray(security) ? security.flatMap((requirement) => Object.keys(requirement)) : [];
}

function refuseDisagreement(document: Any, operations: ContractOperation[], options: ContractOptions<{ kind: string }>): void {
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

/**
 * The steps of openapi-backend's `handleRequest`, in its order and with the handlers registered on it, without
 * the promises, copies and lodash chains between them: measured, 17 µs a request against 6. What is left out
 * are the hooks that nobody registers.
 */
class ContractBackend extends OpenAPIBackend {
  override async handleRequest(given: Any): Promise<Any> {
    const request = given as ContractRequest;
    const { handlers } = this;
    const context: Any = { api: this, request };
    const match = (this.router as unknown as ContractRouter).find(request);
    if (match === 'not_found') return handlers.notFound?.(context, request);
    if (match === 'method_not_allowed') return handlers.methodNotAllowed?.(context, request);
    context.operation = match;
    context.request = this.router.parseRequest(request as Any, match as Any);
    const identified = handlers.postRoutingHandler?.(context, request);
    if (identified !== undefined) await identified;
    const authorized = match.security.length === 0 || this.securityHandlers[listed]?.(context, request) === true;
    context.security = { authorized };
    if (!authorized) return handlers.unauthorizedHandler?.(context, request);
    const received = handlers.postSecurityHandler?.(context, request);
    if (received !== undefined) await received;
    context.validation = this.validator.validateRequest(request as Any, match as Any);
    if (!context.validation.valid) return handlers.validationFail?.(context, request);
    return (handlers[match.operationId] ?? handlers.notImplemented)?.(context, request);
  }
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

  /** The operation, or why there is none. Throws a Problem for a path that cannot be decoded. */
  find(request: ContractRequest): ContractOperation | 'not_found' | 'method_not_allowed' {
    const match = this.#routes.match(request.method, request.path);
    if (match.outcome === 'found') {
      request.params = match.params;
      return match.operation;
    }
    if (match.outcome === 'method_not_allowed') request.allow = match.allow;
    return match.outcome;
  }

  override matchOperation(request: Any): Any {
    const match = this.find(request);
    return typeof match === 'string' ? undefined : match;
  }

  // Once a request, whoever asks.
  override parseRequest(request: Any, operation?: Any): Any {
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
    else query[name] = value;
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
    const { params, query, headers, requestBody } = (request as ContractRequest).parsed as ParsedRequest;
    const values = { path: params, query, header: headers, requestBody };
    for (const validate of this.getRequestValidatorsForOperation(operation.operationId) ?? []) {
      if (!validate(values)) return { valid: false, errors: validate.errors };
    }
    return { valid: true, errors: null };
  }

  // Two functions at most: the parameters, and the body.
  override buildRequestValidatorsForOperation(operation: Any): ValidateFunction[] {
    const { facts } = operation as ContractOperation;
    const validators = [this.#parameters.compile(parameterSchema(operation))];
    const schema = operation.requestBody?.content?.['application/json']?.schema;
    if (facts.body && schema) {
      validators.push(this.#body.compile({ type: 'object', properties: { requestBody: rebase(schema) } }));
    }
    return validators;
  }

  explain(operation: ContractOperation, parsed: ParsedRequest, errors: SchemaError[]): Problem {
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
