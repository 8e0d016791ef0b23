// Base64 data URLs (RFC 2397), in which callers send files inline.

export interface DataUrl {
  /** The media type without parameters; empty in a URL that names no type. */
  mediaType: string;
  /** Base64, not checked. */
  data: string;
}

// Formats and metering share this parser, so that they agree on what is a file: metering would count a file
// that it took for text by its bytes. The bound keeps the pattern from scanning megabytes of data.
const maxHeadChars = 512;

/** Undefined for any other string, and when more than 512 characters precede the data. */
export function parseDataUrl(url: string): DataUrl | undefined {
  // The optional group must start with a semicolon: two adjacent runs of the same characters would
  // backtrack quadratically.
  const head = /^data:([^;,]*)(?:;[^,]*)?;base64,/i.exec(url.slice(0, maxHeadChars));
  return head === null ? undefined : { mediaType: head[1] ?? '', data: url.slice(head[0].length) };
}
