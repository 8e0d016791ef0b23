// The least value that a JSON Schema allows: what a model without understanding can still answer correctly in form.

type Schema = Readonly<Record<string, unknown>>;

// A schema that refers to itself is followed so far; what lies deeper is left out where it may be.
const maximumDepth = 16;

/** A small value for the schema: only required members, the shortest lists, the first of several choices. */
export function minimalInstance(schema: unknown): unknown {
  return instance(schema, { root: isObject(schema) ? schema : {}, depth: 0 });
}

interface Place {
  root: Schema;
  depth: number;
}

function instance(given: unknown, place: Place): unknown {
  if (!isObject(given) || place.depth > maximumDepth) return null;
  const below = { root: place.root, depth: place.depth + 1 };
  if (typeof given.$ref === 'string') return instance(referred(place.root, given.$ref), below);
  if ('const' in given) return given.const;
  if ('default' in given) return given.default;
  if (Array.isArray(given.enum)) return given.enum[0];
  const choice = [given.anyOf, given.oneOf].find((options) => Array.isArray(options) && options.length > 0) as unknown[] | undefined;
  if (choice) return instance({ ...without(given, ['anyOf', 'oneOf']), ...simplest(choice, place.root) }, below);
  if (Array.isArray(given.allOf)) return instance(given.allOf.reduce<Schema>(both, without(given, ['allOf'])), below);
  const type: unknown = Array.isArray(given.type) ? given.type[0] : (given.type ?? guessedType(given));
  switch (type) {
    case 'object':
      return objectOf(given, below);
    case 'array':
      return arrayOf(given, below);
    case 'string':
      return stringOf(given);
    case 'integer':
    case 'number':
      return numberOf(given, type);
    case 'boolean':
      return true;
    default:
      return null;
  }
}

function objectOf(schema: Schema, place: Place): Record<string, unknown> {
  const properties = isObject(schema.properties) ? schema.properties : {};
  const required = Array.isArray(schema.required) ? schema.required.filter((name) => typeof name === 'string') : [];
  return Object.fromEntries(required.map((name) => [name, instance(properties[name] ?? {}, place)]));
}

function arrayOf(schema: Schema, place: Place): unknown[] {
  const fixed = Array.isArray(schema.prefixItems) ? schema.prefixItems : [];
  const length = Math.min(Math.max(count(schema.minItems), schema.minItems === undefined ? 0 : fixed.length), 1000);
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

function stringOf(schema: Schema): string {
  const text = typeof schema.format === 'string' ? (formats[schema.format] ?? '') : '';
  return text.padEnd(Math.min(count(schema.minLength), 10_000), 'x');
}

function numberOf(schema: Schema, type: string): number {
  const step = typeof schema.multipleOf === 'number' && schema.multipleOf > 0 ? schema.multipleOf : 1;
  const { minimum, exclusiveMinimum, maximum, exclusiveMaximum } = schema;
  if (typeof minimum === 'number' && minimum > 0) return Math.ceil(minimum / step) * step;
  if (typeof exclusiveMinimum === 'number' && exclusiveMinimum >= 0) {
    const next = (Math.floor(exclusiveMinimum / step) + 1) * step;
    const fits = typeof maximum !== 'number' || next <= maximum;
    return fits || type === 'integer' || typeof maximum !== 'number' ? next : (exclusiveMinimum + maximum) / 2;
  }
  if (typeof maximum === 'number' && maximum < 0) return Math.floor(maximum / step) * step;
  if (typeof exclusiveMaximum === 'number' && exclusiveMaximum <= 0) return (Math.ceil(exclusiveMaximum / step) - 1) * step;
  return 0;
}

// `null` is the simplest where it is among the choices and nothing has to be built.
function simplest(options: readonly unknown[], root: Schema): Schema {
  const schemas = options.filter(isObject).map((option) => (typeof option.$ref === 'string' ? referred(root, option.$ref) : option)).filter(isObject);
  return schemas.find((option) => option.type !== 'object' && option.type !== 'array') ?? schemas[0] ?? {};
}

function both(left: Schema, right: unknown): Schema {
  if (!isObject(right)) return left;
  const required = [...asList(left.required), ...asList(right.required)];
  const properties = { ...(isObject(left.properties) ? left.properties : {}), ...(isObject(right.properties) ? right.properties : {}) };
  return { ...left, ...right, ...(required.length > 0 ? { required } : {}), ...(Object.keys(properties).length > 0 ? { properties } : {}) };
}

function referred(root: Schema, pointer: string): unknown {
  if (!pointer.startsWith('#')) return {};
  let value: unknown = root;
  for (const segment of pointer.slice(1).split('/').slice(1)) {
    const name = decodeURIComponent(segment).replaceAll('~1', '/').replaceAll('~0', '~');
    value = isObject(value) && Object.hasOwn(value, name) ? value[name] : undefined;
  }
  return value ?? {};
}

function guessedType(schema: Schema): string {
  if ('properties' in schema || 'required' in schema) return 'object';
  return 'items' in schema || 'minItems' in schema ? 'array' : 'null';
}

function without(schema: Schema, names: readonly string[]): Schema {
  return Object.fromEntries(Object.entries(schema).filter(([name]) => !names.includes(name)));
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
