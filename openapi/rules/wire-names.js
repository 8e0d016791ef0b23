// Checks the spelling of members and parameters: snake_case at the gateway and in shared schemas,
// camelCase at the agent, except `plugin_name` and `action_name`. A schema or parameter of a third-party
// format is marked `x-foreign: true`, which covers everything inside it. Headers keep the spelling of HTTP.

import { createForeignSchemas } from './foreign.js';

const snake = /^[a-z][a-z0-9]*(?:_[a-z0-9]+)*$/;
const camel = /^[a-z][a-zA-Z0-9]*$/;
const agentExceptions = new Set(['plugin_name', 'action_name']);
// Both surfaces share the error envelope, so its members are in snake_case on the agent too.
const conventions = {
  gateway: { name: 'snake_case', fits: (name) => snake.test(name) },
  shared: { name: 'snake_case', fits: (name) => snake.test(name) },
  agent: { name: 'camelCase', fits: (name) => camel.test(name) || agentExceptions.has(name) },
};

export function wireNames() {
  const foreignSchemas = createForeignSchemas();
  return {
    Schema(schema, ctx) {
      if (foreignSchemas.has(schema)) return;
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
