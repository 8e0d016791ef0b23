// JSON Schemas of MCP servers for the inputs of their tools. Such a schema is never compiled:
// thousands of members take seconds, patterns can backtrack, and references can grow exponentially.
// Inputs are checked by simple keywords only, in linear time; the server checks the rest.
import { isSchema, type JsonSchema, type SchemaCheck } from '../../../../kernel/contract/schema.ts';
import { isRecord } from '../../../../kernel/json-value.ts';
import type { ProblemDetail } from '../../../../kernel/problem.ts';

/**
 * Whether gateway and model providers would accept the schema: it matches the metaschema, its patterns
 * are valid, all references are local, and no text has half of a surrogate pair.
 */
export function isUsableSchema(schema: JsonSchema): boolean {
  try {
    return isSchema(schema) && hasUsableMembers(schema);
  } catch {
    // A deep schema overflows the stack.
    return false;
  }
}

function hasUsableMembers(value: unknown): boolean {
  if (typeof value === 'string') return value.isWellFormed();
  if (typeof value !== 'object' || value === null) return true;
  return Object.entries(value).every(([name, member]) => {
    if (!name.isWellFormed()) return false;
    // The constructor throws for an invalid pattern.
    if (name === 'pattern' && typeof member === 'string') RegExp(member, 'u');
    if (name === '$ref' && typeof member === 'string' && !member.startsWith('#')) return false;
    return hasUsableMembers(member);
  });
}

/**
 * Checks `type`, `required`, `properties`, `additionalProperties`, `items`, `enum` and bounds, and
 * no other keyword.
 */
export function simpleCheck(schema: JsonSchema): SchemaCheck {
  return (input) => {
    const error = firstError(schema, input, '');
    return error === null ? { ok: true } : { ok: false, details: [error] };
  };
}

function firstError(schema: unknown, value: unknown, path: string): ProblemDetail | null {
  if (!isRecord(schema)) return null;
  const message = typeError(schema, value) ?? enumError(schema, value) ?? boundError(schema, value);
  if (message !== null) return { path: path.slice(0, 256), message };
  if (Array.isArray(value)) return itemError(schema, value, path);
  return isRecord(value) ? memberError(schema, value, path) : null;
}

function typeError({ type }: JsonSchema, value: unknown): string | null {
  const types = [type].flat().filter((typeName) => typeof typeName === 'string');
  if (types.length === 0 || types.some((typeName) => isOfType(typeName, value))) return null;
  return `must be ${types.join(' or ')}`;
}

function isOfType(type: string, value: unknown): boolean {
  if (type === 'null') return value === null;
  if (type === 'array') return Array.isArray(value);
  if (type === 'object') return isRecord(value);
  if (type === 'integer') return Number.isInteger(value);
  return typeof value === type;
}

// Ignores an enum that contains objects or arrays, which would need a deep comparison.
function enumError({ enum: allowed }: JsonSchema, value: unknown): string | null {
  if (
    !Array.isArray(allowed) ||
    allowed.includes(value) ||
    allowed.some((allowedValue) => typeof allowedValue === 'object' && allowedValue !== null)
  )
    return null;
  return 'must be one of the allowed values';
}

// Without `maxLength`: `length` counts UTF-16 units and JSON Schema characters, so a text that is allowed
// could be refused.
const bounds = [
  ['minimum', (value) => value, 'at least'],
  ['maximum', (value) => value, 'at most'],
  ['minLength', (value) => (typeof value === 'string' ? value.length : undefined), 'at least'],
  ['minItems', (value) => (Array.isArray(value) ? value.length : undefined), 'at least'],
  ['maxItems', (value) => (Array.isArray(value) ? value.length : undefined), 'at most'],
] as const satisfies readonly (readonly [string, (value: unknown) => unknown, 'at least' | 'at most'])[];

function boundError(schema: JsonSchema, value: unknown): string | null {
  for (const [keyword, measure, side] of bounds) {
    const [bound, size] = [schema[keyword], measure(value)];
    if (typeof bound !== 'number' || typeof size !== 'number') continue;
    if (side === 'at least' ? size < bound : size > bound)
      return `must ${keyword.endsWith('imum') ? 'be' : 'have'} ${side} ${bound}`;
  }
  return null;
}

function itemError({ items }: JsonSchema, value: readonly unknown[], path: string): ProblemDetail | null {
  for (const [index, item] of value.entries()) {
    const error = firstError(items, item, `${path}[${index}]`);
    if (error !== null) return error;
  }
  return null;
}

function memberError(schema: JsonSchema, value: JsonSchema, path: string): ProblemDetail | null {
  const properties = isRecord(schema['properties']) ? schema['properties'] : {};
  const required = Array.isArray(schema['required']) ? (schema['required'] as unknown[]) : [];
  const pathOf = (name: string): string => (path === '' ? name : `${path}.${name}`);
  for (const name of required)
    if (typeof name === 'string' && !Object.hasOwn(value, name))
      return { path: pathOf(name).slice(0, 256), message: 'is required' };
  const isClosed = schema['additionalProperties'] === false && schema['patternProperties'] === undefined;
  for (const [name, member] of Object.entries(value)) {
    const isDeclared = Object.hasOwn(properties, name);
    if (isClosed && !isDeclared) return { path: pathOf(name).slice(0, 256), message: 'is not known here' };
    const error = isDeclared ? firstError(properties[name], member, pathOf(name)) : null;
    if (error !== null) return error;
  }
  return null;
}
