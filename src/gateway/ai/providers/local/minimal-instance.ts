// The least value that a JSON Schema allows: the answer of a model without understanding, correct in form.
//
// The schema comes from the caller, and few bytes of it can demand a value that fills the heap. Every value, every
// schema member that is read and every byte of output is charged to one budget per call.
import { Problem } from '../../../../kernel/problem.ts';

type Schema = Readonly<Record<string, unknown>>;

// A schema that refers to itself is followed this deep; below, values are null.
const maximumDepth = 16;
/** Values to build and schema members to read for one call. Ten thousand take a few milliseconds. */
export const maximumSteps = 10_000;
/** UTF-8 bytes of the value as JSON, approximately. */
export const maximumBytes = 64 * 1024;

/** What is left to spend on the instances of one call. */
export interface InstanceBudget {
  steps: number;
  bytes: number;
  /** The schema's place in the request, for the error. */
  param: string;
}

export function createBudget(param: string): InstanceBudget {
  return { steps: maximumSteps, bytes: maximumBytes, param };
}

/**
 * A small value for the schema: only required members, the shortest lists, the first of several choices. Throws a 422
 * that names `param` when the value exceeds the budget.
 */
export function minimalInstance(schema: unknown, budget: InstanceBudget = createBudget('schema')): unknown {
  return instance(schema, { root: isObject(schema) ? schema : {}, depth: 0, budget });
}

interface Place {
  root: Schema;
  depth: number;
  budget: InstanceBudget;
}

function instance(schema: unknown, place: Place): unknown {
  const { root, budget } = place;
  spend(budget, { steps: 1, bytes: 4 });
  if (!isObject(schema) || place.depth > maximumDepth) return null;
  const below = { root, budget, depth: place.depth + 1 };
  if (typeof schema.$ref === 'string') return instance(resolve(root, schema.$ref, budget), below);
  if ('const' in schema) return measured(schema.const, budget);
  if ('default' in schema) return measured(schema.default, budget);
  if (Array.isArray(schema.enum)) return measured(schema.enum[0], budget);
  const choice = [schema.anyOf, schema.oneOf].find(
    (options) => Array.isArray(options) && options.length > 0,
  ) as unknown[] | undefined;
  if (choice)
    return instance({ ...without(schema, ['anyOf', 'oneOf'], budget), ...simplest(choice, below) }, below);
  if (Array.isArray(schema.allOf))
    return instance(merge([without(schema, ['allOf'], budget), ...asList(schema.allOf)], budget), below);
  const type: unknown = Array.isArray(schema.type) ? schema.type[0] : (schema.type ?? guessType(schema));
  switch (type) {
    case 'object':
      return objectOf(schema, below);
    case 'array':
      return arrayOf(schema, below);
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
  throw new Problem(
    'impossible',
    'unsupported_by_model',
    `The least value that ${budget.param} allows is too large for this model: it builds up to ${maximumBytes / 1024} KiB, reading up to ${maximumSteps} values and schema members.`,
    { param: budget.param },
  );
}

/** The value itself, once its size is charged: it is serialised for each place in which it stands. */
function measured(value: unknown, budget: InstanceBudget): unknown {
  const open = [value];
  while (open.length > 0) {
    const next = open.pop();
    spend(budget, { steps: 1, bytes: typeof next === 'string' ? Buffer.byteLength(next) + 2 : 4 });
    if (Array.isArray(next)) {
      // Charged before the items are copied.
      spend(budget, { steps: next.length, bytes: next.length });
      open.push(...asList(next));
    } else if (isObject(next)) {
      const names = Object.keys(next);
      spend(budget, { steps: names.length });
      for (const name of names) {
        spend(budget, { bytes: Buffer.byteLength(name) + 4 });
        open.push(next[name]);
      }
    }
  }
  return value;
}

function objectOf(schema: Schema, place: Place): Record<string, unknown> {
  const properties = isObject(schema.properties) ? schema.properties : {};
  const members: [string, unknown][] = [];
  for (const name of asList(schema.required)) {
    spend(place.budget, { steps: 1 });
    if (typeof name !== 'string') continue;
    spend(place.budget, { bytes: Buffer.byteLength(name) + 4 });
    members.push([name, instance(Object.hasOwn(properties, name) ? properties[name] : {}, place)]);
  }
  return Object.fromEntries(members);
}

function arrayOf(schema: Schema, place: Place): unknown[] {
  const fixed = asList(schema.prefixItems);
  const length = Math.max(count(schema.minItems), schema.minItems === undefined ? 0 : fixed.length);
  // Charged before the list is allocated.
  spend(place.budget, { steps: length, bytes: length });
  return Array.from({ length }, (_, index) => instance(fixed[index] ?? schema.items ?? {}, place));
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
    const next = (Math.floor(exclusiveMinimum / step) + 1) * step;
    const fits = typeof maximum !== 'number' || next <= maximum;
    return fits || type === 'integer' || typeof maximum !== 'number'
      ? next
      : (exclusiveMinimum + maximum) / 2;
  }
  if (typeof maximum === 'number' && maximum < 0) return Math.floor(maximum / step) * step;
  if (typeof exclusiveMaximum === 'number' && exclusiveMaximum <= 0)
    return (Math.ceil(exclusiveMaximum / step) - 1) * step;
  return 0;
}

