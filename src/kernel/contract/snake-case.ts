// Accepts member names in snake case, the second spelling that Protocol Buffers allow in JSON: Google's APIs
// accept `mime_type` for the documented `mimeType` (https://protobuf.dev/programming-guides/json), and some
// clients send it.
import { isRecord, type JsonRecord } from '../json-value.ts';
import { type OpenApiDocument, resolveReference } from './document.ts';

interface ObjectSchema {
  properties?: Record<string, object>;
  items?: object;
}

interface Shape {
  /** Declared names by their spelling in snake case, where the two spellings differ. */
  names: ReadonlyMap<string, string>;
  members: ReadonlyMap<string, object>;
  items: object | undefined;
}

/**
 * Returns a function that renames members in snake case to those that the schema declares. Members
 * of objects that the schema leaves open, such as the arguments of a function, keep their names. It
 * copies only objects with a member to rename and changes the rest of the value in place: copying all
 * objects of a large body would block the process for a second.
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

/** Returns the same object if no member has to be renamed. */
function renameMembers(value: JsonRecord, names: Shape['names']): JsonRecord {
  // If both spellings are present, the snake-case member keeps its name, and the validator rejects it.
  const declaredName = (name: string): string => {
    const declared = names.get(name);
    return declared === undefined || Object.hasOwn(value, declared) ? name : declared;
  };
  for (const name in value) {
    if (declaredName(name) === name) continue;
    // `fromEntries` defines members instead of assigning them, so `__proto__` stays an ordinary member.
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
