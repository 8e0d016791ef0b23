// Requires that each `pattern` compiles, and means the same, in JavaScript with and
// without the `u` flag, in RE2 (Go, Rust), in Python's `re` and in Java. It refuses
// syntax that one of these engines lacks or reads differently.

const escapes = new Set([...'dDwWsSbBtnrfv', ...'^$\\.*+?()[]{}|/']);
// RE2 refuses higher repeat counts.
const maximumRepeat = 1000;

export function portablePattern() {
  return {
    Schema(schema, ctx) {
      if (schema.pattern === undefined) return;
      const reason = portabilityError(schema.pattern);
      if (reason !== null)
        ctx.report({
          message: `The pattern ${schema.pattern} ${reason}.`,
          location: ctx.location.child(['pattern']),
        });
    },
  };
}

/** Why some engine refuses the pattern or reads it differently; null when all engines agree. */
export function portabilityError(pattern) {
  for (const flags of ['', 'u']) {
    try {
      RegExp(pattern, flags);
    } catch {
      return `does not compile in JavaScript ${flags === 'u' ? 'with' : 'without'} the u flag`;
    }
  }
  if (/[^\x20-\x7e]/.test(pattern))
    return 'holds a character outside of ASCII; write a class of what is allowed';
  return groupError(pattern) ?? repeatError(pattern) ?? escapeError(pattern) ?? classError(pattern);
}

function groupError(pattern) {
  const [group] = /(?<!\\)(?:\\\\)*\(\?(?!:)..?/.exec(pattern) ?? [];
  return group === undefined
    ? null
    : `uses ${group.slice(group.indexOf('('))}, and only (?: is known everywhere`;
}

function repeatError(pattern) {
  const counts = [...pattern.matchAll(/\{(\d+)(?:,(\d*))?\}/g)].flatMap(([, minimum, maximum]) => [
    minimum,
    maximum,
  ]);
  return counts.some((count) => Number(count ?? 0) > maximumRepeat)
    ? `repeats more than ${maximumRepeat} times, which RE2 refuses; use maxLength`
    : null;
}

function escapeError(pattern) {
  for (let index = 0; index < pattern.length; index += 1) {
    if (pattern[index] !== '\\') continue;
    index += 1;
    if (pattern[index] === 'x' && /^[0-9a-fA-F]{2}/.test(pattern.slice(index + 1))) continue;
    const isDashInClass =
      pattern[index] === '-' && pattern.lastIndexOf('[', index) > pattern.lastIndexOf(']', index);
    if (!escapes.has(pattern[index]) && !isDashInClass)
      return `uses \\${pattern[index]}, which is not known everywhere; \\xHH is`;
  }
  return null;
}

// Java nests a class at a bare `[` and intersects at `&&`; RE2 and Python have no empty class.
function classError(pattern) {
  for (const [, negation, content] of pattern.matchAll(/(?<!\\)\[(\^?)((?:\\.|[^\]\\])*)\]/g)) {
    if (content === '') return `holds the empty class [${negation}]`;
    if (/(?<!\\)\[/.test(content)) return 'holds a bare [ in a class; write \\[';
    if (/&&|--|\|\||~~|\\[bB]/.test(content))
      return `holds ${content} as a class, which Java or Python reads otherwise`;
  }
  return null;
}
