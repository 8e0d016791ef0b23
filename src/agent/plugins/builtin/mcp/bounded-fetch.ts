// A `fetch` whose responses fail, and close their connection, above a size limit. MCP servers belong
// to third parties: an endless answer would fill the agent's memory.

// Limit of a JSON answer, or of one event of a stream; the MCP SDK has the same limit for messages
// over pipes.
const maxAnswerBytes = 10 * 1024 * 1024;
// The SDK puts an error's body into its message, and messages are logged.
const maxErrorBytes = 2 * 1024;

export function boundedFetch(fetch: typeof globalThis.fetch) {
  return async (url: string | URL, init?: RequestInit): Promise<Response> => {
    const response = await fetch(url, init);
    if (response.body === null) return response;
    const isStream = /^\s*text\/event-stream\s*(?:;|$)/i.test(response.headers.get('content-type') ?? '');
    const maxBytes = response.ok ? maxAnswerBytes : maxErrorBytes;
    const { status, statusText, headers } = response;
    const body = response.body.pipeThrough(limitBytes(maxBytes, { isPerEvent: isStream }));
    return new Response(body, { status, statusText, headers });
  };
}

function limitBytes(
  maxBytes: number,
  { isPerEvent }: { isPerEvent: boolean },
): TransformStream<Uint8Array, Uint8Array> {
  const count = isPerEvent ? createEventCounter() : createByteCounter();
  return new TransformStream({
    transform(chunk, controller) {
      if (count(chunk) > maxBytes)
        throw new Error(`The answer of the server is larger than ${maxBytes / 1024} KiB.`);
      controller.enqueue(chunk);
    },
  });
}

function createByteCounter(): (chunk: Uint8Array) => number {
  let bytes = 0;
  return (chunk) => (bytes += chunk.length);
}

/**
 * Counts the bytes of the current event, which an empty line ends (Server-Sent Events, WHATWG HTML
 * 9.2).
 */
function createEventCounter(): (chunk: Uint8Array) => number {
  const [lineFeed, carriageReturn] = [10, 13];
  let bytes = 0;
  let lineLength = 0;
  let previous = 0;
  return (chunk) => {
    for (const byte of chunk) {
      bytes += 1;
      const endsLine = byte === carriageReturn || (byte === lineFeed && previous !== carriageReturn);
      if (endsLine && lineLength === 0) bytes = 0;
      if (endsLine) lineLength = 0;
      else if (byte !== lineFeed) lineLength += 1;
      previous = byte;
    }
    return bytes;
  };
}
