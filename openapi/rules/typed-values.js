// Asks for what typed languages need to choose a type: `type` beside each `const`
// and `enum`, and on each integer its width (`int32` or `int64`) and both bounds. A
// number in a foreign format (`x-foreign: true`) may have no bounds.

const int32 = { minimum: -(2 ** 31), maximum: 2 ** 31 - 1 };
const safeBounds = { minimum: Number.MIN_SAFE_INTEGER, maximum: Number.MAX_SAFE_INTEGER };

export function typedValues() {
  const foreignSchemas = new WeakSet();
  return {
    Schema(schema, ctx) {
      if (schema['x-foreign'] === true || foreignSchemas.has(schema)) markChildren(schema, foreignSchemas);
      const report = (message, member) => ctx.report({ message, location: ctx.location.child([member]) });
      for (const keyword of ['const', 'enum']) {
        if (schema[keyword] !== undefined && schema.type === undefined)
          report(`There is no \`type\` beside \`${keyword}\`.`, keyword);
      }
      if (![schema.type].flat().includes('integer') || schema.const !== undefined) return;
      checkInteger(schema, foreignSchemas.has(schema) || schema['x-foreign'] === true, report);
    },
  };
}

function checkInteger(schema, isForeign, report) {
  if (!['int32', 'int64'].includes(schema.format)) {
    report('An integer has the format int32 or int64.', 'type');
    return;
  }
  const minimum = schema.minimum ?? schema.exclusiveMinimum;
  const maximum = schema.maximum ?? schema.exclusiveMaximum;
  if (!isForeign && schema.enum === undefined && (minimum === undefined || maximum === undefined))
    report('An integer has a `minimum` and a `maximum`.', 'type');
  const limits = schema.format === 'int32' ? int32 : safeBounds;
  if (minimum < limits.minimum || maximum > limits.maximum)
    report(
      `The bounds do not fit ${schema.format === 'int32' ? 'int32' : 'a number of JavaScript'}.`,
      'type',
    );
}

// Parents are visited before what is written inside them.
function markChildren(value, foreign) {
  for (const child of Object.values(value)) {
    if (typeof child !== 'object' || child === null || foreign.has(child)) continue;
    foreign.add(child);
    markChildren(child, foreign);
  }
}
