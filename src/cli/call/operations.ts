// The operations of a server for `townhall call`, read from the bundled contract: their members,
// and where each belongs in the request.
import { readText, assetPath } from '../../kernel/assets.ts';
import { decodePointerName } from '../../kernel/json-pointer.ts';

export const surfaces = ['gateway', 'agent'] as const;
export type Surface = (typeof surfaces)[number];

export interface CallableOperation {
  operationId: string;
  method: string;
  /** The path, with `{name}` for each of its members. */
  path: string;
  summary: string;
  description: string;
  /**
   * The security schemes whose bearer tokens it accepts: `userToken`, `adminSession`, `machineCredential`,
   * `agentToken`; empty when anyone may call it.
   */
  credentials: readonly string[];
  members: readonly Member[];
  /** The media types of its binary responses, such as `audio/wav`. */
  binaryTypes: readonly string[];
  /** Media type of the body; undefined without one. */
  bodyType: string | undefined;
  /** True when the contract names no member of the body, since a project's own service defines them. */
  isBodyOpen: boolean;
}

/** A part of the request that is typed as `NAME=VALUE`. */
export interface Member {
  name: string;
  place: 'path' | 'query' | 'header' | 'body';
  isRequired: boolean;
  /** JSON Schema types; empty when the schema names none. */
  types: readonly string[];
  /** Whether it is a file, or a list of files, of a form. */
  isFile: boolean;
  description: string;
}

interface Schema {
  $ref?: string;
  type?: string | string[];
  format?: string;
  items?: Schema;
  const?: unknown;
  enum?: unknown[];
  description?: string;
  properties?: Record<string, Schema>;
  required?: string[];
  allOf?: Schema[];
  anyOf?: Schema[];
  oneOf?: Schema[];
}

interface Parameter {
  $ref?: string;
  name: string;
  in: 'path' | 'query' | 'header';
  required?: boolean;
  description?: string;
  schema?: Schema;
}

interface Operation {
  operationId: string;
  'x-alias-of'?: string;
  summary?: string;
  description?: string;
  security?: Record<string, unknown>[];
  parameters?: Parameter[];
  requestBody?: { $ref?: string; content?: Record<string, { schema?: Schema }> };
  responses?: Record<string, { $ref?: string; content?: Record<string, unknown> }>;
}

type Document = { paths: Record<string, Record<string, Operation> & { parameters?: Parameter[] }> };

const methods = ['get', 'post', 'put', 'patch', 'delete'];

type Resolve = <T extends { $ref?: string }>(node: T) => T;

/** Reads the operations in the order of the contract. */
export async function readOperations(surface: Surface): Promise<CallableOperation[]> {
  const document = JSON.parse(await readText(assetPath(`src/contract/${surface}/bundle.json`))) as Document;
  const resolve: Resolve = (node) =>
    node.$ref === undefined ? node : resolve(targetOf(document, node.$ref) as typeof node);
  return Object.entries(document.paths).flatMap(([path, pathItem]) =>
    methods.flatMap((method) => {
      const operation = pathItem[method];
      // An alias is the same operation at a path for other clients.
      return operation === undefined || operation['x-alias-of'] !== undefined
        ? []
        : [callableOperation({ path, method, operation, shared: pathItem.parameters ?? [] }, resolve)];
    }),
  );
}

function callableOperation(
  {
    path,
    method,
    operation,
    shared,
  }: { path: string; method: string; operation: Operation; shared: Parameter[] },
  resolve: Resolve,
): CallableOperation {
  const parameters = [...shared, ...(operation.parameters ?? [])].map(resolve);
  const content = Object.entries(
    operation.requestBody === undefined ? {} : (resolve(operation.requestBody).content ?? {}),
  );
  const [bodyType, body] = content.find(([type]) => type === 'application/json') ?? content[0] ?? [];
  const bodyFields = body?.schema === undefined ? [] : bodyMembers(body.schema, resolve);
  return {
    operationId: operation.operationId,
    method: method.toUpperCase(),
    path,
    summary: operation.summary ?? '',
    description: operation.description ?? '',
    credentials: credentialsOf(operation),
    members: [...parameters.map((parameter) => parameterMember(parameter, resolve)), ...bodyFields],
    binaryTypes: responseTypes(operation, resolve).filter((type) => !isText(type)),
    bodyType,
    isBodyOpen: bodyType !== undefined && bodyFields.length === 0,
  };
}

