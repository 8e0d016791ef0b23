// Requires what typed languages need to choose a type: `type` beside each `const`
// and `enum`, and on each integer its width (`int32` or `int64`) and both bounds. A
// number in a third-party format (`x-foreign: true`) may have no bounds.

import { createForeignSchemas } from './foreign.js';

const int32 = { minimum: -(2 ** 31), maximum: 2 ** 31 - 1 };
const safeBounds = { minimum: Number.MIN_SAFE_INTEGER, maximum: Number.MAX_SAFE_INTEGER };

export function typedValues() {
  const foreignSchemas = createForeignSchemas();
  return {
    Schema(schema, ctx) {
      const isForeign = foreignSchemas.has(schema);
      const report = (message, member) => ctx.report({ message, location: ctx.location.child([member]) });
      for (const keyword of ['const', 'enum']) {
        if (schema[keyword] !== undefined && schema.type === undefined)
          report(`There is no \`type\` beside \`${keyword}\`.`, keyword);
      }
      if (![schema.type].flat().includes('integer') || schema.const !== undefined) return;
      checkInteger(schema, isForeign, report);
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