// `null` is the simplest where it is among the choices and nothing has to be built.
function simplest(options: readonly unknown[], { root, budget }: Place): Schema {
  let first: Schema | undefined;
  for (const option of options) {
    spend(budget, { steps: 1 });
    const schema =
      isObject(option) && typeof option.$ref === 'string' ? resolve(root, option.$ref, budget) : option;
    if (!isObject(schema)) continue;
    if (schema.type !== 'object' && schema.type !== 'array') return charged(schema, budget);
    first ??= schema;
  }
  return charged(first ?? {}, budget);
}

/** All schemas as one: later members win, required names and properties add up. */
function merge(schemas: readonly unknown[], budget: InstanceBudget): Schema {
  const merged: Record<string, unknown> = {};
  const required: unknown[] = [];
  const properties: Record<string, unknown> = {};
  for (const schema of schemas) {
    spend(budget, { steps: 1 });
    if (!isObject(schema)) continue;
    Object.assign(merged, charged(schema, budget));
    for (const name of asList(schema.required)) {
      spend(budget, { steps: 1 });
      required.push(name);
    }
    if (isObject(schema.properties)) Object.assign(properties, charged(schema.properties, budget));
  }
  return {
    ...merged,
    ...(required.length > 0 ? { required } : {}),
    ...(Object.keys(properties).length > 0 ? { properties } : {}),
  };
}

/** The schema, once a copy of its members is charged. */
function charged(schema: Schema, budget: InstanceBudget): Schema {
  spend(budget, { steps: 1 + Object.keys(schema).length });
  return schema;
}

/** What a pointer within the document leads to; an empty schema where it leads nowhere. */
function resolve(root: Schema, pointer: string, budget: InstanceBudget): unknown {
  if (!pointer.startsWith('#')) return {};
  spend(budget, { steps: 1 + Math.ceil(pointer.length / 64) });
  let value: unknown = root;
  for (const segment of pointer.slice(1).split('/').slice(1)) {
    const name = decodePointer(segment);
    value = isObject(value) && Object.hasOwn(value, name) ? value[name] : undefined;
    if (value === undefined) return {};
  }
  return value;
}

function decodePointer(segment: string): string {
  try {
    return decodeURIComponent(segment).replaceAll('~1', '/').replaceAll('~0', '~');
  } catch {
    // A percent sign that encodes nothing stands for itself.
    return segment;
  }
}

function guessType(schema: Schema): string {
  if ('properties' in schema || 'required' in schema) return 'object';
  return 'items' in schema || 'minItems' in schema ? 'array' : 'null';
}

function without(schema: Schema, names: readonly string[], budget: InstanceBudget): Schema {
  return Object.fromEntries(
    Object.entries(charged(schema, budget)).filter(([name]) => !names.includes(name)),
  );
}

function asList(value: unknown): unknown[] {
  return Array.isArray(value) ? value : [];
}

function count(value: unknown): number {
  return typeof value === 'number' && value > 0 ? Math.ceil(value) : 0;
}

function isObject(value: unknown): value is Schema {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
