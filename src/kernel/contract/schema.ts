// JSON Schemas outside the contract, such as those of plugin actions, services and settings files. A schema
// is compiled once at startup, so that an invalid schema stops the start instead of failing a call later.
import { Ajv2020, type ErrorObject, type Options, type ValidateFunction } from 'ajv/dist/2020.js';
import formats from 'ajv-formats';
import { describeErrors, pointerParts, type SchemaError } from './validation-errors.ts';
import type { ProblemDetail } from '../problem.ts';
import { startOfText } from '../start-of-text.ts';
import { useQuickLengths } from './text-length.ts';

export type JsonSchema = Readonly<Record<string, unknown>>;

export type SchemaCheckResult = { ok: true } | { ok: false; details: ProblemDetail[] };

/** Checks a value without changing it. */
export type SchemaCheck = (value: unknown) => SchemaCheckResult;

// Further errors would not help to correct a value.
const maximumDetails = 16;

/** Compiles a schema of draft 2020-12. Throws an error with the reason if the schema is invalid. */
export function compileSchema(schema: JsonSchema): SchemaCheck {
  const validate = compileValid(schema) ?? compileInvalid(schema);
  return (value) => {
    if (validate(value)) return { ok: true };
    return { ok: false, details: (validate.errors ?? []).slice(0, maximumDetails).map(toDetail) };
  };
}

// The validator of schemas. Compiling the metaschema costs more than all schemas of an agent,
// so one validator is created at its first use; it does not cache the checked schemas.
let metaValidator: Ajv2020 | undefined;

/** Whether the schema is valid by the metaschema. Patterns and references are not checked. */
export function isSchema(schema: JsonSchema): boolean {
  metaValidator ??= new Ajv2020({ strict: false, logger: false });
  return metaValidator.validateSchema(schema) === true;
}

/** Null if the schema is invalid or has unresolvable references. */
function compileValid(schema: JsonSchema): ValidateFunction | null {
  try {
    if (!isSchema(schema)) return null;
    return compileAlone(schema, { meta: false, validateSchema: false });
  } catch {
    return null;
  }
}

/** Compiles an invalid schema with Ajv's own check of it, which throws the reason. */
function compileInvalid(schema: JsonSchema): ValidateFunction {
  return compileAlone(schema, {});
}

function compileAlone(schema: JsonSchema, options: Options): ValidateFunction {
  // One validator per schema, since two schemas may have the same `$id`.
  const ajv = new Ajv2020({
    strict: false,
    allErrors: false,
    validateFormats: true,
    logger: false,
    ...options,
  });
  formats.default(ajv);
  useQuickLengths(ajv);
  return ajv.compile(schema);
}

/** One error of a document; the names lead from its root to the invalid member. */
export interface ValidationError {
  names: readonly string[];
  message: string;
}

/**
 * Compiles the schema of a handwritten document: the check reports all errors and not only the first.
 * Throws like `compileSchema`.
 */
export function compileDocumentSchema(schema: JsonSchema): (value: unknown) => ValidationError[] {
  const ajv = new Ajv2020({
    strict: false,
    allErrors: true,
    verbose: true,
    validateFormats: true,
    logger: false,
  });
  formats.default(ajv);
  useQuickLengths(ajv);
  const validate = ajv.compile(schema);
  return (value) => (validate(value) ? [] : describeErrors((validate.errors ?? []) as SchemaError[]));
}

/** A SchemaCheck that returns a valid value in the types of the schema. */
export type QueryCheck = (
  query: Readonly<Record<string, unknown>>,
) => { ok: true; value: Record<string, unknown> } | { ok: false; details: ProblemDetail[] };

/**
 * Compiles a schema for members that arrive as text, such as query parameters: where
 * it requires a number or a boolean, its text form is accepted, and a single value
 * is accepted for a list of one. Throws like `compileSchema`.
 */
export function compileQuery(schema: JsonSchema): QueryCheck {
  const ajv = new Ajv2020({
    strict: false,
    allErrors: false,
    validateFormats: true,
    logger: false,
    coerceTypes: 'array',
  });
  formats.default(ajv);
  useQuickLengths(ajv);
  const validate = ajv.compile(schema);
  return (query) => {
    // The validator coerces the value in place, so it works on a copy.
    const value = structuredClone({ ...query });
    if (validate(value)) return { ok: true, value };
    return { ok: false, details: (validate.errors ?? []).slice(0, maximumDetails).map(toDetail) };
  };
}

function toDetail(error: ErrorObject): ProblemDetail {
  const parent = pointerParts(error.instancePath);
  const { missingProperty, additionalProperty } = error.params as {
    missingProperty?: string;
    additionalProperty?: string;
  };
  if (missingProperty !== undefined)
    return { path: memberPath([...parent, missingProperty]), message: 'is required' };
  if (additionalProperty !== undefined)
    return { path: memberPath([...parent, additionalProperty]), message: 'is not known here' };
  return { path: memberPath(parent), message: error.message ?? 'is not valid' };
}

// The path in the usual notation: `items[0].name`.
function memberPath(segments: string[]): string {
  const path = segments
    .map((segment, index) => (/^\d+$/.test(segment) ? `[${segment}]` : `${index === 0 ? '' : '.'}${segment}`))
    .join('');
  return startOfText(path, 256);
}
