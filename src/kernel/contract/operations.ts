// The operations as the document has them, read once at start, in the form in which requests are matched with them.
// What the document leaves open or says twice stops the start.
import { errorDialects } from '../error-dialects.ts';
import type { OperationFacts } from './exchange.ts';

// The libraries' own types are `any` at their seams, and so is a document that was read; what is read out of it has types.
type Any = any;

export interface Parameter {
  name: string;
  in: string;
  required?: boolean;
  explode?: boolean;
  schema?: unknown;
  'x-spans-slashes'?: boolean;
}

export interface ContractOperation {
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

/** The media type of a form that may carry files. */
export const formType = 'multipart/form-data';

// The pipeline runs a chain of promises for each scheme of an operation. All of ours come down to one
// question, so the operations are handed to it with this one requirement in place of theirs.
export const listed = 'an identity that the operation lists';
const methods = ['get', 'put', 'post', 'delete', 'options', 'head', 'patch', 'trace'];

export function readOperations(document: Any, identities: Record<string, string>): ContractOperation[] {
  const operations: ContractOperation[] = [];
  for (const [path, item] of Object.entries<Any>(document.paths ?? {})) {
    for (const method of methods) {
      const own = item[method];
      if (!own) continue;
      const body = own.requestBody ? resolvePointer(document, own.requestBody) : undefined;
      const parameters = [...(own.parameters ?? []), ...(item.parameters ?? [])].map((parameter) =>
        resolvePointer(document, parameter),
      );
      operations.push({
        operationId: own.operationId ?? '',
        method,
        path,
        declaredSecurity: own.security,
        // An empty requirement among others admits anyone just as an empty list does.
        security:
          schemesOf(own.security).length === 0 ||
          own.security.some((one: object) => Object.keys(one).length === 0)
            ? []
            : [{ [listed]: [] }],
        admits: new Set(schemesOf(own.security).map((scheme) => identities[scheme] ?? '')),
        parameters,
        requestBody: body,
        formFiles: formFilesOf(document, body?.content?.[formType]?.schema),
        responses: Object.fromEntries(
          Object.entries(own.responses ?? {}).map(([status, response]) => [
            status,
            resolvePointer(document, response),
          ]),
        ),
        facts: {
          operationId: own.operationId ?? '',
          maxBodyBytes: own['x-max-body-bytes'],
          body: body
            ? { required: body.required === true, mediaTypes: Object.keys(body.content ?? {}) }
            : null,
          passthrough: own['x-passthrough'] === true,
          rawBody: own['x-raw-body'] === true,
          bodyDeadlineMs: own['x-body-deadline-ms'],
          rateLimit: own['x-rate-limit'],
          errorDialect: own['x-error-types'],
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
  return new Set(
    members
      .filter(([, member]) => resolvePointer(document, member).format === 'binary')
      .map(([name]) => name),
  );
}

function schemesOf(security: Record<string, string[]>[] | undefined): string[] {
  return Array.isArray(security) ? security.flatMap((requirement) => Object.keys(requirement)) : [];
}

/** Throws, naming all faults, when the document and the handlers do not agree. */
export function refuseDisagreement(
  document: Any,
  operations: ContractOperation[],
  options: { handlers: object; identities: Record<string, string> },
): void {
  const faults: string[] = [];
  const seen = new Set<string>();
  const used = new Set(Object.keys(document.components?.securitySchemes ?? {}));
  for (const { operationId, method, path, declaredSecurity, facts } of operations) {
    const name = operationId === '' ? `${method.toUpperCase()} ${path}` : operationId;
    if (operationId === '') faults.push(`${name} has no operationId`);
    else if (seen.has(operationId)) faults.push(`${name} is the id of two operations`);
    seen.add(operationId);
    if (!Array.isArray(declaredSecurity)) faults.push(`${name} has no security of its own`);
    for (const scheme of schemesOf(declaredSecurity)) used.add(scheme);
    if (declaredSecurity?.some?.((requirement) => Object.keys(requirement).length > 1)) {
      faults.push(`${name} asks for two credentials at once`);
    }
    if (facts.errorDialect !== undefined && !errorDialects.includes(facts.errorDialect))
      faults.push(`${name} has unknown error types`);
    if (operationId !== '' && !Object.hasOwn(options.handlers, operationId))
      faults.push(`${name} has no handler`);
  }
  for (const operationId of Object.keys(options.handlers)) {
    if (!seen.has(operationId)) faults.push(`the handler ${operationId} has no operation`);
  }
  for (const scheme of used) {
    if (!Object.hasOwn(options.identities, scheme))
      faults.push(`the security scheme ${scheme} is not mapped to an identity`);
    else if (!document.components?.securitySchemes?.[scheme])
      faults.push(`the security scheme ${scheme} is not declared`);
  }
  if (faults.length > 0) throw new Error(`The contract cannot be served: ${faults.join('; ')}.`);
}

/** What a `$ref` leads to; anything else is itself. */
export function resolvePointer(document: Any, schema: Any): Any {
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

/** What the operation says of a status, by its number, its class or its default. */
export function declaredResponse(operation: ContractOperation, status: number): Any {
  return (
    operation.responses[String(status)] ??
    operation.responses[`${Math.floor(status / 100)}XX`] ??
    operation.responses.default
  );
}
