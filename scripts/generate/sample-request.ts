// Makes one request of an operation from the contract's examples. The samples in all three languages are
// rendered from it.

import { type Body, type Document, type PlacedOperation, isReference, resolve } from './document.ts';
import type { Surface } from './surfaces.ts';
import { type SampleChoice, choices } from './sample-choices.ts';

export type Json = string | number | boolean | null | Json[] | { [name: string]: Json };

export interface Parameter {
  name: string;
  in: string;
  required?: boolean;
  example?: Json;
  schema?: { enum?: Json[] };
}

export interface SampleRequest {
  id: string;
  surface: Surface;
  method: string;
  baseUrl: string;
  /** The path with values of its parameters, including the query. */
  target: string;
  /** The environment variable of the token; undefined when no credential is needed. */
  tokenVariable: string | undefined;
  pathMembers: Record<string, Json>;
  query: Record<string, Json>;
  headers: Record<string, string>;
  body: Json | undefined;
  answer: 'json' | 'events' | 'media' | 'nothing';
  choice: SampleChoice;
}

interface DescribedBody extends Omit<Body, 'content'> {
  content?: Record<
    string,
    { example?: Json; examples?: Record<string, { value: Json } | { $ref: string }> } & Record<
      string,
      unknown
    >
  >;
}

const tokenVariables: Readonly<Record<string, string>> = {
  user: 'TOWNHALL_TOKEN',
  admin: 'TOWNHALL_ADMIN_TOKEN',
  agent: 'TOWNHALL_AGENT_TOKEN',
};

/** Throws when a required parameter or the body has no example. */
export function sampleRequest(
  document: Document,
  surface: Surface,
  endpoint: PlacedOperation,
): SampleRequest {
  const { id, method, operation } = endpoint;
  const choice = choiceOf(surface, id);
  const valuesIn = (place: string) => parameterValues(document, endpoint, { choice, place });
  const [pathMembers, query, headers] = [valuesIn('path'), valuesIn('query'), valuesIn('header')];
  const samplePathText = samplePath(document, surface, endpoint);
  const search = new URLSearchParams(
    Object.entries(query).map(([name, value]): [string, string] => [name, textOf(value)]),
  ).toString();
  return {
    id,
    surface,
    method: method.toUpperCase(),
    baseUrl: (document as { servers?: { url: string }[] }).servers?.[0]?.url ?? '',
    target: search === '' ? samplePathText : `${samplePathText}?${search}`,
    tokenVariable: tokenVariableOf(operation.security, surface),
    pathMembers,
    query,
    headers: Object.fromEntries(Object.entries(headers).map(([name, value]) => [name, textOf(value)])),
    body: bodyOf(document, endpoint),
    answer: answerOf(document, endpoint),
    choice,
  };
}

/** The path with the values of its parameters. */
export function samplePath(document: Document, surface: Surface, endpoint: PlacedOperation): string {
  const choice = choiceOf(surface, endpoint.id);
  const values = parameterValues(document, endpoint, { choice, place: 'path' });
  return endpoint.path.replaceAll(/\{([^}]+)\}/g, (_whole, name: string) =>
    encodeURIComponent(textOf(values[name] ?? null)),
  );
}

function choiceOf({ name }: Surface, id: string): SampleChoice {
  return choices[`${name.replace('-classic', '')}/${id}`] ?? {};
}

function parameterValues(
  document: Document,
  { id, operation }: PlacedOperation,
  { choice, place }: { choice: SampleChoice; place: string },
): Record<string, Json> {
  const parameters = (operation.parameters ?? [])
    .map((parameter) => resolve(document, parameter) as Parameter)
    .filter(({ name, required }) => required === true || choice.parameters?.includes(name));
  return Object.fromEntries(
    parameters
      .filter((parameter) => parameter.in === place)
      .map((parameter) => [parameter.name, valueOf(parameter, choice, id)]),
  );
}

/** The value as text, for an address or a header. */
function textOf(value: Json): string {
  return typeof value === 'string' ? value : JSON.stringify(value);
}

function valueOf(parameter: Parameter, choice: SampleChoice, id: string): Json {
  const value = choice.values?.[parameter.name] ?? parameter.example ?? parameter.schema?.enum?.[0];
  if (value === undefined)
    throw new Error(`${id}: the parameter "${parameter.name}" has no example for its sample`);
  return value;
}

function tokenVariableOf(
  security: Record<string, string[]>[] | undefined,
  surface: Surface,
): string | undefined {
  const identities = (security ?? [])
    .flatMap((requirement) => Object.keys(requirement))
    .map((scheme) => surface.identities[scheme] ?? 'user');
  const [firstIdentity] = identities;
  if (firstIdentity === undefined) return undefined;
  return tokenVariables[identities.includes('user') ? 'user' : firstIdentity] ?? tokenVariables['user'];
}

function bodyOf(document: Document, { id, operation }: PlacedOperation): Json | undefined {
  if (operation.requestBody === undefined) return undefined;
  const body = resolve<DescribedBody>(document, operation.requestBody as DescribedBody);
  const media = body.content?.['application/json'];
  const [firstExample] = Object.values(media?.examples ?? {});
  const example =
    media?.example ??
    (firstExample === undefined
      ? undefined
      : resolve<{ value: Json }>(document, firstExample as { value: Json }).value);
  if (example === undefined && body.required === true)
    throw new Error(`${id}: the body has no example of application/json for its sample`);
  return example;
}

function answerOf(document: Document, { operation }: PlacedOperation): SampleRequest['answer'] {
  const [, success] =
    Object.entries(operation.responses ?? {}).find(([status]) => status.startsWith('2')) ?? [];
  if (success === undefined) return 'nothing';
  const response = isReference(success) ? resolve<Body>(document, success) : success;
  const [mediaType] = Object.keys(response.content ?? {});
  if (mediaType === undefined) return 'nothing';
  if (mediaType === 'text/event-stream') return 'events';
  return mediaType === 'application/json' ? 'json' : 'media';
}
