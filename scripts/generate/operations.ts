// Writes the `Operations` map of a document: operationId to the types of its call, its identities
// and its replies. The types of schemas come from hey-api; this file assigns them to operations.

import {
  type Body,
  type Document,
  type PlacedOperation,
  type Schema,
  isReference,
  operationsOf,
  resolve,
} from './document.ts';
import { type Surface, guest } from './surfaces.ts';

const header = `// Generated from openapi/ by scripts/generate.ts; change the contract instead.
`;

const helpers = {
  LowerCaseKeys: `/** Header names in lower case, as Node provides them. */
type LowerCaseKeys<T> = { [K in keyof T as Lowercase<K & string>]: T[K] };
`,
  Multipart: `/** A file of a multipart body, as the server has read it. */
export interface UploadedFile {
  fileName: string;
  mediaType: string;
  content: Uint8Array;
}

/** A multipart body with its files read. */
type Multipart<T, Files> = {
  [K in keyof T]: K extends Files
    ? (NonNullable<T[K]> extends readonly unknown[] ? UploadedFile[] : UploadedFile)
    : T[K];
};
`,
};

/**
 * The text of operations.gen.ts. Throws when the contract cannot be expressed as types of handlers.
 */
export function writeOperations(document: Document, surface: Surface): string {
  const imports = new Set<string>();
  const entries = operationsOf(document).map((operation) =>
    writeEntry(document, surface, operation, imports),
  );
  const body = entries.join('');
  const usedHelpers = Object.entries(helpers).filter(([name]) => body.includes(`${name}<`));
  const names = [...imports].sort();
  return [
    header,
    names.length > 0
      ? `import type {\n${names.map((name) => `  ${name},\n`).join('')}} from './types.gen.ts';\n\n`
      : '\n',
    usedHelpers.map(([, text]) => `${text}\n`).join(''),
    `/** Every operation of the ${surface.title.replace('Townhall ', '')} by its operationId. */\n`,
    `export interface Operations {\n${body}}\n`,
    writeScopes(document),
  ].join('');
}

/** The operations that each scope of a security scheme allows; empty for a document without scopes. */
function writeScopes(document: Document): string {
  const scopes = new Map<string, string[]>();
  for (const { id, operation } of operationsOf(document)) {
    for (const scope of new Set((operation.security ?? []).flatMap((entry) => Object.values(entry).flat())))
      scopes.set(scope, [...(scopes.get(scope) ?? []), id]);
  }
  if (scopes.size === 0) return '';
  const lines = [...scopes].map(([scope, ids]) => `  ${quote(scope)}: [${ids.map(quote).join(', ')}],\n`);
  return `
/** The operations that a credential may call for each of its scopes. */
export const scopeOperations = {
${lines.sort().join('')}} as const;
`;
}

/** hey-api's name for the types of an operation: `ai.generateText` has `AiGenerateTextData` and so on. */
export function typeStem(operationId: string): string {
  return operationId
    .split('.')
    .map((part) => part.charAt(0).toUpperCase() + part.slice(1))
    .join('');
}

function writeEntry(
  document: Document,
  surface: Surface,
  { method, path, id, operation }: PlacedOperation,
  imports: Set<string>,
): string {
  const operationLabel = `${method.toUpperCase()} ${path} (${id})`;
  const stem = typeStem(id);
  const data = `${stem}Data`;
  const locations = new Set((operation.parameters ?? []).map((parameter) => resolve(document, parameter).in));
  const use = (name: string): string => {
    imports.add(name);
    return name;
  };
  const parameters = (location: 'path' | 'query') =>
    locations.has(location) ? `NonNullable<${use(data)}['${location}']>` : '{}';
  const context: Context = { document, operationLabel, stem, use };
  const summary = (operation.summary ?? id).replaceAll('*/', '* /');
  const { requestBody } = operation;
  const body = requestBody === undefined ? undefined : resolve(document, requestBody);
  return `  /** ${summary}: \`${method.toUpperCase()} ${path}\` */
  '${id}': {
    body: ${requestType(context, body)};
    path: ${parameters('path')};
    query: ${parameters('query')};
    headers: ${locations.has('header') ? `LowerCaseKeys<NonNullable<${use(data)}['headers']>>` : '{}'};
    identity: ${identityType(surface, operationLabel, operation.security)};
    reply: ${replyType(context, operation.responses ?? {})};
    passthrough: ${operation['x-passthrough'] === true};
  };
`;
}

interface Context {
  document: Document;
  /** The operation in errors, such as `POST /x (id)`. */
  operationLabel: string;
  stem: string;
  /** Imports a type of types.gen.ts and returns its name. */
  use: (name: string) => string;
}

