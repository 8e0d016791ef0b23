// The operations of the contract, read once at start into the form for matching,
// validation and handling. An ambiguous or incomplete document prevents the start.
import { type Document, OpenAPIRouter } from 'openapi-backend';
import { type ErrorDialect, errorDialects } from '../error-dialects.ts';
import {
  type MediaTypeObject,
  type OpenApiDocument,
  type OperationObject,
  type ParameterObject,
  resolveReference,
  type ResponseObject,
  type SecurityScheme,
} from './document.ts';
import { createSnakeCaseReader } from './snake-case.ts';

export interface QueryParameter {
  isList: boolean;
  isCommaSeparated: boolean;
  isInteger: boolean;
}

/** One operation of the contract. */
export interface ContractOperation {
  operationId: string;
  /**
   * The id of the operation whose handler serves this one: the target of an alias, or the operation itself.
   */
  handlerId: string;
  /** The HTTP method in lower case. */
  method: string;
  path: string;
  /** Anyone may call it, with or without a credential. */
  isPublic: boolean;
  /** The identity kinds that may call it with a bearer token. */
  admits: ReadonlySet<string>;
  /**
   * Further headers that may carry a token, by name in lower case, each with the identity kinds
   * that it admits.
   */
  keyHeaders: ReadonlyMap<string, ReadonlySet<string>>;
  parameters: ParameterObject[];
  queryParameters: ReadonlyMap<string, QueryParameter>;
  /** The names of the declared header parameters, in lower case. */
  headerNames: string[];
  /** Undeclared query parameters are passed on (`x-tolerates-query`). */
  allowsAnyQuery: boolean;
  /** Null when the operation has no body. */
  body: OperationBody | null;
  maxBodyBytes: number | undefined;
  /** The whole body must arrive within this time. */
  bodyDeadlineMs: number | undefined;
  /** The handler receives the bytes unparsed, to check their signature first. */
  rawBody: boolean;
  responses: Record<string, ResponseObject>;
  /** Any status and media type of an upstream may be passed on. */
  passthrough: boolean;
  /** The response holds a secret, which is shown once. */
  hasSecretResponse: boolean;
  /** The name of the operation's own rate limit (`x-rate-limit`). */
  rateLimit: string | undefined;
  /** The error dialect of the operation (`x-error-types`); undefined for ours. */
  errorDialect: ErrorDialect | undefined;
  /** The dialect applies only to requests with this header (`x-error-types-header`). */
  errorDialectHeader: string | undefined;
  /** The allowed codes of its errors (`x-error-codes`); undefined when the document lists none. */
  errorCodes: ReadonlySet<string> | undefined;
  /** The response does not depend on a credential, and the request is not counted. */
  ignoresCredential: boolean;
  /** The headers of a deprecated operation; undefined for all others. */
  deprecationHeaders: { deprecation: string; sunset: string } | undefined;
}

export interface OperationBody {
  required: boolean;
  mediaTypes: readonly string[];
  json: MediaTypeObject | undefined;
  form: MediaTypeObject | undefined;
  /** The members of the form that are files. */
  formFiles: ReadonlySet<string>;
  /** Renames members in snake case, where the operation takes both spellings (`x-snake-case-members`). */
  readSnakeCase: ((value: unknown) => unknown) | undefined;
}

/** The media type of a form that may carry files. */
export const formType = 'multipart/form-data';

export function readOperations(
  document: OpenApiDocument,
  identities: Record<string, string>,
): ContractOperation[] {
  // openapi-backend flattens paths and methods and merges the parameters of a path into its operations.
  const operations = new OpenAPIRouter({ definition: document as Document }).getOperations();
  return operations.map(({ path, method, ...operation }) =>
    readOperation(document, identities, { path, method, operation: operation as unknown as OperationObject }),
  );
}

