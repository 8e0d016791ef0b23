/**
 * The approximate length of the value as JSON, without escapes. Stops counting above the limit, so that it
 * is fast for values of any size.
 */
export function approximateJsonBytes(value: unknown, limit: number): number {
  let length = 0;
  const pendingValues = [value];
  while (pendingValues.length > 0 && length <= limit) {
    const next = pendingValues.pop();
    if (typeof next === 'string') length += next.length > limit ? next.length : Buffer.byteLength(next) + 2;
    else if (Array.isArray(next)) {
      length += next.length + 2;
      if (length > limit) break;
      for (const item of next as unknown[]) pendingValues.push(item);
    } else if (typeof next === 'object' && next !== null) {
      length += 2;
      for (const name in next) {
        length += Buffer.byteLength(name) + 4;
        if (length > limit) break;
        pendingValues.push((next as Record<string, unknown>)[name]);
      }
    } else length += 4;
  }
  return length;
}
