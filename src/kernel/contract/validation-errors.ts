// Converts the errors of a JSON Schema validator to one sentence for each invalid member, with the names
// that the caller wrote. A value that matches none of several forms is explained by the closest form.
import { decodePointerName } from '../json-pointer.ts';
import { isRecord } from '../json-value.ts';
import { Problem, type ProblemDetail } from '../problem.ts';
import { startOfText } from '../start-of-text.ts';

/** One error of a JSON Schema validator, in verbose form. */
export interface SchemaError {
  keyword: string;
  instancePath: string;
  schemaPath?: string;
  params: Record<string, unknown>;
  message?: string;
  schema?: unknown;
  parentSchema?: unknown;
  data?: unknown;
}

type Schema = Record<string, unknown>;

/**
 * Functions of the validator: `resolve` follows a `$ref`, `check` returns a value's errors against one form.
 */
export interface SchemaTools {
  resolve(schema: unknown): Schema;
  check(schema: unknown, value: unknown): SchemaError[];
}

interface Violation {
  pointer: string;
  message: string;
  /** For a required member that is missing, or a member that the schema does not know. */
  kind?: 'missing' | 'unknown';
}

const maximumDetails = 20;
const places: Record<string, string> = {
  query: 'The query parameter',
  path: 'The path parameter',
  header: 'The header',
  cookie: 'The cookie',
};

/** The 400 for errors over `{ requestBody, path, query, header }`; there must be at least one. */
export function invalidRequestProblem(errors: readonly SchemaError[], tools: SchemaTools): Problem {
  const violations = explain(errors, tools);
  const explanations = new Map<string, { sentence: string; detail: ProblemDetail }>();
  for (const { pointer, message } of violations) {
    const [place = '', ...names] = pointerParts(pointer);
    const path = memberPath(names);
    const key = `${place} ${path} ${message}`;
    if (!explanations.has(key))
      explanations.set(key, {
        sentence: `${subjectOf(place, path)} ${message}.`,
        detail: { path, message },
      });
    if (explanations.size === maximumDetails) break;
  }
  const [first] = explanations.values();
  return new Problem(
    'bad_request',
    'invalid_request',
    first?.sentence ?? 'The request does not match the contract.',
    {
      param: first && first.detail.path !== '' ? first.detail.path : null,
      details: Array.from(explanations.values(), ({ detail }) => detail),
    },
  );
}

function subjectOf(place: string, path: string): string {
  if (path === '') return 'The body';
  const label = places[place];
  return label === undefined ? `\`${path}\`` : `${label} \`${path}\``;
}

/** The errors of a schema without alternatives, with the path of names to each invalid member. */
export function describeErrors(errors: readonly SchemaError[]): { names: string[]; message: string }[] {
  return errors
    .flatMap(violationsOf)
    .map(({ pointer, message }) => ({ names: pointerParts(pointer), message }));
}

function explain(errors: readonly SchemaError[], tools: SchemaTools): Violation[] {
  const violations: Violation[] = [];
  // Read backwards: Ajv reports the errors of all forms first and only then that none of them matched.
  const remainingErrors = [...errors];
  for (let error = remainingErrors.pop(); error !== undefined; error = remainingErrors.pop()) {
    if (error.keyword === 'oneOf' || error.keyword === 'anyOf') {
      violations.unshift(...explainForms(error, tools));
      // Drop the errors of all forms: `explainForms` has explained the closest form already.
      while (isWithin(remainingErrors.at(-1), error.instancePath)) remainingErrors.pop();
    } else if (error.keyword !== 'if') {
      // Ajv reports `if` beside the errors of its `then` or `else`.
      violations.unshift(...violationsOf(error));
    }
  }
  return violations;
}

function isWithin(error: SchemaError | undefined, pointer: string): boolean {
  return error !== undefined && `${error.instancePath}/`.startsWith(`${pointer}/`);
}

