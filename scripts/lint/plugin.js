// The lint rule for names: `townhall/plain-names` refuses the retired words of retired-words.json as names of
// variables, parameters, functions and types.
import retired from './retired-words.json' with { type: 'json' };

const participles = new Set(retired.participles);
const terms = new Map(Object.entries(retired.terms));

function messageFor(name) {
  const lowerCaseName = name.charAt(0).toLowerCase() + name.slice(1);
  const replacement = terms.get(name) ?? terms.get(lowerCaseName);
  if (replacement !== undefined) return `"${name}" is a retired word: use ${replacement}.`;
  if (participles.has(name)) return `"${name}" is a bare participle: name what the value is.`;
  return undefined;
}

/** All identifiers that a pattern declares: `{ a: [b], ...c } = d` declares b and c. */
function declaredNames(pattern) {
  switch (pattern?.type) {
    case 'Identifier':
      return [pattern];
    case 'ObjectPattern':
      return pattern.properties.flatMap((property) => declaredNames(property.value ?? property.argument));
    case 'ArrayPattern':
      return pattern.elements.flatMap(declaredNames);
    case 'AssignmentPattern':
      return declaredNames(pattern.left);
    case 'RestElement':
      return declaredNames(pattern.argument);
    case 'TSParameterProperty':
      return declaredNames(pattern.parameter);
    default:
      return [];
  }
}

const plainNames = {
  create(context) {
    const check = (pattern) => {
      for (const node of declaredNames(pattern)) {
        const message = messageFor(node.name);
        if (message !== undefined) context.report({ node, message });
      }
    };
    const checkFunction = (node) => {
      check(node.id);
      node.params.forEach(check);
    };
    return {
      VariableDeclarator: (node) => check(node.id),
      FunctionDeclaration: checkFunction,
      FunctionExpression: checkFunction,
      ArrowFunctionExpression: (node) => node.params.forEach(check),
      CatchClause: (node) => check(node.param),
      TSInterfaceDeclaration: (node) => check(node.id),
      TSTypeAliasDeclaration: (node) => check(node.id),
    };
  },
};

const plugin = { meta: { name: 'townhall' }, rules: { 'plain-names': plainNames } };

export default plugin;
