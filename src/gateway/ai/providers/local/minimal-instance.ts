// The smallest value that a JSON Schema allows, as the well-formed answer of `local/echo`. The
// schema comes from the caller, and a few bytes of it can require a value that fills the heap,
// so all values, schema members read and output bytes count against one budget per call.
import { decodePointerName } from '../../../../kernel/json-pointer.ts';
import { isRecord } from '../../../../kernel/json-value.ts';
import { decodePercent } from '../../../../kernel/percent-encoding.ts';
import { unsupportedMember } from '../../hub/problems.ts';

type Schema = Readonly<Record<string, unknown>>;

// Recursive schemas are followed to this depth; below it, values are null.
const maxDepth = 16;
/** Values built and schema members read per call. Ten thousand take a few milliseconds. */
export const maxSteps = 10_000;
/** Approximate size of the value as JSON. */
export const maxBytes = 64 * 1024;

/** The remaining budget of one call. */
export interface InstanceBudget {
  steps: number;
  bytes: number;
  /** The schema's path in the request, for the error. */
  param: string;
}

export function createBudget(param: string): InstanceBudget {
  return { steps: maxSteps, bytes: maxBytes, param };
}

/**
 * A small value for the schema: only required members, the shortest lists, the simplest
 * of several choices. Throws a 422 that names `param` when the value exceeds the budget.
 */
export function minimalInstance(schema: unknown, budget: InstanceBudget = createBudget('schema')): unknown {
  return buildInstance(schema, { root: isRecord(schema) ? schema : {}, depth: 0, budget });
}

interface Context {
  root: Schema;
  depth: number;
  budget: InstanceBudget;
}

function buildInstance(schema: unknown, context: Context): unknown {
  const { root, budget } = context;
  spend(budget, { steps: 1, bytes: 4 });
  if (!isRecord(schema) || context.depth > maxDepth) return null;
  const nestedContext = { root, budget, depth: context.depth + 1 };
  if (typeof schema.$ref === 'string')
    return buildInstance(resolve(root, schema.$ref, budget), nestedContext);
  if ('const' in schema) return charge(schema.const, budget);
  if ('default' in schema) return charge(schema.default, budget);
  if (Array.isArray(schema.enum)) return charge(schema.enum[0], budget);
  const parts = [
    ...asList(schema.allOf).map((part) => followReference(part, context)),
    ...[schema.anyOf, schema.oneOf]
      .map(asList)
      .filter((options) => options.length > 0)
      .map((options) => selectSimplest(options, context)),
  ];
  if (parts.length > 0)
    return buildInstance(
      merge([omit(schema, ['allOf', 'anyOf', 'oneOf'], budget), ...parts], budget),
      nestedContext,
    );
  const type: unknown = Array.isArray(schema.type) ? schema.type[0] : (schema.type ?? guessType(schema));
  switch (type) {
    case 'object':
      return objectOf(schema, nestedContext);
    case 'array':
      return arrayOf(schema, nestedContext);
    case 'string':
      return stringOf(schema, budget);
    case 'integer':
    case 'number':
      return numberOf(schema, type);
    case 'boolean':
      return true;
    default:
      return null;
  }
}

function spend(budget: InstanceBudget, { steps = 0, bytes = 0 }: { steps?: number; bytes?: number }): void {
  budget.steps -= steps;
  budget.bytes -= bytes;
  if (budget.steps >= 0 && budget.bytes >= 0) return;
  throw unsupportedMember(
    budget.param,
    `The smallest value that ${budget.param} allows is too large for this model: it builds up to ` +
      `${maxBytes / 1024} KiB, reading up to ${maxSteps} values and schema members.`,
  );
}

/**
 * Returns a value from the schema, and charges its size to the budget, since it is serialized wherever the
 * schema repeats it.
 */
function charge(value: unknown, budget: InstanceBudget): unknown {
  const pendingParts = [value];
  while (pendingParts.length > 0) {
    const part = pendingParts.pop();
    spend(budget, { steps: 1, bytes: typeof part === 'string' ? Buffer.byteLength(part) + 2 : 4 });
    if (Array.isArray(part)) {
      // Charge before copying the items.
      spend(budget, { steps: part.length, bytes: part.length });
      pendingParts.push(...asList(part));
    } else if (isRecord(part)) {
      const names = Object.keys(part);
      spend(budget, { steps: names.length });
      for (const name of names) {
        spend(budget, { bytes: Buffer.byteLength(name) + 4 });
        pendingParts.push(part[name]);
      }
    }
  }
  return value;
}

function objectOf(schema: Schema, context: Context): Record<string, unknown> {
  const properties = isRecord(schema.properties) ? schema.properties : {};
  const members: [string, unknown][] = [];
  for (const name of asList(schema.required)) {
    spend(context.budget, { steps: 1 });
    if (typeof name !== 'string') continue;
    spend(context.budget, { bytes: Buffer.byteLength(name) + 4 });
    members.push([name, buildInstance(Object.hasOwn(properties, name) ? properties[name] : {}, context)]);
  }
  return Object.fromEntries(members);
}

function arrayOf(schema: Schema, context: Context): unknown[] {
  const prefixItems = asList(schema.prefixItems);
  const length = count(schema.minItems);
  // Charge before allocating the list.
  spend(context.budget, { steps: length, bytes: length });
  return Array.from({ length }, (_, index) =>
    buildInstance(prefixItems[index] ?? schema.items ?? {}, context),
  );
}

