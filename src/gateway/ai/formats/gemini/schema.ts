// Converts Gemini's schemas to JSON Schema. They follow OpenAPI 3.0, with `nullable`, types in capitals and
// counts as strings.
import { isRecord } from '../../../../kernel/json-value.ts';

const schemaMembers = ['items', 'additionalProperties'];
const schemaLists = ['anyOf'];
const schemaMaps = ['properties'];
const counts = ['minItems', 'maxItems', 'minLength', 'maxLength', 'minProperties', 'maxProperties'];
/** Google accepts snake case too; the map leads to the name in camel case. */
const keywords = new Map(
  [...counts, ...schemaMembers, ...schemaLists, 'propertyOrdering'].map((name) => [
    name.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`),
    name,
  ]),
);
// `propertyOrdering` orders members for Google's own models; `nullable` becomes the type `null`.
const notJsonSchema = ['propertyOrdering', 'nullable'];

/** Recursion is safe: the parser has bounded the depth of the body. */
export function toJsonSchema(schema: Readonly<Record<string, unknown>>): Record<string, unknown> {
  const entries = Object.entries(schema)
    .map(([name, value]): [string, unknown] => [keywords.get(name) ?? name, value])
    .filter(([name]) => !notJsonSchema.includes(name))
    .map(([name, value]): [string, unknown] => [name, convertMember(name, value)]);
  const jsonSchema = Object.fromEntries(entries);
  return schema['nullable'] === true ? withNull(jsonSchema) : jsonSchema;
}

/** The schema that also allows null. A schema without `type`, `anyOf` and `enum` allows null already. */
function withNull(schema: Record<string, unknown>): Record<string, unknown> {
  const { type, anyOf, enum: values } = schema;
  // Not null as one of the values, since Google supports only strings and numbers there.
  if (Array.isArray(values)) return { anyOf: [schema, { type: 'null' }] };
  return {
    ...schema,
    ...(typeof type === 'string' ? { type: [type, 'null'] } : {}),
    ...(Array.isArray(anyOf) ? { anyOf: [...(anyOf as unknown[]), { type: 'null' }] } : {}),
  };
}

function convertMember(name: string, value: unknown): unknown {
  if (name === 'type' && typeof value === 'string') return value.toLowerCase();
  if (counts.includes(name) && typeof value === 'string') return Number(value);
  if (schemaMembers.includes(name) && isRecord(value)) return toJsonSchema(value);
  if (schemaLists.includes(name) && Array.isArray(value))
    return value.map((member: unknown) => (isRecord(member) ? toJsonSchema(member) : member));
  if (schemaMaps.includes(name) && isRecord(value))
    return Object.fromEntries(
      Object.entries(value).map(([member, memberValue]) => [
        member,
        isRecord(memberValue) ? toJsonSchema(memberValue) : memberValue,
      ]),
    );
  return value;
}
