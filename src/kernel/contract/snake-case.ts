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
 * Returns a function that renames members in snake case to those that the schema declares. Members
 * of objects that the schema leaves open, such as the arguments of a function, keep their names. It
 * changes the value that it gets: copies of all objects of a large body would block the process for
 * a second.
 */
export function createSnakeCaseReader(
  document: OpenApiDocument,
  schema: object,
): (value: unknown) => unknown {
  const shapes = new Map<object, Shape>();

  function shapeOf(node: object): Shape {
    let shape = shapes.get(node);
    if (shape === undefined)
      shapes.set(node, (shape = readShape(resolveReference<ObjectSchema>(document, node))));
    return shape;
  }

  // Recursion is safe: the parser has bounded the depth of the body.
  function read(value: unknown, node: object): unknown {
    const { names, members, items } = shapeOf(node);
    if (Array.isArray(value)) {
      if (items !== undefined)
        for (let index = 0; index < value.length; index += 1) value[index] = read(value[index], items);
      return value;
    }
    if (!isRecord(value) || members.size === 0) return value;
    const record = renameMembers(value, names);
    for (const name in record) {
      const member = members.get(name);
      if (member === undefined) continue;
      const memberValue = record[name];
      if (typeof memberValue === 'object') record[name] = read(memberValue, member);
    }
    return record;
  }

  return (value) => read(value, schema);
}

/** The same object if it has no name to replace. */
function renameMembers(value: JsonRecord, names: Shape['names']): JsonRecord {
  // With both spellings the validator refuses the one in snake case.
  const declaredName = (name: string): string => {
    const declared = names.get(name);
    return declared === undefined || Object.hasOwn(value, declared) ? name : declared;
  };
  for (const name in value) {
    if (declaredName(name) === name) continue;
    // `fromEntries` defines members, so `__proto__` of a body is one like any other.
    return Object.fromEntries(Object.entries(value).map(([key, member]) => [declaredName(key), member]));
  }
  return value;
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
