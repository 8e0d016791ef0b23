// The schemas of foreign formats: those with `x-foreign: true`, and all that is written inside them.

/** `has` expects that parents are asked about first, in the order in which redocly visits schemas. */
export function createForeignSchemas() {
  const schemas = new WeakSet();
  return {
    has(schema) {
      if (schema['x-foreign'] === true) markInside(schema, schemas);
      return schemas.has(schema);
    },
  };
}

function markInside(value, schemas) {
  if (typeof value !== 'object' || value === null || schemas.has(value)) return;
  schemas.add(value);
  for (const child of Object.values(value)) markInside(child, schemas);
}
