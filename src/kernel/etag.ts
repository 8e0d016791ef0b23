// Comparison of entity tags.

/**
 * Whether the header `If-None-Match` contains the tag. The comparison is weak (RFC 9110), because a
 * proxy that compresses a response marks its tag as weak.
 */
export function includesTag(ifNoneMatch: string, etag: string): boolean {
  return ifNoneMatch
    .split(',')
    .map((tag) => tag.trim().replace(/^W\//, ''))
    .some((tag) => tag === etag || tag === '*');
}
