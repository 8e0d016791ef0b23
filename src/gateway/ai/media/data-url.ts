// Data URLs in base64 (RFC 2397), the form in which callers send files inline.

export interface DataUrl {
  /** The media type without parameters; empty in a URL that names no type. */
  mediaType: string;
  /** Base64, not checked. */
  data: string;
}

// Formats and metering must agree on what is a file: a file that metering took for text would be
// counted by its bytes. The bound keeps the pattern off megabytes of data.
const maxHeadChars = 512;

/** Undefined for any other text, and for a head of more than 512 characters. */
export function parseDataUrl(url: string): DataUrl | undefined {
  // The optional group must start with a semicolon: two adjacent runs of the same characters would
  // backtrack quadratically.
  const head = /^data:([^;,]*)(?:;[^,]*)?;base64,/i.exec(url.slice(0, maxHeadChars));
  return head === null ? undefined : { mediaType: head[1] ?? '', data: url.slice(head[0].length) };
}
