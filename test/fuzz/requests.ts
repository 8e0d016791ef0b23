// Arbitrary requests of an operation: valid requests as the document describes them, and
// invalid requests that differ from a valid request in a single part.
import fc from 'fast-check';
import type { FuzzedDocument, FuzzedOperation, Parameter } from './document.ts';
import { type Json, mutationsOf } from './mutations.ts';
import { filterValues, valuesOf } from './schema-values.ts';

export interface FuzzedRequest {
  method: string;
  /** Includes the query. */
  target: string;
  headers: Record<string, string>;
  body: string | undefined;
  /** The change that makes the request invalid; null for a valid request. */
  fault: string | null;
}

type Values = Record<string, Json>;

/** Undefined for an operation whose body is not JSON. */
export function validRequests(
  document: FuzzedDocument,
  operation: FuzzedOperation,
): fc.Arbitrary<FuzzedRequest> | undefined {
  if (operation.body !== undefined && operation.body.content['application/json'] === undefined)
    return undefined;
  return fc
    .tuple(
      parameterValues(document, operation, 'path'),
      parameterValues(document, operation, 'query'),
      parameterValues(document, operation, 'header'),
      validBodies(document, operation),
      fc.constantFrom('application/json', 'application/json; charset=utf-8', 'Application/JSON'),
    )
    .map(([path, query, headers, body, mediaType]) =>
      build(operation, { path, query, headers, body, mediaType }),
    );
}

/** Undefined for an operation without any constraint in its document. */
export function invalidRequests(
  document: FuzzedDocument,
  operation: FuzzedOperation,
): fc.Arbitrary<FuzzedRequest> | undefined {
  const validArbitrary = validRequests(document, operation);
  if (validArbitrary === undefined) return undefined;
  const queries = operation.parameters.filter((parameter) => parameter.in === 'query');
  const wrongRequests = [
    ...wrongBodies(document, operation, validArbitrary),
    ...(operation.toleratesQuery ? [] : [withUndeclaredQuery(validArbitrary)]),
    ...queries.flatMap((parameter) => wrongQueries(document, validArbitrary, parameter)),
  ];
  return wrongRequests.length === 0 ? undefined : fc.oneof(...wrongRequests);
}

function wrongBodies(
  document: FuzzedDocument,
  operation: FuzzedOperation,
  valid: fc.Arbitrary<FuzzedRequest>,
): fc.Arbitrary<FuzzedRequest>[] {
  const { schema } = operation.body?.content['application/json'] ?? {};
  if (schema === undefined) return [];
  const invalidBodies = filterValues(
    validBodies(document, operation).chain((body) => mutationsOf(body ?? {})),
    (value) => document.check(schema, JSON.parse(JSON.stringify(value ?? null))) !== null,
  );
  const wrongTexts = fc.constantFrom('{', '', 'null', '{"a":1,"a":2}', '[1', '"text"', '\u00ff');
  return [
    ...(invalidBodies === undefined
      ? []
      : [
          fc
            .tuple(valid, invalidBodies)
            .map(([request, body]) =>
              withBody(request, JSON.stringify(body), 'a body that does not match its schema'),
            ),
        ]),
    fc
      .tuple(valid, wrongTexts)
      .filter(([, text]) => text !== '' || operation.body?.required === true)
      .map(([request, text]) => withBody(request, text, 'a body that is malformed or of another type')),
    valid
      .filter(({ body }) => body !== undefined)
      .map((request) => ({
        ...request,
        headers: { ...request.headers, 'content-type': 'application/x-unknown' },
        fault: 'an unknown media type',
      })),
  ];
}

function withUndeclaredQuery(valid: fc.Arbitrary<FuzzedRequest>): fc.Arbitrary<FuzzedRequest> {
  return valid.map((request) => ({
    ...request,
    target: `${request.target}${request.target.includes('?') ? '&' : '?'}undeclared_member=1`,
    fault: 'an undeclared query parameter',
  }));
}

function wrongQueries(
  document: FuzzedDocument,
  valid: fc.Arbitrary<FuzzedRequest>,
  { name, schema, required }: Parameter,
): fc.Arbitrary<FuzzedRequest>[] {
  const removeParameter = ({ target }: FuzzedRequest) => {
    const [path = '', search = ''] = target.split('?');
    const query = new URLSearchParams(search);
    query.delete(name);
    return { path, query };
  };
  // A string that the server may convert to a number, a boolean or a list must be wrong in each reading.
  const wrongTexts = filterValues(
    fc.oneof(fc.string(), fc.constantFrom('', '-1', '1.5', '1e999', 'null', '%', '{}')),
    (text) => schema !== undefined && readings(text).every((value) => document.check(schema, value) !== null),
  );
  const replacements =
    wrongTexts === undefined
      ? []
      : [
          fc.tuple(valid, wrongTexts).map(([request, text]) => {
            const { path, query } = removeParameter(request);
            query.set(name, text);
            return { ...request, target: `${path}?${query}`, fault: `the query parameter ${name}` };
          }),
        ];
  if (required !== true) return replacements;
  const withoutParameter = valid.map((request) => {
    const { path, query } = removeParameter(request);
    return {
      ...request,
      target: query.size > 0 ? `${path}?${query}` : path,
      fault: `no ${name} in the query`,
    };
  });
  return [...replacements, withoutParameter];
}

