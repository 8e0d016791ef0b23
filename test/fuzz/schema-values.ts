// Arbitrary values of a JSON Schema of the contract. They follow the keywords that the contract uses; the
// validator that filters the values afterwards checks other keywords, such as `not` or `dependentSchemas`.
import fc from 'fast-check';
import { asRecord, isRecord } from '../../src/kernel/json-value.ts';
import type { Json } from './mutations.ts';

export type Schema = Record<string, unknown>;
type Resolve = (schema: Schema) => Schema;

/** Deeper objects have only their required members, and deeper lists the minimum of items. */
const fullDepth = 3;
const greatestDepth = 12;

/** Only the values that pass; undefined when they are so rare that the search would take long. */
export function filterValues<Value>(
  values: fc.Arbitrary<Value>,
  passes: (value: Value) => boolean,
): fc.Arbitrary<Value> | undefined {
  const samples = fc.sample(values, { numRuns: 60, seed: 1 });
  return samples.filter(passes).length < 6 ? undefined : values.filter(passes);
}

export function valuesOf(schema: unknown, resolve: Resolve, depth = 0): fc.Arbitrary<Json> {
  if (!isRecord(schema) || depth > greatestDepth) return fc.constant(null);
  const target = resolve(schema);
  if ('const' in target) return fc.constant(target['const'] as Json);
  if (Array.isArray(target['enum'])) return fc.constantFrom(...(target['enum'] as Json[]));
  for (const word of ['oneOf', 'anyOf']) {
    const variants = target[word];
    if (!Array.isArray(variants) || variants.length === 0) continue;
    const { [word]: _union, discriminator: _tag, ...base } = target;
    // The first variant of a deep recursive schema is the simple one.
    const list = depth > fullDepth ? variants.slice(0, 1) : variants;
    return fc.oneof(
      ...list.map((variant) => valuesOf(mergeSchemas(base, resolve(variant as Schema)), resolve, depth + 1)),
    );
  }
  const types = [target['type'] ?? (isRecord(target['properties']) ? 'object' : 'any')].flat() as string[];
  return fc.oneof(...types.map((type) => valuesOfType(type, target, resolve, depth)));
}

/** Combines the members of both: a variant often only requires members that the union itself describes. */
function mergeSchemas(base: Schema, variant: Schema): Schema {
  if (Object.keys(base).every((name) => ['title', 'description'].includes(name))) return variant;
  const properties = { ...asRecord(base['properties']), ...asRecord(variant['properties']) };
  const required = [...listOf(base['required']), ...listOf(variant['required'])];
  return { ...base, ...variant, properties, required };
}

function valuesOfType(type: string, schema: Schema, resolve: Resolve, depth: number): fc.Arbitrary<Json> {
  switch (type) {
    case 'null':
      return fc.constant(null);
    case 'boolean':
      return fc.boolean();
    case 'integer':
      return integers(schema);
    case 'number':
      return fc.double({
        min: numberOf(schema['minimum'], -1e6),
        max: numberOf(schema['maximum'], 1e6),
        noNaN: true,
        noDefaultInfinity: true,
      });
    case 'string':
      return texts(schema);
    case 'array':
      return lists(schema, resolve, depth);
    case 'object':
      return objects(schema, resolve, depth);
    default:
      return fc.jsonValue({ maxDepth: 1 }) as fc.Arbitrary<Json>;
  }
}

function integers(schema: Schema): fc.Arbitrary<number> {
  const min = numberOf(schema['minimum'], -1_000_000);
  const max = Math.max(min, numberOf(schema['maximum'], Math.max(min, 1_000_000)));
  return fc.oneof(
    fc.constantFrom(min, max),
    fc.maxSafeInteger().map((value) => min + (Math.abs(value) % Math.max(1, Math.min(max - min, 1e9)))),
  );
}

function texts(schema: Schema): fc.Arbitrary<string> {
  const examples = [schema['example'], ...listOf(schema['examples'])].filter(
    (value) => typeof value === 'string',
  );
  const { pattern, format } = schema;
  const minLength = numberOf(schema['minLength'], 0);
  const maxLength = Math.min(numberOf(schema['maxLength'], minLength + 40), minLength + 200);
  const hasAllowedLength = (text: string) => [...text].length >= minLength && [...text].length <= maxLength;
  const describedValues = valuesOfFormat(format) ?? valuesOfPattern(pattern);
  if (describedValues !== undefined) {
    const fittingValues = filterValues(describedValues, hasAllowedLength);
    const exampleValues = examples.length > 0 ? fc.constantFrom(...(examples as string[])) : undefined;
    if (fittingValues === undefined) return exampleValues ?? fc.constant('a'.repeat(minLength));
    return exampleValues === undefined ? fittingValues : fc.oneof(fittingValues, exampleValues);
  }
  if (typeof schema['contentEncoding'] === 'string')
    return fc
      .uint8Array({ minLength: 1, maxLength: 60 })
      .map((bytes) => Buffer.from(bytes).toString('base64'));
  return fc.oneof(
    fc.string({ minLength, maxLength }),
    fc.string({ unit: fc.constantFrom('a', 'ß', '字', '😀', '\n', '"', ' '), minLength, maxLength }),
  );
}

function valuesOfFormat(format: unknown): fc.Arbitrary<string> | undefined {
  if (format === 'date-time')
    return fc
      .date({ min: new Date('2020-01-01'), max: new Date('2030-01-01'), noInvalidDate: true })
      .map((date) => date.toISOString());
  if (format === 'uri') return fc.webUrl();
  return undefined;
}

function valuesOfPattern(pattern: unknown): fc.Arbitrary<string> | undefined {
  if (typeof pattern !== 'string') return undefined;
  try {
    return fc.stringMatching(new RegExp(pattern));
  } catch {
    return undefined;
  }
}

function lists(schema: Schema, resolve: Resolve, depth: number): fc.Arbitrary<Json> {
  const minLength = numberOf(schema['minItems'], 0);
  const maxLength =
    depth > fullDepth ? minLength : Math.min(numberOf(schema['maxItems'], minLength + 3), minLength + 3);
  return fc.array(valuesOf(schema['items'] ?? {}, resolve, depth + 1), { minLength, maxLength });
}

function objects(schema: Schema, resolve: Resolve, depth: number): fc.Arbitrary<Json> {
  const properties = asRecord(schema['properties']);
  const required = listOf(schema['required']) as string[];
  const names = Object.keys(properties).filter((name) => required.includes(name) || depth <= fullDepth);
  const members = Object.fromEntries(
    names.map((name) => [name, valuesOf(properties[name], resolve, depth + 1)]),
  );
  return fc.record(members, {
    requiredKeys: required.filter((name) => names.includes(name)),
  }) as fc.Arbitrary<Json>;
}

function numberOf(value: unknown, fallback: number): number {
  return typeof value === 'number' ? value : fallback;
}

function listOf(value: unknown): unknown[] {
  return Array.isArray(value) ? value : [];
}