function explainForms(error: SchemaError, tools: SchemaTools): Violation[] {
  const { instancePath: pointer, data } = error;
  if (error.params.passingSchemas)
    return [{ pointer, message: 'matches more than one of the forms that are allowed here' }];
  const forms = Array.isArray(error.schema) ? (error.schema as unknown[]) : [];
  const tag = isRecord(data) ? discriminatorOf(error.parentSchema, forms, tools) : null;
  if (tag !== null && isRecord(data)) return explainTaggedForms(forms, tag, { data, pointer, tools });
  const formsOfType = forms.filter((form) => admitsType(tools.resolve(form), data));
  if (formsOfType.length > 0) return explainNearest(formsOfType, data, pointer, tools);
  const types = forms.flatMap((form) => typesOf(tools.resolve(form)));
  return [
    {
      pointer,
      message: types.length > 0 ? mustBeType(types) : 'matches none of the forms that are allowed here',
    },
  ];
}

/** The forms differ by the value of the member `tag`. */
function explainTaggedForms(
  forms: unknown[],
  tag: string,
  { data, pointer, tools }: { data: Record<string, unknown>; pointer: string; tools: SchemaTools },
): Violation[] {
  const value = Object.hasOwn(data, tag) ? data[tag] : undefined;
  const valuesOf = (form: unknown) => tagValues(tools.resolve(form), tag, tools);
  const formsOfTag = forms.filter((form) => valuesOf(form).includes(value));
  const candidates = formsOfTag.length > 0 || value === undefined ? formsOfTag : forms.filter(isOpen(tools));
  if (candidates.length > 0) return explainNearest(candidates, data, pointer, tools);
  const tagPointer = `${pointer}/${escapePointer(tag)}`;
  return value === undefined
    ? [missingMember(tagPointer)]
    : [{ pointer: tagPointer, message: mustBeOneOf(forms.flatMap(valuesOf)) }];
}

// Assumes that the caller intended the form with the fewest errors. If that form has a single error, every
// other form with a single error is as likely.
function explainNearest(forms: unknown[], data: unknown, pointer: string, tools: SchemaTools): Violation[] {
  const candidates = forms
    .map((form) => explain(tools.check(form, data), tools))
    .filter((violations) => violations.length > 0);
  const [nearest = []] = candidates.toSorted((a, b) => a.length - b.length || progressOf(b) - progressOf(a));
  const [firstViolation] = nearest;
  if (!firstViolation) return [{ pointer, message: 'matches none of the forms that are allowed here' }];
  const violations = nearest.length === 1 ? [withAlternatives(firstViolation, candidates)] : nearest;
  return violations.map((violation) => ({ ...violation, pointer: pointer + violation.pointer }));
}

/**
 * Adds the alternatives of the other forms to the only error of the nearest form. If each form lacks
 * one member, adding any of these members would make the value valid. If each form rejects a member
 * that another form accepts, these members exclude each other.
 */
function withAlternatives(violation: Violation, candidates: readonly Violation[][]): Violation {
  const { pointer, kind } = violation;
  if (kind === undefined) return violation;
  const others = candidates
    .filter(({ length }) => length === 1)
    .flat()
    .filter((other) => other.kind === kind && other.pointer !== pointer);
  const [firstName, ...moreNames] = new Set(others.map((other) => memberPath(pointerParts(other.pointer))));
  if (firstName === undefined) return violation;
  if (kind === 'unknown') return { pointer, message: cannotBeCombinedWith(firstName) };
  const names = [firstName, ...moreNames].map((name) => `\`${name}\``);
  return { pointer, message: `is required, or ${names.join(' or ')} in its place` };
}

// How deep in the value the first error is; for a large body the validator reports only that one. A
// missing or unknown member counts half a step less than an invalid value, since it is weaker evidence
// for the intended form.
function progressOf([first]: readonly Violation[]): number {
  if (first === undefined) return 0;
  return pointerParts(first.pointer).length + (first.kind === undefined ? 0.5 : 0);
}

