/** Decodes a name in a JSON pointer (RFC 6901). In a URI fragment it must be percent-decoded first. */
export function decodePointerName(name: string): string {
  return name.replaceAll('~1', '/').replaceAll('~0', '~');
}
