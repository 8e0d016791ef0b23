// Follows a reference, and every reference that it leads to, relative to the file that contains it.

/**
 * Returns the node that the references lead to, with its location. An unresolved reference gives an empty
 * object, because redocly's rule `no-unresolved-refs` already reports it.
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
