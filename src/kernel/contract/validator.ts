// Holds requests, and in tests replies, against the schemas of the contract. It stands in for openapi-backend's own
// validator, which copies every schema and follows recursive ones without end.
import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js';
import addFormats from 'ajv-formats';
import { OpenAPIValidator, type OpenAPIRouter } from 'openapi-backend';
import { Problem } from '../problem.ts';
import type { AnyReply } from './exchange.ts';
import { invalidRequestProblem, type SchemaError, type SchemaTools } from './validation-errors.ts';
import {
  type ContractOperation,
  declaredResponse,
  formType,
  type Parameter,
  resolvePointer,
} from './operations.ts';
import type { ContractRequest, ParsedRequest } from './request.ts';
import { useQuickLengths } from './text-length.ts';

// The libraries' own types are `any` at their seams, and so is a document that was read; what is read out of it has types.
type Any = any;

// Where the document lives for ajv, so that its `$ref`s are compiled once and shared by all operations.
const documentKey = 'contract.json';
// Explaining every fault costs more than finding the first; beyond this size the first has to do.
const explainedBodyBytes = 16 * 1024;

export class ContractValidator extends OpenAPIValidator {
  readonly #document: Any;
  readonly #body: Ajv2020;
  readonly #parameters: Ajv2020;
  #thorough: Ajv2020 | undefined;
  readonly #thoroughChecks = new WeakMap<object, ValidateFunction>();
  readonly #replyChecks = new Map<string, ValidateFunction | null>();
  readonly #tools: SchemaTools;

  constructor(document: Any, router: OpenAPIRouter) {
    super({ definition: document, router, lazyCompileValidators: true });
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
    const { params, query, headers, requestBody, isForm } = (request as ContractRequest)
      .parsed as ParsedRequest;
    const values = {
      path: params,
      query,
      header: headers,
      ...(isForm ? { requestForm: writtenForm(operation, requestBody) } : { requestBody }),
    };
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
    if (parsed.isForm)
      return invalidRequestProblem(
        errors.map((error) => ({
          ...error,
          instancePath: error.instancePath.replace(/^\/requestForm/, '/requestBody'),
        })),
        this.#tools,
      );
    const inBody = errors.some((error) => error.instancePath.startsWith('/requestBody'));
    const schema = operation.requestBody?.content?.['application/json']?.schema;
    if (!inBody || parsed.raw.byteLength > explainedBodyBytes)
      return invalidRequestProblem(errors, this.#tools);
    const all = this.#thoroughErrors(schema, parsed.requestBody);
    return invalidRequestProblem(
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
      if (!declared.content?.[mediaType])
        refuse(`${operation.operationId} does not declare ${mediaType} for ${reply.status}`);
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
      throw new Problem('bad_request', 'invalid_request', `The member \`${name}\` ${message}.`, {
        param: name,
        details: [{ path: name, message }],
      });
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

function engine(document: Any, options: { coerceTypes?: boolean; allErrors?: boolean }): Ajv2020 {
  // Not strict: a contract has keywords that are for readers. Verbose: errors carry what faults.ts explains
  // them by. The discriminator keyword stays off, as ajv refuses its mapping; `oneOf` with `const` says it too.
  const ajv = new Ajv2020({ strict: false, verbose: true, logger: false, ...options });
  addFormats.default(ajv);
  useQuickLengths(ajv);
  const { validate } = ajv.formats['date-time'] as { validate: (text: string) => boolean };
  ajv.addFormat('date-time', (text) => validate(text) && isKeepable(new Date(text)));
  // Its JSON Schema parts are valid by the lint of the contract; the whole is not a schema.
  return ajv.addSchema(document, documentKey, false, false);
}

// A leap second is no Date, and years of less or more than four digits are written otherwise by it than PostgreSQL reads.
function isKeepable(time: Date): boolean {
  const year = time.getUTCFullYear();
  return year >= 1_000 && year <= 9_999;
}

function parameterSchema(operation: ContractOperation): object {
  const place = (where: string, open: boolean) => {
    const own = operation.parameters.filter((parameter) => parameter.in === where);
    const nameOf = (parameter: Parameter) =>
      where === 'header' ? parameter.name.toLowerCase() : parameter.name;
    const listed = own.filter(
      (parameter) => where !== 'header' || operation.headerNames.includes(nameOf(parameter)),
    );
    return {
      type: 'object',
      additionalProperties: open,
      properties: Object.fromEntries(
        listed.map((parameter) => [nameOf(parameter), rebase(parameter.schema ?? {})]),
      ),
      required: listed.filter((parameter) => parameter.required).map(nameOf),
    };
  };
  return {
    type: 'object',
    properties: {
      path: place('path', false),
      query: place('query', operation.toleratesQuery),
      header: place('header', true),
    },
  };
}

// A schema that leaves the document takes the address of the document along in its references.
function rebase(schema: unknown): Any {
  if (Array.isArray(schema)) return schema.map(rebase);
  if (typeof schema !== 'object' || schema === null) return schema;
  return Object.fromEntries(
    Object.entries(schema).map(([name, value]) =>
      name === '$ref' && typeof value === 'string' && value.startsWith('#')
        ? [name, documentKey + value]
        : [name, rebase(value)],
    ),
  );
}