function readOperation(
  document: OpenApiDocument,
  identities: Record<string, string>,
  { path, method, operation }: { path: string; method: string; operation: OperationObject },
): ContractOperation {
  // Not openapi-backend's `security`, which falls back to the document's default and then to no security.
  const security = document.paths?.[path]?.[method]?.security ?? [];
  const parameters = (operation.parameters ?? []).map((parameter) => resolveReference(document, parameter));
  return {
    operationId: operation.operationId ?? '',
    handlerId: (operation['x-alias-of'] as string | undefined) ?? operation.operationId ?? '',
    method,
    path,
    // An empty requirement beside others makes the credential optional, which admits anyone.
    isPublic: security.length === 0 || security.some((requirement) => Object.keys(requirement).length === 0),
    ...readSchemes(document, security, identities),
    parameters,
    queryParameters: readQueryParameters(document, parameters),
    headerNames: parameters
      .filter((parameter) => parameter.in === 'header')
      .map((parameter) => parameter.name.toLowerCase())
      // OpenAPI describes these three elsewhere: by media types and security schemes.
      .filter((name) => !['accept', 'content-type', 'authorization'].includes(name)),
    allowsAnyQuery: operation['x-tolerates-query'] === true,
    body: readBody(document, operation),
    maxBodyBytes: operation['x-max-body-bytes'] as number | undefined,
    bodyDeadlineMs: operation['x-body-deadline-ms'] as number | undefined,
    rawBody: operation['x-raw-body'] === true,
    responses: Object.fromEntries(
      Object.entries(operation.responses ?? {}).map(([status, response]) => [
        status,
        resolveReference(document, response),
      ]),
    ),
    passthrough: operation['x-passthrough'] === true,
    hasSecretResponse: operation['x-secret-response'] === true,
    rateLimit: operation['x-rate-limit'] as string | undefined,
    errorDialect: operation['x-error-types'] as ErrorDialect | undefined,
    errorDialectHeader: operation['x-error-types-header'] as string | undefined,
    errorCodes: readErrorCodes(operation['x-error-codes'] as string[] | undefined),
    ignoresCredential: operation['x-ignores-credential'] === true,
    deprecationHeaders: operation['deprecated'] === true ? deprecationHeaders(operation) : undefined,
  };
}

/**
 * RFC 9745 writes `Deprecation` as an `@` and Unix seconds; RFC 8594 writes `Sunset` as an HTTP
 * date. Throws unless both days are declared.
 */
function deprecationHeaders(operation: OperationObject): { deprecation: string; sunset: string } {
  const [deprecatedSince, sunset] = [operation['x-deprecated-since'], operation['x-sunset']].map((day) =>
    typeof day === 'string' ? new Date(day) : new Date(Number.NaN),
  ) as [Date, Date];
  if (Number.isNaN(deprecatedSince.getTime()) || Number.isNaN(sunset.getTime()))
    throw new Error(
      `${operation.operationId ?? ''} is deprecated; declare the days x-deprecated-since and x-sunset.`,
    );
  return { deprecation: `@${deprecatedSince.getTime() / 1000}`, sunset: sunset.toUTCString() };
}

function readErrorCodes(codes: string[] | undefined): ReadonlySet<string> | undefined {
  return codes && new Set(codes);
}

/** The identity kind for each place of a credential: `Authorization`, and the headers of `apiKey` schemes. */
function readSchemes(
  document: OpenApiDocument,
  security: Record<string, string[]>[],
  identities: Record<string, string>,
): Pick<ContractOperation, 'admits' | 'keyHeaders'> {
  const admits = new Set<string>();
  const keyHeaders = new Map<string, Set<string>>();
  for (const name of schemesOf(security)) {
    const scheme = document.components?.securitySchemes?.[name];
    const kind = identities[name] ?? '';
    if (scheme?.type !== 'apiKey') {
      admits.add(kind);
      continue;
    }
    const header = (scheme.name ?? '').toLowerCase();
    keyHeaders.set(header, (keyHeaders.get(header) ?? new Set()).add(kind));
  }
  return { admits, keyHeaders };
}

function schemesOf(security: Record<string, string[]>[]): string[] {
  return security.flatMap((requirement) => Object.keys(requirement));
}

function readQueryParameters(
  document: OpenApiDocument,
  parameters: ParameterObject[],
): ContractOperation['queryParameters'] {
  return new Map(
    parameters
      .filter((parameter) => parameter.in === 'query')
      .map((parameter) => {
        const { type } = resolveReference(document, parameter.schema ?? {});
        const isList = [type].flat().includes('array');
        const isCommaSeparated = isList && parameter.explode === false;
        return [parameter.name, { isList, isCommaSeparated, isInteger: type === 'integer' }];
      }),
  );
}

function readBody(document: OpenApiDocument, operation: OperationObject): OperationBody | null {
  if (!operation.requestBody) return null;
  const { required = false, content = {} } = resolveReference(document, operation.requestBody);
  const form = content[formType];
  return {
    required,
    mediaTypes: Object.keys(content),
    json: content['application/json'],
    form,
    formFiles: formFilesOf(document, form?.schema),
    readSnakeCase:
      operation['x-snake-case-members'] === true
        ? createSnakeCaseReader(document, content['application/json']?.schema ?? {})
        : undefined,
  };
}

