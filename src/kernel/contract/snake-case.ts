// The second spelling of members in the JSON form of Protocol Buffers: Google's APIs read `mime_type` where
// their documents say `mimeType` (https://protobuf.dev/programming-guides/json), and some clients send it.
import { isRecord, type JsonRecord } from '../json-value.ts';
import { type OpenApiDocument, resolveReference } from './document.ts';

interface ObjectSchema {
  properties?: Record<string, object>;
  items?: object;
}

interface Shape {
  /** Declared members by their name in snake case, where that is another one. */
  names: ReadonlyMap<string, string>;
  members: ReadonlyMap<string, object>;
  items: object | undefined;
}

/**
 * Returns a function that renames members in snake case to those that the schema declares. Members of objects
 * that the schema leaves open, such as the arguments of a function, keep their names.
 */
export function createSnakeCaseReader(
  document: OpenApiDocument,
  schema: object,
): (value: unknown) => unknown {
  const shapes = new Map<object, Shape>();

  function shapeOf(node: object): Shape {
    const resolved = resolveReference<ObjectSchema>(document, node);
    let shape = shapes.get(resolved);
    if (shape === undefined) shapes.set(resolved, (shape = readShape(resolved)));
    return shape;
  }

  // Recursion is safe: the parser has bounded the depth of the body.
  function read(value: unknown, node: object): unknown {
    const { names, members, items } = shapeOf(node);
    if (Array.isArray(value))
      return items === undefined ? value : value.map((item: unknown) => read(item, items));
    if (!isRecord(value) || members.size === 0) return value;
    // Null prototype: `__proto__` of a body is a member like any other.
    const record = Object.create(null) as JsonRecord;
    for (const [name, memberValue] of Object.entries(value)) {
      const declared = names.get(name);
      // With both spellings the validator refuses the one in snake case.
      const key = declared === undefined || Object.hasOwn(value, declared) ? name : declared;
      const member = members.get(key);
      record[key] = member === undefined ? memberValue : read(memberValue, member);
    }
    return record;
  }

  return (value) => read(value, schema);
}

function readShape({ properties = {}, items }: ObjectSchema): Shape {
  const members = new Map(Object.entries(properties));
  const names = new Map<string, string>();
  for (const name of members.keys()) {
    const snakeName = name.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
    if (snakeName !== name && !members.has(snakeName)) names.set(snakeName, name);
  }
  return { names, members, items };
}