// With `dependentSchemas` the presence of one member forbids another: the schema path
// "#/dependentSchemas/url/properties/data/false schema" means that `url` forbids `data`.
function refusalOf(error: SchemaError): string {
  const [, name] =
    /\/dependentSchemas\/([^/]+)\/properties\/[^/]+\/false schema$/.exec(error.schemaPath ?? '') ?? [];
  return name === undefined ? messageOf(error) : cannotBeCombinedWith(name);
}

function cannotBeCombinedWith(name: string): string {
  return `cannot be combined with \`${name}\``;
}

function missingMember(pointer: string): Violation {
  return { pointer, message: 'is required', kind: 'missing' };
}

function unknownMember(pointer: string): Violation {
  return { pointer, message: 'is not known here', kind: 'unknown' };
}

function discriminatorOf(parent: unknown, forms: unknown[], tools: SchemaTools): string | null {
  const declaredName =
    isRecord(parent) && isRecord(parent.discriminator) ? parent.discriminator.propertyName : undefined;
  if (typeof declaredName === 'string') return declaredName;
  const firstForm = forms.length > 0 ? tools.resolve(forms[0]) : {};
  const names = isRecord(firstForm.properties) ? Object.keys(firstForm.properties) : [];
  return names.find((name) => isTag(name, forms, tools)) ?? null;
}

// A tag is a member whose allowed values each form lists. It does not tell the forms apart if all lists are
// the same, and only by chance if no form requires it.
function isTag(name: string, forms: unknown[], tools: SchemaTools): boolean {
  const lists = forms.map((form) => tagValues(tools.resolve(form), name, tools));
  const isListed = lists.every((values, index) => values.length > 0 || isOpen(tools)(forms[index]));
  const isRequiredByOne = forms.some((form) => requiredOf(tools.resolve(form)).includes(name));
  return isListed && isRequiredByOne && new Set(lists.map((values) => JSON.stringify(values))).size > 1;
}

function requiredOf({ required }: Schema): readonly unknown[] {
  return Array.isArray(required) ? required : [];
}

// The form of an open union that accepts all values which no other form lists.
function isOpen(tools: SchemaTools): (form: unknown) => boolean {
  return (form) => tools.resolve(form)['x-open'] === true;
}

function tagValues(form: Schema, name: string, tools: SchemaTools): unknown[] {
  const property = isRecord(form.properties) ? form.properties[name] : undefined;
  if (property !== undefined) {
    const schema = tools.resolve(property);
    if ('const' in schema) return [schema.const];
    if (Array.isArray(schema.enum)) return schema.enum;
  }
  for (const key of ['allOf', 'oneOf', 'anyOf']) {
    const parts = form[key];
    if (!Array.isArray(parts)) continue;
    const values = parts.flatMap((part) => tagValues(tools.resolve(part), name, tools));
    if (values.length > 0) return values;
  }
  return [];
}

function typesOf(schema: Schema): string[] {
  if (typeof schema.type === 'string') return [schema.type];
  return Array.isArray(schema.type) ? schema.type.filter((type) => typeof type === 'string') : [];
}

function admitsType(schema: Schema, data: unknown): boolean {
  const types = typesOf(schema);
  if (types.length === 0) return true;
  const type = typeOf(data);
  return types.includes(type) || (type === 'number' && types.includes('integer'));
}

function typeOf(data: unknown): string {
  if (data === null) return 'null';
  return Array.isArray(data) ? 'array' : typeof data;
}

function violationsOf(error: SchemaError): Violation[] {
  const { instancePath: pointer, params } = error;
  const pointerTo = (name: unknown) => `${pointer}/${escapePointer(String(name))}`;
  switch (error.keyword) {
    case 'false schema':
      return [{ pointer, message: refusalOf(error) }];
    case 'required':
      return [missingMember(pointerTo(params.missingProperty))];
    case 'dependentRequired':
      return [
        {
          pointer: pointerTo(params.missingProperty),
          message: `is required beside \`${String(params.property)}\``,
        },
      ];
    case 'additionalProperties':
      return [unknownMember(pointerTo(params.additionalProperty))];
    case 'unevaluatedProperties':
      return [unknownMember(pointerTo(params.unevaluatedProperty))];
    default:
      return [{ pointer, message: messageOf(error) }];
  }
}

