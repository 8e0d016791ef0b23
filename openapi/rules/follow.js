// Follows a reference, and the references behind it, from the file in which it is written.

/**
 * The node behind any references together with its location; an unresolved reference
 * gives an empty object, because `no-unresolved-refs` reports it already.
 */
export function follow(ctx, node, location) {
  let current = { node, location };
  for (let depth = 0; depth < 32 && typeof current.node?.$ref === 'string'; depth += 1) {
    const next = ctx.resolve(current.node, current.location.source.absoluteRef);
    if (next.node === undefined || next.location === undefined)
      return { node: {}, location: current.location };
    current = { node: next.node, location: next.location };
  }
  return { node: current.node ?? {}, location: current.location };
}
