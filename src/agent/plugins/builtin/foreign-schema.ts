// JSON Schemas that an MCP server wrote, for inputs of its tools. Compiling one takes seconds where it has thousands of
// members, patterns can backtrack, and references can double at every step. So nothing is compiled: an input is held
// against the plain keywords alone, in time linear in the input, and the server checks the rest itself.
import { isSchema, type JsonSchema, type SchemaCheck } from '../../../kernel/contract/schema.ts';
import type { ProblemDetail } from '../../../kernel/problem.ts';

/** Whether a model provider would take it: a schema by the metaschema, with usable patterns and no foreign references. */
export function isSoundSchema(schema: JsonSchema): boolean {
  try {
    return isSchema(schema) && hasSoundMembers(schema);
  } catch {
    // Too deep for the stack.
    return false;
  }
}

function hasSoundMembers(value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return true;
  return Object.entries(value).every(([name, member]) => {
    // Throws for a pattern that is none.
    if (name === 'pattern' && typeof member === 'string') return new RegExp(member, 'u') instanceof RegExp;
    if (name === '$ref' && typeof member === 'string') return member.startsWith('#');
    return hasSoundMembers(member);
  });
}

/** Refuses an input for `type`, `required`, `properties`, `additionalProperties`, `items`, `enum`, and bounds; no other keyword counts. */
export function plainCheck(schema: JsonSchema): SchemaCheck {
  return (input) => {
    const fault = faultOf(schema, input, '');
    return fault === null ? { ok: true } : { ok: false, details: [fault] };
  };
}

function faultOf(schema: unknown, value: unknown, path: string): ProblemDetail | null {
  if (!isObject(schema)) return null;
  const message = typeFault(schema, value) ?? enumFault(schema, value) ?? boundFault(schema, value);
  if (message !== null) return { path: path.slice(0, 256), message };
  if (Array.isArray(value)) return itemFault(schema, value, path);
  return isObject(value) ? memberFault(schema, value, path) : null;
}

function typeFault({ type }: JsonSchema, value: unknown): string | null {
  const types = [type].flat().filter((each) => typeof each === 'string');
  if (types.length === 0 || types.some((each) => isOfType(each, value))) return null;
  return `must be ${types.join(' or ')}`;
}

function isOfType(type: string, value: unknown): boolean {
  if (type === 'null') return value === null;
  if (type === 'array') return Array.isArray(value);
  if (type === 'object') return isObject(value);
  if (type === 'integer') return Number.isInteger(value);
  return typeof value === type;
}

// Members that are no plain values would have to be compared in depth.
function enumFault({ enum: allowed }: JsonSchema, value: unknown): string | null {
  if (
    !Array.isArray(allowed) ||
    allowed.includes(value) ||
    allowed.some((each) => typeof each === 'object' && each !== null)
  )
    return null;
  return 'must be one of the allowed values';
}

const bounds = [
  ['minimum', (value) => value, 'at least'],
  ['maximum', (value) => value, 'at most'],
  ['minLength', (value) => (typeof value === 'string' ? value.length : undefined), 'at least'],
  ['minItems', (value) => (Array.isArray(value) ? value.length : undefined), 'at least'],
  ['maxItems', (value) => (Array.isArray(value) ? value.length : undefined), 'at most'],
] as const satisfies readonly (readonly [string, (value: unknown) => unknown, 'at least' | 'at most'])[];

function boundFault(schema: JsonSchema, value: unknown): string | null {
  for (const [keyword, measure, side] of bounds) {
    const [bound, size] = [schema[keyword], measure(value)];
    if (typeof bound !== 'number' || typeof size !== 'number') continue;
    if (side === 'at least' ? size < bound : size > bound)
      return `must ${keyword.endsWith('imum') ? 'be' : 'have'} ${side} ${bound}`;
  }
  return null;
}

function itemFault({ items }: JsonSchema, value: readonly unknown[], path: string): ProblemDetail | null {
  for (const [index, item] of value.entries()) {
    const fault = faultOf(items, item, `${path}[${index}]`);
    if (fault !== null) return fault;
  }
  return null;
}

function memberFault(schema: JsonSchema, value: JsonSchema, path: string): ProblemDetail | null {
  const properties = isObject(schema['properties']) ? schema['properties'] : {};
  const required = Array.isArray(schema['required']) ? (schema['required'] as unknown[]) : [];
  const at = (name: string): string => (path === '' ? name : `${path}.${name}`);
  for (const name of required)
    if (typeof name === 'string' && !Object.hasOwn(value, name))
      return { path: at(name).slice(0, 256), message: 'is required' };
  const isClosed = schema['additionalProperties'] === false && schema['patternProperties'] === undefined;
  for (const [name, member] of Object.entries(value)) {
    const isDeclared = Object.hasOwn(properties, name);
    if (isClosed && !isDeclared) return { path: at(name).slice(0, 256), message: 'is not known here' };
    const fault = isDeclared ? faultOf(properties[name], member, at(name)) : null;
    if (fault !== null) return fault;
  }
  return null;
}

function isObject(value: unknown): value is JsonSchema {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