function messageOf({ keyword, params, schema, parentSchema }: SchemaError): string {
  const limit = String(params.limit);
  switch (keyword) {
    case 'type':
      return mustBeType(([] as unknown[]).concat(params.type).map(String));
    case 'enum':
      return mustBeOneOf(params.allowedValues as unknown[]);
    case 'const':
      return `must be ${literalOf(params.allowedValue)}`;
    case 'minLength':
      return `must have at least ${limit} ${pluralize(limit, 'character')}`;
    case 'maxLength':
      return `must have at most ${limit} ${pluralize(limit, 'character')}`;
    case 'minItems':
      return `must have at least ${limit} ${pluralize(limit, 'item')}`;
    case 'maxItems':
      return `must have at most ${limit} ${pluralize(limit, 'item')}`;
    case 'minProperties':
      return `must have at least ${limit} ${pluralize(limit, 'member')}`;
    case 'maxProperties':
      return `must have at most ${limit} ${pluralize(limit, 'member')}`;
    case 'minimum':
      return `must be at least ${limit}`;
    case 'maximum':
      return `must be at most ${limit}`;
    case 'exclusiveMinimum':
      return `must be more than ${limit}`;
    case 'exclusiveMaximum':
      return `must be less than ${limit}`;
    case 'multipleOf':
      return `must be a multiple of ${String(params.multipleOf)}`;
    case 'uniqueItems':
      return 'must not repeat an item';
    case 'pattern':
      // A pattern may have its own message.
      if (isRecord(parentSchema) && typeof parentSchema['x-pattern-message'] === 'string')
        return parentSchema['x-pattern-message'];
      return `must match the pattern ${String(schema ?? params.pattern)}`;
    case 'format':
      return `must be a valid ${String(params.format)}`;
    case 'propertyNames':
      return 'has a member of a name that is not allowed';
    case 'false schema':
      return 'is not allowed here';
    default:
      return 'does not match the contract';
  }
}

const typeNames: Record<string, string> = {
  string: 'a string',
  number: 'a number',
  integer: 'an integer',
  boolean: 'true or false',
  object: 'an object',
  array: 'an array',
  null: 'null',
};

function mustBeType(types: string[]): string {
  return `must be ${[...new Set(types)].map((type) => typeNames[type] ?? type).join(' or ')}`;
}

function mustBeOneOf(values: unknown[]): string {
  const allowedValues = [...new Set(values)];
  const list = allowedValues.slice(0, 20).map(literalOf).join(', ');
  if (allowedValues.length === 1) return `must be ${list}`;
  return `must be one of ${list}${allowedValues.length > 20 ? ', …' : ''}`;
}

function literalOf(value: unknown): string {
  return typeof value === 'string' ? `"${value}"` : JSON.stringify(value);
}

function pluralize(count: string, singular: string): string {
  return count === '1' ? singular : `${singular}s`;
}

/** The names of a JSON pointer (RFC 6901). */
export function pointerParts(pointer: string): string[] {
  return pointer.split('/').slice(1).map(decodePointerName);
}

// The caller chooses the names, so they are truncated to a length that suits logs and screens.
function memberPath(names: string[]): string {
  let path = '';
  for (const name of names) {
    if (/^\d+$/.test(name)) path += `[${name}]`;
    else if (/^[\w$-]+$/.test(name)) path += path === '' ? name : `.${name}`;
    else path += `[${JSON.stringify(startOfText(name, 128))}]`;
  }
  return startOfText(path, 256);
}

function escapePointer(name: string): string {
  return name.replaceAll('~', '~0').replaceAll('/', '~1');
}