/** Empty when one of the alternative requirements is empty: the credential is optional then. */
function credentialsOf({ security = [] }: Operation): string[] {
  const requirements = security.map((requirement) => Object.keys(requirement));
  if (requirements.some((schemes) => schemes.length === 0)) return [];
  return requirements.flat().filter((scheme) => !keyHeaderSchemes.includes(scheme));
}

// Other headers for a user token, for clients of other APIs. The command sends a token as a bearer token
// only.
const keyHeaderSchemes = ['xApiKey', 'apiKey', 'xGoogApiKey'];

function parameterMember(
  { name, in: place, required, description, schema }: Parameter,
  resolve: Resolve,
): Member {
  return {
    name,
    place,
    isRequired: required === true,
    types: typesOf(schema ?? {}, resolve),
    isFile: false,
    description: description ?? '',
  };
}

/** Whether a response of the media type can be printed as text. */
export function isText(type: string): boolean {
  return type.startsWith('text/') || type === 'application/x-ndjson' || /[/+]json$/.test(type);
}

/** The media types of successful responses. */
function responseTypes({ responses = {} }: Operation, resolve: Resolve): string[] {
  const successes = Object.entries(responses).filter(([status]) => status.startsWith('2'));
  return [...new Set(successes.flatMap(([, response]) => Object.keys(resolve(response).content ?? {})))];
}

function targetOf(document: object, reference: string): unknown {
  return reference
    .slice(2)
    .split('/')
    .reduce<unknown>((node, name) => (node as Record<string, unknown>)[decodePointerName(name)], document);
}

// Members of all alternatives are accepted; a member is required only if every alternative
// requires it. The server validates the combination.
function bodyMembers(reference: Schema, resolve: Resolve): Member[] {
  const schema = resolve(reference);
  const ownMembers = Object.entries(schema.properties ?? {}).map(([name, property]): Member => ({
    name,
    place: 'body',
    isRequired: schema.required?.includes(name) ?? false,
    types: typesOf(property, resolve),
    isFile: (property.items ?? property).format === 'binary',
    description: property.description ?? resolve(property).description ?? '',
  }));
  const parts = (schema.allOf ?? []).flatMap((part) => bodyMembers(part, resolve));
  const alternatives = [...(schema.anyOf ?? []), ...(schema.oneOf ?? [])].map((alternative) =>
    bodyMembers(alternative, resolve),
  );
  const isRequired = (name: string): boolean =>
    alternatives.every((fields) => fields.some((member) => member.name === name && member.isRequired));
  const alternativeMembers = alternatives
    .flat()
    .map((member) => ({ ...member, isRequired: isRequired(member.name) }));
  // Among members of the same name the first wins: it is last in the reversed list, and the last entry
  // of a Map wins.
  const members = [...ownMembers, ...parts, ...alternativeMembers].toReversed();
  return [...new Map(members.map((member) => [member.name, member])).values()].reverse();
}

function typesOf(reference: Schema, resolve: Resolve): string[] {
  const schema = resolve(reference);
  if (schema.type !== undefined) return [schema.type].flat();
  const constants = schema.enum ?? (schema.const === undefined ? [] : [schema.const]);
  if (constants.length > 0)
    return [...new Set(constants.map((constant) => (constant === null ? 'null' : typeof constant)))];
  const branches = [...(schema.anyOf ?? []), ...(schema.oneOf ?? []), ...(schema.allOf ?? [])];
  return [...new Set(branches.flatMap((branch) => typesOf(branch, resolve)))];
}
