// Measures the documentation in an OpenAPI document: descriptions, error codes,
// discriminators, headers, samples.
import { isRecord } from '../../src/kernel/json-value.ts';

type Json = Record<string, unknown>;

/** A count and its total. */
export interface Share {
  count: number;
  of: number;
}

export interface Measures {
  /** Operations with a description beyond their summary. */
  describedOperations: Share;
  /** Members of schemas with a description, their own or that of the schema they refer to. */
  describedMembers: Share;
  /** Operations that list their error codes. */
  operationsWithCodes: Share;
  /** Operations that declare an error with a body. */
  operationsWithErrors: Share;
  /** Unions of objects with a discriminator. */
  discriminatedUnions: Share;
  /** Operations that declare a response header. */
  operationsWithHeaders: Share;
  /** Operations with a sample in at least one language. */
  operationsWithSamples: Share;
}

const methods = ['get', 'put', 'post', 'delete', 'patch', 'head', 'options'];
const sampleKeys = ['x-codeSamples', 'x-code-samples', 'x-fern-examples', 'x-readme'];

export function measureDocument(document: Json): Measures {
  const follow = createResolver(document);
  const operations = operationsOf(document);
  const share = (test: (operation: Json) => boolean): Share => ({
    count: operations.filter(test).length,
    of: operations.length,
  });
  const responsesOf = ({ responses }: Json) =>
    Object.entries(isRecord(responses) ? responses : {}).map(([status, value]) => ({
      status,
      response: follow(value),
    }));
  const errorSchemas = (operation: Json) =>
    responsesOf(operation)
      .filter(({ status }) => /^[45]|default/.test(status))
      .flatMap(({ response }) => Object.values(recordAt(response, 'content')))
      .flatMap((media) => (isRecord(media) && isRecord(media['schema']) ? [media['schema']] : []));
  return {
    describedOperations: share(
      ({ summary, description }) => isText(description) && description.trim() !== summary,
    ),
    describedMembers: measureMembers(document, follow),
    operationsWithCodes: share(
      (operation) =>
        (Array.isArray(operation['x-error-codes']) && operation['x-error-codes'].length > 0) ||
        errorSchemas(operation).some((schema) => hasCodeValues(schema, follow)),
    ),
    operationsWithErrors: share((operation) => errorSchemas(operation).length > 0),
    discriminatedUnions: measureUnions(document, follow),
    operationsWithHeaders: share((operation) =>
      responsesOf(operation).some(({ response }) => Object.keys(recordAt(response, 'headers')).length > 0),
    ),
    operationsWithSamples: share(hasSample),
  };
}

function operationsOf({ paths }: Json): Json[] {
  return Object.values(isRecord(paths) ? paths : {}).flatMap((item) =>
    isRecord(item) ? methods.flatMap((method) => (isRecord(item[method]) ? [item[method]] : [])) : [],
  );
}

type Follow = (value: unknown) => Json;

/** Resolves references into the document; a dangling reference gives an empty object. */
function createResolver(document: Json): Follow {
  return (value) => {
    let current = value;
    for (let depth = 0; depth < 16 && isRecord(current) && typeof current['$ref'] === 'string'; depth += 1) {
      current = current['$ref']
        .replace(/^#\//, '')
        .split('/')
        .map((part) => decodeURIComponent(part).replaceAll('~1', '/').replaceAll('~0', '~'))
        .reduce<unknown>((place, part) => (isRecord(place) ? place[part] : undefined), document);
    }
    return isRecord(current) ? current : {};
  };
}

function measureMembers(document: Json, follow: Follow): Share {
  const share = { count: 0, of: 0 };
  for (const { properties } of schemasOf(document)) {
    if (!isRecord(properties)) continue;
    for (const member of Object.values(properties)) {
      if (!isRecord(member) || hasOneValue(member)) continue;
      share.of += 1;
      if (isText(member['description']) || isDescribedByReference(member, follow)) share.count += 1;
    }
  }
  return share;
}

/**
 * Whether the schema has only one value, such as the discriminator of a union's member. Such a member needs
 * no description.
 */
function hasOneValue({ const: value, enum: values }: Json): boolean {
  return value !== undefined || (Array.isArray(values) && values.length === 1);
}

function isDescribedByReference(member: Json, follow: Follow): boolean {
  const variants = [member, ...['allOf', 'anyOf', 'oneOf'].flatMap((word) => listAt(member, word))];
  return variants.some(
    (variant) => typeof variant['$ref'] === 'string' && isText(follow(variant)['description']),
  );
}

function measureUnions(document: Json, follow: Follow): Share {
  const unions = [...schemasOf(document)].filter((schema) => {
    const variants = [...listAt(schema, 'oneOf'), ...listAt(schema, 'anyOf')].map(follow);
    return variants.filter((variant) => isRecord(variant['properties'])).length > 1;
  });
  return { count: unions.filter((schema) => isRecord(schema['discriminator'])).length, of: unions.length };
}

/** Every object of the document that describes a value's shape. Examples contain data, not schemas. */
function* schemasOf(document: Json): Generator<Json> {
  const unvisitedValues: unknown[] = [document['paths'], document['components'], document['webhooks']];
  while (unvisitedValues.length > 0) {
    const value = unvisitedValues.pop();
    if (Array.isArray(value)) unvisitedValues.push(...(value as unknown[]));
    if (!isRecord(value)) continue;
    if (isRecord(value['properties']) || Array.isArray(value['oneOf']) || Array.isArray(value['anyOf']))
      yield value;
    for (const [name, member] of Object.entries(value))
      if (!['example', 'examples', 'x-codeSamples', 'x-oaiMeta', 'default', 'enum'].includes(name))
        unvisitedValues.push(member);
  }
}

/** Whether the error's schema lists the values of a member `code`. */
function hasCodeValues(schema: Json, follow: Follow, depth = 0): boolean {
  const target = follow(schema);
  if (depth > 6) return false;
  const members = recordAt(target, 'properties');
  const code = follow(members['code']);
  if (Array.isArray(code['enum']) || code['const'] !== undefined) return true;
  const nestedSchemas = [
    ...(isRecord(members['error']) ? [members['error']] : []),
    ...['allOf', 'anyOf', 'oneOf'].flatMap((word) => listAt(target, word)),
  ];
  return nestedSchemas.some((member) => hasCodeValues(member, follow, depth + 1));
}

function hasSample(operation: Json): boolean {
  const { examples } = recordAt(operation, 'x-oaiMeta');
  return (
    sampleKeys.some((key) => operation[key] !== undefined) ||
    (Array.isArray(examples) ? examples.length > 0 : isRecord(examples) || isText(examples))
  );
}

function recordAt(value: Json, name: string): Json {
  const member = value[name];
  return isRecord(member) ? member : {};
}

function listAt(value: Json, name: string): Json[] {
  const member = value[name];
  return Array.isArray(member) ? member.filter(isRecord) : [];
}

function isText(value: unknown): value is string {
  return typeof value === 'string' && value.trim() !== '';
}