function identityType(
  surface: Surface,
  operationLabel: string,
  security: Record<string, string[]>[] | undefined,
): string {
  if (security === undefined) throw new Error(`${operationLabel} has no security of its own`);
  const allKinds = [guest, ...Object.values(surface.identities)];
  const kinds =
    security.length === 0
      ? allKinds
      : security.flatMap((requirement) => {
          const schemes = Object.keys(requirement);
          if (schemes.length === 0) return [guest];
          return schemes.map((scheme) => {
            const kind = surface.identities[scheme];
            if (kind === undefined)
              throw new Error(
                `${operationLabel} names the security scheme ${scheme}, ` +
                  `which proves no identity of ${surface.name}`,
              );
            return kind;
          });
        });
  return [...new Set(kinds)].map(quote).join(' | ');
}

function requestType(context: Context, body: Body | undefined): string {
  if (body === undefined) return 'undefined';
  const media = Object.entries(body.content ?? {});
  if (media.length === 0)
    throw new Error(`${context.operationLabel} has a request body without a media type`);
  const types = media.map(([mediaType, { schema }]) => {
    const typeName =
      namedSchema(schema) ??
      (media.length === 1 ? `NonNullable<${context.use(`${context.stem}Data`)}['body']>` : undefined);
    if (isJson(mediaType) || mediaType === 'multipart/form-data') {
      if (typeName === undefined || schema === undefined)
        throw new Error(needsName(context.operationLabel, `the request body of ${mediaType}`));
      if (namedSchema(schema) !== undefined) context.use(typeName);
      if (isJson(mediaType)) return typeName;
      const files = fileMembers(context.document, schema).map(quote);
      return `Multipart<${typeName}, ${files.join(' | ') || 'never'}>`;
    }
    return mediaType.startsWith('text/') ? 'string' : 'Uint8Array';
  });
  return [...new Set([...types, ...(body.required === true ? [] : ['undefined'])])].join(' | ');
}

function replyType(context: Context, responses: Record<string, Body | { $ref: string }>): string {
  const replies = Object.entries(responses).flatMap(([status, reference]) => {
    if (!/^[1-5]\d\d$/.test(status))
      throw new Error(`${context.operationLabel} answers "${status}"; name each status by its number`);
    return repliesOf(
      context,
      status,
      Object.entries(resolve<Body>(context.document, reference).content ?? {}),
    );
  });
  if (replies.length === 0)
    throw new Error(`${context.operationLabel} has no reply that a handler could give`);
  return [...new Set(replies)].join(' | ');
}

// Handlers throw problems instead of returning them; a page that reports a failure is a reply.
function repliesOf(
  context: Context,
  status: string,
  media: [string, { schema?: Schema | { $ref: string } }][],
): string[] {
  const isFailure = Number(status) >= 400;
  if (media.length === 0) return isFailure ? [] : [`{ status: ${status} }`];
  return media.flatMap(([mediaType, { schema }]) => {
    const isEvents = mediaType === 'text/event-stream';
    if (!isJson(mediaType) && !isEvents)
      return [`{ status: ${status}; media: ${mediaTypePattern(mediaType)} }`];
    if (isFailure) return [];
    const typeName = namedSchema(schema);
    if (typeName === undefined && (media.length > 1 || schema === undefined))
      throw new Error(needsName(context.operationLabel, `the ${mediaType} of status ${status}`));
    const type =
      typeName === undefined
        ? `${context.use(`${context.stem}Responses`)}[${status}]`
        : context.use(typeName);
    return [`{ status: ${status}; ${isEvents ? 'events' : 'json'}: ${type} }`];
  });
}

function needsName(operationLabel: string, part: string): string {
  return `${operationLabel}: ${part} needs a schema in a file of its own, which names the generated type`;
}

function namedSchema(schema: Schema | { $ref: string } | undefined): string | undefined {
  return isReference(schema) ? /^#\/components\/schemas\/(\w+)$/.exec(schema.$ref)?.[1] : undefined;
}

function fileMembers(document: Document, schema: Schema | { $ref: string }): string[] {
  return Object.entries(resolve<Schema>(document, schema).properties ?? {})
    .filter(([, member]) => {
      const memberSchema = resolve<Schema>(document, member);
      const item =
        memberSchema.items === undefined ? memberSchema : resolve<Schema>(document, memberSchema.items);
      return item.format === 'binary' || item.contentMediaType === 'application/octet-stream';
    })
    .map(([name]) => name);
}

function isJson(mediaType: string): boolean {
  return /^application\/(?:[\w.-]+\+)?json(?:;|$)/.test(mediaType);
}

function mediaTypePattern(mediaType: string): string {
  if (!mediaType.includes('*')) return quote(mediaType);
  return mediaType === '*/*' ? 'string' : `\`${mediaType.replace('*', '${string}')}\``;
}

function quote(text: string): string {
  return `'${text}'`;
}
