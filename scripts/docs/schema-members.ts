// The members of a schema as table rows: name, type, whether it is required, and its description.

import { type Document, isReference, type Reference, resolve } from '../generate/document.ts';

export interface DescribedSchema {
  type?: string | string[];
  title?: string;
  description?: string;
  format?: string;
  const?: unknown;
  enum?: unknown[];
  properties?: Record<string, DescribedSchema | Reference>;
  required?: string[];
  items?: DescribedSchema | Reference;
  oneOf?: (DescribedSchema | Reference)[];
  anyOf?: (DescribedSchema | Reference)[];
  allOf?: (DescribedSchema | Reference)[];
  minimum?: number;
  maximum?: number;
  maxLength?: number;
  default?: unknown;
}

export interface Member {
  /** Includes its parents: `usage.total_tokens`, `items[].id`. */
  name: string;
  type: string;
  isRequired: boolean;
  description: string;
  /** The forms that have the member, if the schema has several forms and some lack it. */
  form?: string;
}

// Two levels are enough to write a request; the reference page shows the rest.
const maxDepth = 2;

/** A schema of several forms has the members of all of them, each once. */
export function membersOf(document: Document, schema: DescribedSchema | Reference): Member[] {
  const { oneOf, anyOf } = merge(document, schema);
  const forms = oneOf ?? anyOf ?? [];
  const members = rowsOf(document, schema, '', 1);
  if (forms.length === 0) return members;
  const rows = forms.flatMap((form) =>
    membersOf(document, form).map((member) => ({ ...member, form: member.form ?? nameOf(document, form) })),
  );
  const groups = Map.groupBy(rows, ({ name }) => name);
  return [...members, ...[...groups.values()].map((group) => joinForms(group, forms.length))];
}

/** Joins the rows of a member that several forms have into one row. */
function joinForms(rows: readonly (Member & { form: string })[], formCount: number): Member {
  const [{ form: _form, ...member }] = rows as [Member];
  const types = [...new Set(rows.map(({ type }) => type))];
  const isEverywhere = rows.length >= formCount;
  return {
    ...member,
    type: listAlternatives(types),
    isRequired: rows.every(({ isRequired }) => isRequired),
    ...(isEverywhere ? {} : { form: listAlternatives([...new Set(rows.map(({ form }) => form))]) }),
  };
}

function rowsOf(
  document: Document,
  value: DescribedSchema | Reference,
  prefix: string,
  depth: number,
): Member[] {
  const schema = merge(document, value);
  return Object.entries(schema.properties ?? {}).flatMap(([name, child]) => {
    const childSchema = merge(document, child);
    const member: Member = {
      name: `${prefix}${name}`,
      type: typeOf(document, child),
      isRequired: schema.required?.includes(name) ?? false,
      description: describe(childSchema),
    };
    if (depth >= maxDepth) return [member];
    const nestedMembers =
      childSchema.items === undefined
        ? rowsOf(document, childSchema, `${prefix}${name}.`, depth + 1)
        : rowsOf(document, childSchema.items, `${prefix}${name}[].`, depth + 1);
    return [member, ...nestedMembers];
  });
}

/** Follows a reference and merges the members of `allOf`. */
function merge(document: Document, value: DescribedSchema | Reference): DescribedSchema {
  const schema = resolve<DescribedSchema>(document, value);
  const description =
    isReference(value) && 'description' in value ? { description: String(value.description) } : {};
  const parts = (schema.allOf ?? []).map((part) => merge(document, part));
  if (parts.length === 0) return { ...schema, ...description };
  return {
    ...schema,
    properties: Object.fromEntries(
      [...parts, schema].flatMap(({ properties = {} }) => Object.entries(properties)),
    ),
    required: [...parts.flatMap(({ required = [] }) => required), ...(schema.required ?? [])],
    ...description,
  };
}

/** The type in words: `string`, `integer, 1 to 100`, `"a" or "b"`, `list of Tool`. */
export function typeOf(document: Document, value: DescribedSchema | Reference): string {
  const schema = merge(document, value);
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum !== undefined) return listAlternatives(schema.enum.map((item) => JSON.stringify(item)));
  const forms = schema.oneOf ?? schema.anyOf;
  if (forms !== undefined) return listAlternatives([...new Set(forms.map((form) => nameOf(document, form)))]);
  const types = [schema.type ?? 'object'].flat();
  if (types.includes('array') && schema.items !== undefined)
    return listAlternatives([
      `list of ${nameOf(document, schema.items)}`,
      ...types.filter((type) => type !== 'array'),
    ]);
  return `${types.join(' or ')}${describeRange(schema)}`;
}

function nameOf(document: Document, value: DescribedSchema | Reference): string {
  const schema = resolve<DescribedSchema>(document, value);
  const isObject = schema.properties !== undefined || schema.oneOf !== undefined;
  if (isReference(value) && isObject) return value.$ref.split('/').at(-1) ?? 'object';
  return typeOf(document, value);
}

// A long list of values is cut; the reference page shows it in full.
function listAlternatives(values: readonly string[]): string {
  if (values.length > 8) return `${values.slice(0, 7).join(', ')} or ${values.length - 7} more`;
  const [finalValue = '', ...earlierValues] = values.toReversed();
  return earlierValues.length === 0
    ? finalValue
    : `${earlierValues.toReversed().join(', ')} or ${finalValue}`;
}

function describeRange({ minimum: lowest, maximum, maxLength, format }: DescribedSchema): string {
  // The bounds of the safe integers only repeat what JavaScript can represent, so they are not shown.
  const minimum = lowest === Number.MIN_SAFE_INTEGER ? undefined : lowest;
  const upperBound = maximum === Number.MAX_SAFE_INTEGER ? undefined : maximum;
  if (minimum !== undefined && upperBound !== undefined) return `, ${minimum} to ${upperBound}`;
  if (minimum !== undefined) return `, at least ${minimum}`;
  if (upperBound !== undefined) return `, at most ${upperBound}`;
  if (maxLength !== undefined) return `, at most ${maxLength} characters`;
  return format === undefined || /^(?:int|double|float)/.test(format) ? '' : `, ${format}`;
}

function describe({ description = '', default: fallback }: DescribedSchema): string {
  const text = description.replaceAll(/\s+/g, ' ').trim();
  const value = fallback === undefined ? '' : `Default ${JSON.stringify(fallback)}.`;
  return [text, value].filter((part) => part !== '').join(' ');
}
