// Requires that the members of a `oneOf` or `anyOf` have names and can be distinguished. An object in
// a union is a file of its own, so that generated types have a name for it. A union of several objects
// needs a `discriminator` whose mapping names each, or objects that exclude each other: of any two, one
// is closed and lacks a member that the other requires.

import { follow } from './follow.js';

export function unionMembers() {
  return {
    Schema(schema, ctx) {
      for (const keyword of ['oneOf', 'anyOf']) {
        if (Array.isArray(schema[keyword])) checkUnion(schema, keyword, ctx);
      }
    },
  };
}

function checkUnion(schema, keyword, ctx) {
  const report = (message, at = [keyword]) => ctx.report({ message, location: ctx.location.child(at) });
  if (schema.type !== undefined)
    report(
      `\`type\` beside \`${keyword}\` is read differently by each generator; declare it in the members.`,
      ['type'],
    );
  for (const [index, member] of schema[keyword].entries()) {
    if (member.$ref === undefined && !isScalarOrList(member))
      report(`Member ${index + 1} of the union is an object without a name; give it a file of its own.`, [
        keyword,
        index,
      ]);
  }
  const objects = objectsOf(schema[keyword], ctx, ctx.location);
  if (objects.length < 2) return;
  if (schema.discriminator !== undefined) checkMapping(schema, objects, ctx, report);
  else if (!hasOneOpenObject(objects, ctx) && !areExclusive(objects, schema['x-foreign'] === true))
    report(
      'The union of objects needs a `discriminator` with a `mapping`, or members that exclude each other.',
    );
}

// A schema with only a condition, such as `required`, counts as an object: generators create a type
// without a useful name for it.
function isScalarOrList(member) {
  const types = [member.type].flat();
  const isOneOf = (names) => types.every((type) => names.includes(type));
  if (member.const !== undefined || member.enum !== undefined) return true;
  return isOneOf(['string', 'number', 'integer', 'boolean', 'null', 'array']);
}

// A member that is itself a union counts with its own members.
function objectsOf(members, ctx, location) {
  return members.flatMap((member) => {
    const target = follow(ctx, member, location);
    const nested = target.node.oneOf ?? target.node.anyOf;
    if (nested !== undefined && target.node.properties === undefined)
      return objectsOf(nested, ctx, target.location);
    return isObject(target.node) ? [target] : [];
  });
}

// An open union: all objects but one require a common tag with distinct values, and the remaining object
// takes every other value, such as types that a provider adds. A `discriminator` cannot express that: its
// mapping has no entry for other values.
function hasOneOpenObject(objects, ctx) {
  const names = new Set(objects.flatMap(({ node }) => Object.keys(node.properties ?? {})));
  return [...names].some((name) => {
    const tags = objects.map((object) => tagsOf(ctx, object, name));
    const values = tags.flatMap((tag) => tag ?? []);
    return (
      tags.filter((tag) => tag === undefined).length === 1 &&
      values.length > 0 &&
      new Set(values).size === values.length
    );
  });
}

function isObject({ type, properties, allOf }) {
  return type === 'object' || properties !== undefined || allOf !== undefined;
}

function checkMapping({ discriminator }, objects, ctx, report) {
  const { propertyName, mapping = {} } = discriminator;
  for (const object of objects) {
    const tags = tagsOf(ctx, object, propertyName);
    const place = pointerOf(object.location);
    if (tags === undefined)
      report(`${nameOf(object)} does not require \`${propertyName}\` with a const or an enum.`);
    for (const tag of tags ?? []) {
      if (!Object.hasOwn(mapping, tag)) report(`The mapping of \`${propertyName}\` does not name "${tag}".`);
      else if (pointerOf(follow(ctx, { $ref: mapping[tag] }, ctx.location).location) !== place)
        report(`The mapping of \`${propertyName}\` does not lead from "${tag}" to ${nameOf(object)}.`);
    }
  }
}

function tagsOf(ctx, object, name) {
  const parts = partsOf(ctx, object);
  if (!parts.some(({ node }) => node.required?.includes(name))) return undefined;
  for (const { node, location } of parts) {
    if (node.properties?.[name] === undefined) continue;
    const tag = follow(ctx, node.properties[name], location).node;
    if (tag.const !== undefined) return [tag.const];
    if (Array.isArray(tag.enum)) return tag.enum;
  }
  return undefined;
}

function partsOf(ctx, { node, location }) {
  return [{ node, location }, ...(node.allOf ?? []).map((item) => follow(ctx, item, location))];
}

// Two objects exclude each other when one is closed and lacks a member that the other requires. Objects
// of third-party formats stay open, so each of the two must require a member that the other lacks.
function areExclusive(objects, isForeign) {
  return objects.every(({ node: one }, index) =>
    objects
      .slice(index + 1)
      .every(({ node: other }) =>
        isForeign
          ? lacksRequired(one, other) && lacksRequired(other, one)
          : (isClosed(one) && lacksRequired(one, other)) || (isClosed(other) && lacksRequired(other, one)),
      ),
  );
}

function isClosed({ additionalProperties }) {
  return additionalProperties === false;
}

function lacksRequired({ properties = {} }, { required = [] }) {
  return required.some((name) => !Object.hasOwn(properties, name));
}

function pointerOf({ source, pointer }) {
  return `${source.absoluteRef}#${pointer}`;
}

function nameOf({ node, location }) {
  return node.title ?? location.source.absoluteRef.split(/[\\/]/).at(-1);
}
