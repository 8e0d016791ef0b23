// Asks for the spelling of names on the wire: snake_case at the gateway and in what
// both surfaces share, camelCase at the agent but for `plugin_name` and `action_name`.
// A schema or parameter in somebody else's format says so with `x-foreign: true`,
// which counts for everything written inside it; headers keep the spelling of HTTP.

const snake = /^[a-z][a-z0-9]*(?:_[a-z0-9]+)*$/;
const camel = /^[a-z][a-zA-Z0-9]*$/;
const agentExceptions = new Set(['plugin_name', 'action_name']);
// The error envelope is one for both surfaces and stays in snake_case on the agent too.
const conventions = {
  gateway: { name: 'snake_case', fits: (name) => snake.test(name) },
  shared: { name: 'snake_case', fits: (name) => snake.test(name) },
  agent: { name: 'camelCase', fits: (name) => camel.test(name) || agentExceptions.has(name) },
};

export function wireNames() {
  const foreign = new WeakSet();
  return {
    Schema(schema, ctx) {
      if (schema['x-foreign'] === true) markInside(schema, foreign);
      if (foreign.has(schema)) return;
      const convention = conventionAt(ctx);
      for (const name of Object.keys(schema.properties ?? {})) {
        if (convention?.fits(name) === false)
          ctx.report({
            message: `The member ${name} is not in ${convention.name}.`,
            location: ctx.location.child(['properties', name]).key(),
          });
      }
    },
    Parameter(parameter, ctx) {
      if (parameter['x-foreign'] === true || parameter.in === 'header') return;
      const convention = conventionAt(ctx);
      if (convention?.fits(parameter.name) === false)
        ctx.report({
          message: `The parameter ${parameter.name} is not in ${convention.name}.`,
          location: ctx.location.child(['name']),
        });
    },
  };
}

function conventionAt(ctx) {
  const folders = ctx.location.source.absoluteRef.split(/[\\/]/);
  const surface = folders[folders.lastIndexOf('openapi') + 1];
  return conventions[surface];
}

// Parents are visited before what is written inside them, so a marked schema's
// children are known when they come.
function markInside(value, foreign) {
  if (typeof value !== 'object' || value === null || foreign.has(value)) return;
  foreign.add(value);
  for (const child of Object.values(value)) markInside(child, foreign);
}