const formats: Record<string, string> = {
  date: '2026-01-01',
  'date-time': '2026-01-01T00:00:00Z',
  time: '00:00:00Z',
  email: 'someone@example.com',
  uri: 'https://example.com/',
  url: 'https://example.com/',
  uuid: '00000000-0000-4000-8000-000000000000',
  hostname: 'example.com',
  ipv4: '192.0.2.1',
  ipv6: '2001:db8::1',
};

function stringOf(schema: Schema, budget: InstanceBudget): string {
  const { format } = schema;
  const text = typeof format === 'string' && Object.hasOwn(formats, format) ? (formats[format] ?? '') : '';
  const length = Math.max(count(schema.minLength), text.length);
  spend(budget, { bytes: length });
  return text.padEnd(length, 'x');
}

/**
 * Zero if it is allowed, else the multiple of the step that is nearest to it. Between bounds without
 * a whole number it is their middle.
 */
function numberOf(schema: Schema, type: string): number {
  const { minimum, exclusiveMinimum, maximum, exclusiveMaximum, multipleOf } = schema;
  const lowest = Math.max(...[minimum, exclusiveMinimum].filter(isNumber));
  const highest = Math.min(...[maximum, exclusiveMaximum].filter(isNumber));
  const isAllowed = (value: number) =>
    value >= lowest && value <= highest && value !== exclusiveMinimum && value !== exclusiveMaximum;
  if (isAllowed(0)) return 0;
  const step = isNumber(multipleOf) && multipleOf > 0 ? multipleOf : 1;
  const sign = lowest >= 0 ? 1 : -1;
  const boundSteps = (sign === 1 ? lowest : -highest) / step;
  // The second multiple is for an exclusive bound, which rules out the first.
  const multiples = [Math.ceil(boundSteps), Math.floor(boundSteps) + 1].map((steps) => sign * steps * step);
  const takesMiddle = type === 'number' && multipleOf === undefined && Number.isFinite(lowest + highest);
  return multiples.find(isAllowed) ?? (takesMiddle ? (lowest + highest) / 2 : 0);
}

function isNumber(value: unknown): value is number {
  return typeof value === 'number';
}

/** The first option that is not an object or a list, or else the first. */
function selectSimplest(options: readonly unknown[], context: Context): Schema {
  let firstSchema: Schema | undefined;
  for (const option of options) {
    spend(context.budget, { steps: 1 });
    const schema = followReference(option, context);
    if (!isRecord(schema)) continue;
    if (schema.type !== 'object' && schema.type !== 'array') return schema;
    firstSchema ??= schema;
  }
  return firstSchema ?? {};
}

/** Merges the schemas: a later member replaces an earlier one, but required names and properties add up. */
function merge(schemas: readonly unknown[], budget: InstanceBudget): Schema {
  const mergedSchema: Record<string, unknown> = {};
  const required: unknown[] = [];
  const properties: Record<string, unknown> = {};
  for (const schema of schemas) {
    spend(budget, { steps: 1 });
    if (!isRecord(schema)) continue;
    Object.assign(mergedSchema, chargeMembers(schema, budget));
    for (const name of asList(schema.required)) {
      spend(budget, { steps: 1 });
      required.push(name);
    }
    if (isRecord(schema.properties)) Object.assign(properties, chargeMembers(schema.properties, budget));
  }
  return {
    ...mergedSchema,
    ...(required.length > 0 ? { required } : {}),
    ...(Object.keys(properties).length > 0 ? { properties } : {}),
  };
}

/** Returns the schema, and charges its members to the budget, since the caller copies them. */
function chargeMembers(schema: Schema, budget: InstanceBudget): Schema {
  spend(budget, { steps: 1 + Object.keys(schema).length });
  return schema;
}

/** The target of the schema's `$ref`, or the schema itself when it has none. */
function followReference(schema: unknown, { root, budget }: Context): unknown {
  return isRecord(schema) && typeof schema.$ref === 'string' ? resolve(root, schema.$ref, budget) : schema;
}

/** The target of a JSON Pointer within the document; an empty schema for a dangling one. */
function resolve(root: Schema, pointer: string, budget: InstanceBudget): unknown {
  if (!pointer.startsWith('#')) return {};
  spend(budget, { steps: 1 + Math.ceil(pointer.length / 64) });
  let value: unknown = root;
  for (const segment of pointer.slice(1).split('/').slice(1)) {
    const name = decodePointerName(decodePercent(segment));
    const container = isRecord(value) || Array.isArray(value) ? (value as Record<string, unknown>) : {};
    value = Object.hasOwn(container, name) ? container[name] : undefined;
    if (value === undefined) return {};
  }
  return value;
}

function guessType(schema: Schema): string {
  if ('properties' in schema || 'required' in schema) return 'object';
  return 'items' in schema || 'minItems' in schema ? 'array' : 'null';
}

function omit(schema: Schema, names: readonly string[], budget: InstanceBudget): Schema {
  return Object.fromEntries(
    Object.entries(chargeMembers(schema, budget)).filter(([name]) => !names.includes(name)),
  );
}

function asList(value: unknown): unknown[] {
  return Array.isArray(value) ? value : [];
}

function count(value: unknown): number {
  return typeof value === 'number' && value > 0 ? Math.ceil(value) : 0;
}
