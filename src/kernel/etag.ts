// Comparison of entity tags.

/**
 * Whether a header `If-None-Match` has the tag. The comparison is weak (RFC 9110): a proxy that
 * compresses makes the tag weak.
 */
export function includesTag(ifNoneMatch: string, etag: string): boolean {
  return ifNoneMatch
    .split(',')
    .map((tag) => tag.trim().replace(/^W\//, ''))
    .some((tag) => tag === etag || tag === '*');
}
