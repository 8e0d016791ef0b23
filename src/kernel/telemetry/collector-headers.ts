// The headers of requests to the collector of traces, as `OTEL_EXPORTER_OTLP_HEADERS` gives them.

/** Reads `name=value` pairs, separated by commas; invalid pairs are dropped. */
export function parseHeaders(text: string | undefined): Record<string, string> {
  const pairs = (text ?? '').split(',').flatMap((pair): [string, string][] => {
    const [, name, value] = /^\s*([!#$%&'*+.^_`|~0-9A-Za-z-]+)\s*=\s*(.*?)\s*$/.exec(pair) ?? [];
    return name === undefined || value === undefined ? [] : [[name, decodeHeaderValue(value)]];
  });
  return Object.fromEntries(pairs);
}

/** Decodes a percent-encoded value of a header; any other text is returned unchanged. */
export function decodeHeaderValue(value: string): string {
  try {
    return decodeURIComponent(value);
  } catch {
    return value;
  }
}
