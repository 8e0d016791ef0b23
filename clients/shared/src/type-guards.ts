// Guards for the unions of the contract, whose members are distinguished by `type`.

/**
 * A guard for values of the given types, to filter or to branch with.
 *
 * @example
 * ```ts
 * const texts = parts.filter(hasType('text-delta')).map(({ delta }) => delta);
 * ```
 */
export function hasType<const Type extends string>(
  ...types: readonly Type[]
): <Value extends { type: string }>(value: Value) => value is Extract<Value, { type: Type }> {
  const typeSet = new Set<string>(types);
  return <Value extends { type: string }>(value: Value): value is Extract<Value, { type: Type }> =>
    typeSet.has(value.type);
}