/** The values that a string in a query may represent, lists included. */
function readings(text: string): unknown[] {
  const values: unknown[] = [text, [text], text.split(',')];
  if (text === 'true' || text === 'false') values.push(text === 'true');
  if (text.trim() !== '' && Number.isFinite(Number(text))) values.push(Number(text));
  if (text === '' || text === 'null') values.push(null);
  return values;
}

/** Whether a URL or a header can carry the value; fetch and URL reject or change other values. */
function fitsIn(location: Parameter['in'], value: Json): boolean {
  if (location === 'header') return /^[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?$/.test(textOf(value));
  if (location !== 'path') return true;
  // A path with other characters is rejected before the caller is identified.
  return /^[^\p{Cc}\s/\\]+$/u.test(textOf(value)) && !['.', '..'].includes(textOf(value));
}

function parameterValues(
  document: FuzzedDocument,
  operation: FuzzedOperation,
  location: Parameter['in'],
): fc.Arbitrary<Values> {
  const parameters = operation.parameters.filter((parameter) => parameter.in === location);
  const values = parameters.map(({ name, schema = {}, example }) => {
    const generatedValue = filterValues(
      valuesOf(schema, document.resolve),
      (value) => document.check(schema, value) === null && fitsIn(location, value),
    );
    // Twice, since an example reaches more code than most generated values.
    const exampleValue = example === undefined ? undefined : fc.constant(example);
    const arbitraries = [generatedValue, exampleValue, exampleValue].filter(
      (arbitrary) => arbitrary !== undefined,
    );
    if (arbitraries.length === 0)
      throw new Error(`${operation.id}: no valid value can be generated for ${name}`);
    return [name, fc.oneof(...arbitraries)] as const;
  });
  return fc.record(Object.fromEntries(values), {
    requiredKeys: parameters.filter(({ required }) => required === true).map(({ name }) => name),
  }) as fc.Arbitrary<Values>;
}

function validBodies(document: FuzzedDocument, operation: FuzzedOperation): fc.Arbitrary<Json | undefined> {
  const media = operation.body?.content['application/json'];
  if (media?.schema === undefined) return fc.constant(undefined);
  const { schema } = media;
  const isValid = (value: Json) => document.check(schema, value) === null;
  const examples = [media.example, ...Object.values(media.examples ?? {}).map(({ value }) => value)]
    .filter((value): value is Json => value !== undefined)
    .filter(isValid);
  const generatedBodies = filterValues(valuesOf(schema, document.resolve), isValid);
  const exampleBodies = examples.length === 0 ? undefined : fc.constantFrom(...examples);
  // Most arbitrary requests fail early; the example with some changed members reaches more code.
  const mixedBodies =
    exampleBodies === undefined || generatedBodies === undefined
      ? undefined
      : filterValues(
          fc
            .tuple(exampleBodies, generatedBodies, fc.array(fc.boolean(), { minLength: 40, maxLength: 40 }))
            .map(([example, source, picks]) => mixMembers(example, source, picks)),
          isValid,
        );
  const all = [exampleBodies, generatedBodies, mixedBodies].filter((arbitrary) => arbitrary !== undefined);
  if (all.length === 0) throw new Error(`${operation.id}: no valid body can be generated`);
  return fc.oneof(...(all as fc.Arbitrary<Json | undefined>[]));
}

function mixMembers(example: Json, source: Json, picks: readonly boolean[]): Json {
  if (!isObject(example) || !isObject(source)) return example;
  const members = Object.entries(source).filter((_entry, index) => picks[index % picks.length]);
  return { ...example, ...Object.fromEntries(members) };
}

function isObject(value: Json): value is { [name: string]: Json } {
  return value !== null && typeof value === 'object' && !Array.isArray(value);
}

interface Parts {
  path: Values;
  query: Values;
  headers: Values;
  body: Json | undefined;
  mediaType: string;
}

function build(operation: FuzzedOperation, { path, query, headers, body, mediaType }: Parts): FuzzedRequest {
  const filledPath = operation.path.replaceAll(/\{([^}]+)\}/g, (_whole, name: string) =>
    encodeURIComponent(textOf(path[name] ?? 'x')),
  );
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query))
    search.append(name, Array.isArray(value) ? value.map(textOf).join(',') : textOf(value));
  return {
    method: operation.method,
    target: search.size > 0 ? `${filledPath}?${search}` : filledPath,
    headers: {
      ...Object.fromEntries(Object.entries(headers).map(([name, value]) => [name, textOf(value)])),
      ...(body === undefined ? {} : { 'content-type': mediaType }),
    },
    body: body === undefined ? undefined : JSON.stringify(body),
    fault: null,
  };
}

function withBody(request: FuzzedRequest, body: string, fault: string): FuzzedRequest {
  return { ...request, body, headers: { ...request.headers, 'content-type': 'application/json' }, fault };
}

function textOf(value: Json): string {
  return typeof value === 'string' ? value : JSON.stringify(value);
}
