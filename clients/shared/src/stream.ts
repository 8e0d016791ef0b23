// Reads server-sent events from a fetch body. It never reconnects or repeats a request; a stream
// that ends without its `[DONE]` is a truncation error. The creator of the scope closes it.

import { createParser } from 'eventsource-parser';
import type { Failure } from './client-error.ts';
import type { AbortScope } from './abort-scope.ts';

// The gateway's own limit for one event of a provider that sends media.
const defaultMaxEventChars = 32 * 1024 * 1024;

// The server closes the response right after `[DONE]`; waiting for that makes the connection
// reusable. Give up after this time.
const closingLimitMs = 250;

export interface ReadOptions {
  scope: AbortScope;
  /**
   * The longest silence between two reads; the server's heartbeat is every 15 s. 0 means no limit.
   */
  idleTimeoutMs: number;
  maxEventChars?: number | undefined;
  /** Whether the stream ends with `[DONE]`; without it the stream ends when the connection closes. */
  hasEndMark: boolean;
  fail: (failure: Failure) => Error;
}

/** Yields the `data` of each event until the end; `[DONE]` is not yielded. */
export async function* readEvents(
  response: Response,
  options: ReadOptions,
): AsyncGenerator<string, void, undefined> {
  const { scope, idleTimeoutMs, maxEventChars = defaultMaxEventChars, hasEndMark, fail } = options;
  const pieces: string[] = [];
  let isTooLarge = false;
  const parser = createParser({
    onEvent: (event) => pieces.push(event.data),
    onError: (error) => {
      isTooLarge ||= error.type === 'max-buffer-size-exceeded';
    },
    maxBufferSize: maxEventChars,
  });
  const decoder = new TextDecoder();
  const reader = response.body?.getReader();
  for (;;) {
    // The timer runs only while waiting for the server, so a slow reader does not time out.
    scope.arm(idleTimeoutMs);
    const chunk = await reader?.read();
    scope.disarm();
    if (chunk?.done === true && !hasEndMark) return scope.release();
    if (chunk === undefined || chunk.done) {
      throw fail({
        status: response.status,
        code: 'stream_truncated',
        message: 'The stream ended before its answer was complete.',
      });
    }
    parser.feed(decoder.decode(chunk.value, { stream: true }));
    for (const data of pieces.splice(0)) {
      if (data === '[DONE]') {
        if (reader !== undefined) await readToEnd(reader, scope);
        return;
      }
      yield data;
    }
    if (isTooLarge) {
      throw fail({
        status: response.status,
        code: 'stream_event_too_large',
        message: `An event of the stream is longer than ${maxEventChars} characters.`,
      });
    }
  }
}

async function readToEnd(reader: ReadableStreamDefaultReader<Uint8Array>, scope: AbortScope): Promise<void> {
  scope.arm(closingLimitMs);
  try {
    while (!(await reader.read()).done);
    scope.release();
  } catch {
    // The answer is complete, so a connection error at this point does not matter.
  }
}
