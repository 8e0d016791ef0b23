// The smallest value that a JSON Schema allows, as the well-formed answer of `local/echo`. The
// schema comes from the caller, and a few bytes of it can require a value that fills the heap,
// so all values, schema members read and output bytes count against one budget per call.
import { isRecord } from '../../../../kernel/json-value.ts';
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
  const choice = [schema.anyOf, schema.oneOf].find(
    (options) => Array.isArray(options) && options.length > 0,
  ) as unknown[] | undefined;
  if (choice)
    return buildInstance(
      { ...omit(schema, ['anyOf', 'oneOf'], budget), ...selectSimplest(choice, nestedContext) },
      nestedContext,
    );
  if (Array.isArray(schema.allOf))
    return buildInstance(
      merge([omit(schema, ['allOf'], budget), ...asList(schema.allOf)], budget),
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

/** The value itself, charged for its size, since it is serialized wherever the schema repeats it. */
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
  const length = Math.max(count(schema.minItems), schema.minItems === undefined ? 0 : prefixItems.length);
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

function numberOf(schema: Schema, type: string): number {
  const step = typeof schema.multipleOf === 'number' && schema.multipleOf > 0 ? schema.multipleOf : 1;
  const { minimum, exclusiveMinimum, maximum, exclusiveMaximum } = schema;
  if (typeof minimum === 'number' && minimum > 0) return Math.ceil(minimum / step) * step;
  if (typeof exclusiveMinimum === 'number' && exclusiveMinimum >= 0) {
    const nextMultiple = (Math.floor(exclusiveMinimum / step) + 1) * step;
    if (type === 'integer' || typeof maximum !== 'number' || nextMultiple <= maximum) return nextMultiple;
    return (exclusiveMinimum + maximum) / 2;
  }
  if (typeof maximum === 'number' && maximum < 0) return Math.floor(maximum / step) * step;
  if (typeof exclusiveMaximum === 'number' && exclusiveMaximum <= 0)
    return (Math.ceil(exclusiveMaximum / step) - 1) * step;
  return 0;
}

/** The first choice that is not an object or a list, or else the first. */
function selectSimplest(options: readonly unknown[], { root, budget }: Context): Schema {
  let firstSchema: Schema | undefined;
  for (const option of options) {
    spend(budget, { steps: 1 });
    const schema =
      isRecord(option) && typeof option.$ref === 'string' ? resolve(root, option.$ref, budget) : option;
    if (!isRecord(schema)) continue;
    if (schema.type !== 'object' && schema.type !== 'array') return chargeCopy(schema, budget);
    firstSchema ??= schema;
  }
  return chargeCopy(firstSchema ?? {}, budget);
}

/** One schema out of several: later members win, required names and properties add up. */
function merge(schemas: readonly unknown[], budget: InstanceBudget): Schema {
  const mergedSchema: Record<string, unknown> = {};
  const required: unknown[] = [];
  const properties: Record<string, unknown> = {};
  for (const schema of schemas) {
    spend(budget, { steps: 1 });
    if (!isRecord(schema)) continue;
    Object.assign(mergedSchema, chargeCopy(schema, budget));
    for (const name of asList(schema.required)) {
      spend(budget, { steps: 1 });
      required.push(name);
    }
    if (isRecord(schema.properties)) Object.assign(properties, chargeCopy(schema.properties, budget));
  }
  return {
    ...mergedSchema,
    ...(required.length > 0 ? { required } : {}),
    ...(Object.keys(properties).length > 0 ? { properties } : {}),
  };
}

/** The schema itself, charged for a copy of its members. */
function chargeCopy(schema: Schema, budget: InstanceBudget): Schema {
  spend(budget, { steps: 1 + Object.keys(schema).length });
  return schema;
}

/** The target of a JSON Pointer within the document; an empty schema for a dangling one. */
function resolve(root: Schema, pointer: string, budget: InstanceBudget): unknown {
  if (!pointer.startsWith('#')) return {};
  spend(budget, { steps: 1 + Math.ceil(pointer.length / 64) });
  let value: unknown = root;
  for (const segment of pointer.slice(1).split('/').slice(1)) {
    const name = decodePointer(segment);
    value = isRecord(value) && Object.hasOwn(value, name) ? value[name] : undefined;
    if (value === undefined) return {};
  }
  return value;
}

function decodePointer(segment: string): string {
  try {
    return decodeURIComponent(segment).replaceAll('~1', '/').replaceAll('~0', '~');
  } catch {
    // An invalid percent escape is taken literally.
    return segment;
  }
}

function guessType(schema: Schema): string {
  if ('properties' in schema || 'required' in schema) return 'object';
  return 'items' in schema || 'minItems' in schema ? 'array' : 'null';
}

function omit(schema: Schema, names: readonly string[], budget: InstanceBudget): Schema {
  return Object.fromEntries(
    Object.entries(chargeCopy(schema, budget)).filter(([name]) => !names.includes(name)),
  );
}

function asList(value: unknown): unknown[] {
  return Array.isArray(value) ? value : [];
}

function count(value: unknown): number {
  return typeof value === 'number' && value > 0 ? Math.ceil(value) : 0;
}
