// The operations of a surface as its contract has them, for calling them by name: what each takes and where it goes.
// The bundled document is the only source, so that an operation is on the command line from the moment it is written.
import { readText, assetPath } from '../../kernel/assets.ts';

export const surfaces = ['gateway', 'agent'] as const;
export type Surface = (typeof surfaces)[number];

export interface CallableOperation {
  operationId: string;
  method: string;
  /** With `{name}` where a member of the path stands. */
  path: string;
  summary: string;
  description: string;
  /** Who may call it: `userToken`, `adminSession`, `agentToken`; none for whoever likes. */
  credentials: readonly string[];
  members: readonly Member[];
  /** The media types of its answers that are no text, such as `audio/wav`. */
  binaryTypes: readonly string[];
  /** The media type of its body, undefined without one. */
  bodyType: string | undefined;
  /** Its body is whatever a project's own service takes, so the contract names no member. */
  isBodyOpen: boolean;
}

/** What can be said as `NAME=VALUE`. */
export interface Member {
  name: string;
  place: 'path' | 'query' | 'header' | 'body';
  isRequired: boolean;
  /** As JSON Schema has them; empty where the schema says none, or several that depend on each other. */
  types: readonly string[];
  description: string;
}

interface Schema {
  $ref?: string;
  type?: string | string[];
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
  summary?: string;
  description?: string;
  security?: Record<string, unknown>[];
  parameters?: Parameter[];
  requestBody?: { $ref?: string; content?: Record<string, { schema?: Schema }> };
  responses?: Record<string, { $ref?: string; content?: Record<string, unknown> }>;
}

type Document = { paths: Record<string, Record<string, Operation> & { parameters?: Parameter[] }> };

const methods = ['get', 'post', 'put', 'patch', 'delete'];

/** In the order of the contract. */
export async function readOperations(surface: Surface): Promise<CallableOperation[]> {
  const document = JSON.parse(await readText(assetPath(`src/contract/${surface}/bundle.json`))) as Document;
  const follow = <T extends { $ref?: string }>(value: T): T =>
    value.$ref === undefined ? value : follow(targetOf(document, value.$ref) as T);
  return Object.entries(document.paths).flatMap(([path, item]) =>
    methods.flatMap((method): CallableOperation[] => {
      const operation = item[method];
      if (operation === undefined) return [];
      const parameters = [...(item.parameters ?? []), ...(operation.parameters ?? [])].map(follow);
      const content = Object.entries(
        operation.requestBody === undefined ? {} : (follow(operation.requestBody).content ?? {}),
      );
      const [bodyType, body] = content.find(([type]) => type === 'application/json') ?? content[0] ?? [];
      const said = body?.schema === undefined ? [] : bodyMembers(body.schema, follow);
      return [
        {
          operationId: operation.operationId,
          method: method.toUpperCase(),
          path,
          summary: operation.summary ?? '',
          description: operation.description ?? '',
          credentials: (operation.security ?? []).flatMap((one) => Object.keys(one)),
          members: [
            ...parameters.map(({ name, in: place, required, description, schema }) => ({
              name,
              place,
              isRequired: required === true,
              types: typesOf(schema ?? {}, follow),
              description: description ?? '',
            })),
            ...said,
          ],
          binaryTypes: answerTypes(operation, follow).filter((type) => !isText(type)),
          bodyType,
          isBodyOpen: bodyType !== undefined && said.length === 0,
        },
      ];
    }),
  );
}

/** Whether an answer of the media type can be printed as text. */
export function isText(type: string): boolean {
  return type.startsWith('text/') || type === 'application/x-ndjson' || /[/+]json$/.test(type);
}

/** The media types of the answers of a call that succeeds. */
function answerTypes(
  { responses = {} }: Operation,
  follow: <T extends { $ref?: string }>(value: T) => T,
): string[] {
  const answers = Object.entries(responses).filter(([status]) => status.startsWith('2'));
  return [...new Set(answers.flatMap(([, response]) => Object.keys(follow(response).content ?? {})))];
}

function targetOf(document: object, reference: string): unknown {
  return reference
    .slice(2)
    .split('/')
    .reduce<unknown>(
      (at, name) => (at as Record<string, unknown>)[name.replaceAll('~1', '/').replaceAll('~0', '~')],
      document,
    );
}

// Of alternatives every member can be said, and none is required that one of them can do without; the server knows the rest.
function bodyMembers(given: Schema, follow: (schema: Schema) => Schema): Member[] {
  const schema = follow(given);
  const own = Object.entries(schema.properties ?? {}).map(([name, property]): Member => ({
    name,
    place: 'body',
    isRequired: schema.required?.includes(name) ?? false,
    types: typesOf(property, follow),
    description: property.description ?? follow(property).description ?? '',
  }));
  const alternatives = [...(schema.anyOf ?? []), ...(schema.oneOf ?? [])]
    .flatMap((one) => bodyMembers(one, follow))
    .map((member) => ({ ...member, isRequired: false }));
  const all = [...own, ...(schema.allOf ?? []).flatMap((one) => bodyMembers(one, follow)), ...alternatives];
  return [...new Map(all.toReversed().map((member) => [member.name, member])).values()].reverse();
}

function typesOf(given: Schema, follow: (schema: Schema) => Schema): string[] {
  const schema = follow(given);
  if (schema.type !== undefined) return [schema.type].flat();
  const values = schema.enum ?? (schema.const === undefined ? [] : [schema.const]);
  if (values.length > 0) return [...new Set(values.map((value) => (value === null ? 'null' : typeof value)))];
  return [
    ...new Set(
      [...(schema.anyOf ?? []), ...(schema.oneOf ?? []), ...(schema.allOf ?? [])].flatMap((one) =>
        typesOf(one, follow),
      ),
    ),
  ];
}
