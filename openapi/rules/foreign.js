// The schemas of third-party formats: schemas with `x-foreign: true`, and everything inside them.

/** `has` must be called for a parent before its children, which is the order of redocly's visits. */
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
