// Reads server-sent events from a fetch body. It never reconnects and never sends anything again, and a stream that
// ends without `[DONE]` was cut off and is an error. The caller that created the lifeline closes it.

import { createParser } from 'eventsource-parser';
import type { Failure } from './client-error.ts';
import type { Lifeline } from './lifeline.ts';

// The contract's own cap for one line of a stream that carries media.
const defaultMaxEventChars = 32 * 1024 * 1024;

// The server ends the connection right behind `[DONE]`; waiting for that lets it be used again. A server that does not
// is left after this long.
const closingLimitMs = 250;

export interface ReadOptions {
  lifeline: Lifeline;
  /** The longest silence between two reads; the server's heartbeat is every 15 s. 0 means no limit. */
  idleTimeoutMs: number;
  maxEventChars?: number | undefined;
  fail: (failure: Failure) => Error;
}

/** Yields the `data` of each event until `[DONE]`, which is not yielded. */
export async function* readEvents(
  response: Response,
  options: ReadOptions,
): AsyncGenerator<string, void, undefined> {
  const { lifeline, idleTimeoutMs, maxEventChars = defaultMaxEventChars, fail } = options;
  const pieces: string[] = [];
  let tooLarge = false;
  const parser = createParser({
    onEvent: (event) => pieces.push(event.data),
    onError: (error) => {
      tooLarge ||= error.type === 'max-buffer-size-exceeded';
    },
    maxBufferSize: maxEventChars,
  });
  const decoder = new TextDecoder();
  const reader = response.body?.getReader();
  for (;;) {
    // The clock runs only while we wait for the server, so a slow reader is not taken for a silent server.
    lifeline.arm(idleTimeoutMs);
    const chunk = await reader?.read();
    lifeline.disarm();
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
        if (reader !== undefined) await readToEnd(reader, lifeline);
        return;
      }
      yield data;
    }
    if (tooLarge) {
      throw fail({
        status: response.status,
        code: 'stream_event_too_large',
        message: `An event of the stream is longer than ${maxEventChars} characters.`,
      });
    }
  }
}

async function readToEnd(reader: ReadableStreamDefaultReader<Uint8Array>, lifeline: Lifeline): Promise<void> {
  lifeline.arm(closingLimitMs);
  try {
    while (!(await reader.read()).done);
    lifeline.release();
  } catch {
    // The answer is complete; how its connection ends does not matter any more.
  }
}
