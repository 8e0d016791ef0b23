// Requires that an id means the same type wherever it appears: members and parameters of these names
// refer to the shared schema, so that clients get one type with one pattern and one description.

const types = {
  user_id: 'UserId',
  bureau_id: 'BureauId',
  token_id: 'TokenId',
  model_id: 'ModelId',
  email: 'Email',
};

export function sharedTypes() {
  const check = (name, schema, ctx, place) => {
    const type = types[name];
    if (type === undefined || refersTo(schema, type)) return;
    ctx.report({
      message: `\`${name}\` must refer to the shared schema ${type}.yaml.`,
      location: ctx.location.child(place),
    });
  };
  return {
    Schema(schema, ctx) {
      for (const [name, member] of Object.entries(schema.properties ?? {}))
        check(name, member, ctx, ['properties', name]);
    },
    Parameter(parameter, ctx) {
      check(parameter.name, parameter.schema, ctx, ['schema']);
    },
  };
}

// Directly, or as one member of a union, such as with null.
function refersTo(schema = {}, type) {
  const references = [schema, ...(schema.anyOf ?? []), ...(schema.oneOf ?? []), ...(schema.allOf ?? [])];
  return references.some(({ $ref }) => typeof $ref === 'string' && $ref.endsWith(`/${type}.yaml`));
}
