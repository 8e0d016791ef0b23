// Requires that an operationId is `service.verbNoun`, that the service is the operation's
// one tag, and that the verb is in the table of verbs and fits the HTTP method.

import { verbs } from './verbs.js';

const shape = /^([a-z]+)\.([a-z]+)(?:[A-Z][A-Za-z]*)?$/;

export function operationName() {
  return {
    Operation(operation, ctx) {
      const { operationId, tags = [] } = operation;
      const report = (message, member = 'operationId') =>
        ctx.report({ message, location: ctx.location.child([member]) });
      const match = shape.exec(operationId ?? '');
      if (match === null) {
        report(
          `operationId ${JSON.stringify(operationId ?? null)} is not of the shape service.verbNoun, such as bureaus.pauseBureau.`,
        );
        return;
      }
      const [, service, verb] = match;
      if (tags.length !== 1) report(`${operationId} needs exactly one tag, its service.`, 'tags');
      else if (tags[0] !== service)
        report(`${operationId} has the tag ${tags[0]}; its service and its tag are one word.`, 'tags');
      const method = String(ctx.key).toUpperCase();
      if (!Object.hasOwn(verbs, verb))
        report(
          `The verb "${verb}" of ${operationId} is not in openapi/rules/verbs.js; take one that is, or add it there with its one meaning.`,
        );
      else if (!verbs[verb].methods.includes(method))
        report(`${operationId} is a ${method}, but "${verb}" ${verbs[verb].meaning}.`);
    },
  };
}