function formFilesOf(document: OpenApiDocument, schema: object | undefined): ReadonlySet<string> {
  const { properties = {} } = resolveReference<{ properties?: Record<string, object> }>(
    document,
    schema ?? {},
  );
  const isFile = (member: object): boolean => {
    const { format, items } = resolveReference<{ format?: string; items?: object }>(document, member);
    return format === 'binary' || (items !== undefined && isFile(items));
  };
  return new Set(Object.keys(properties).filter((name) => isFile(properties[name] ?? {})));
}

/** Throws an error that names every inconsistency when the document and the handlers do not agree. */
export function requireConsistency(
  document: OpenApiDocument,
  operations: ContractOperation[],
  { handlers, identities }: { handlers: object; identities: Record<string, string> },
): void {
  const declaredSchemes = document.components?.securitySchemes ?? {};
  const securityOf = ({ path, method }: ContractOperation) => document.paths?.[path]?.[method]?.security;
  const usedSchemes = operations.flatMap((operation) => schemesOf(securityOf(operation) ?? []));
  const schemes = new Set([...Object.keys(declaredSchemes), ...usedSchemes]);
  const errors = [
    ...Object.entries(declaredSchemes).flatMap(([name, scheme]) => keyPlacementErrors(name, scheme)),
    ...operations.flatMap((operation) => [
      ...operationErrors(operation, securityOf(operation)),
      ...missingHandlerErrors(operation, handlers),
    ]),
    ...repeatedIds(operations).map((operationId) => `${operationId} is the id of two operations`),
    ...unusedHandlers(handlers, operations).map((name) => `the handler ${name} has no operation`),
    ...[...schemes].flatMap((scheme) => schemeErrors(scheme, declaredSchemes, identities)),
  ];
  if (errors.length > 0) throw new Error(`The contract cannot be served: ${errors.join('; ')}.`);
}

function keyPlacementErrors(name: string, { type, in: place }: SecurityScheme): string[] {
  if (type !== 'apiKey' || place === 'header') return [];
  return [`the security scheme ${name} must take its key in a header`];
}

function missingHandlerErrors({ operationId, handlerId }: ContractOperation, handlers: object): string[] {
  if (operationId === '' || Object.hasOwn(handlers, handlerId)) return [];
  return [`${operationId} has no handler`];
}

function repeatedIds(operations: readonly ContractOperation[]): string[] {
  const ids = operations.map(({ operationId }) => operationId);
  return ids.filter((operationId, index) => operationId !== '' && ids.indexOf(operationId) < index);
}

function unusedHandlers(handlers: object, operations: readonly ContractOperation[]): string[] {
  const operationIds = new Set(operations.map(({ operationId }) => operationId));
  return Object.keys(handlers).filter((operationId) => !operationIds.has(operationId));
}

function schemeErrors(
  scheme: string,
  declaredSchemes: Record<string, SecurityScheme>,
  identities: Record<string, string>,
): string[] {
  if (!Object.hasOwn(identities, scheme))
    return [`the security scheme ${scheme} is not mapped to an identity`];
  return declaredSchemes[scheme] ? [] : [`the security scheme ${scheme} is not declared`];
}

function operationErrors(
  { operationId, method, path, errorDialect }: ContractOperation,
  security: Record<string, string[]>[] | undefined,
): string[] {
  const name = operationId === '' ? `${method.toUpperCase()} ${path}` : operationId;
  const errors: string[] = [];
  if (operationId === '') errors.push(`${name} has no operationId`);
  if (!Array.isArray(security)) errors.push(`${name} has no security of its own`);
  else if (security.some((requirement) => Object.keys(requirement).length > 1))
    errors.push(`${name} requires two credentials at once`);
  if (errorDialect !== undefined && !errorDialects.includes(errorDialect))
    errors.push(`${name} has unknown error types`);
  return errors;
}

/** The declared response of a status: by its number, its class (`4XX`) or `default`. */
export function declaredResponse(operation: ContractOperation, status: number): ResponseObject | undefined {
  return (
    operation.responses[String(status)] ??
    operation.responses[`${Math.floor(status / 100)}XX`] ??
    operation.responses['default']
  );
}
