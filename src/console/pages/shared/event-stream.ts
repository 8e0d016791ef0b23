// Server-sent events over fetch, because EventSource can neither send headers nor detect a silent
// connection.
import { keyHeaders } from './key.ts';

export interface ServerEvent {
  name: string;
  data: string;
}

export interface EventStreamOptions {
  onEvent(event: ServerEvent): void;
  /**
   * Called once when the stream ends, unless `close` was called. `status` is the HTTP status of a
   * refused request, or 0 after a lost connection.
   */
  onEnd(status: number): void;
  /** The longest silence; the server writes at least every 15 seconds. */
  silenceMs?: number;
  fetch?: typeof fetch;
}

export interface EventStream {
  close(): void;
}

export function openEventStream(
  url: string,
  { onEvent, onEnd, silenceMs = 40_000, fetch: send = fetch }: EventStreamOptions,
): EventStream {
  const abort = new AbortController();
  let isClosed = false;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const restartSilenceTimer = (): void => {
    clearTimeout(timer);
    timer = setTimeout(() => abort.abort(), silenceMs);
  };

  async function read(): Promise<number> {
    restartSilenceTimer();
    const response = await send(url, {
      headers: { accept: 'text/event-stream', ...keyHeaders() },
      signal: abort.signal,
    });
    if (!response.ok || response.body === null) return response.status;
    const parse = createEventParser((event) => {
      if (!isClosed) onEvent(event);
    });
    const decoder = new TextDecoder();
    const reader = response.body.getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return 0;
      restartSilenceTimer();
      parse(decoder.decode(value, { stream: true }));
    }
  }

  void read()
    .catch(() => 0)
    .then((status) => {
      clearTimeout(timer);
      abort.abort();
      if (!isClosed) onEnd(status);
    });
  return {
    close() {
      isClosed = true;
      clearTimeout(timer);
      abort.abort();
    },
  };
}

/**
 * Parses text in pieces of any size. It supports the console's format only: `event` and one `data`
 * line, then an empty line.
 */
export function createEventParser(onEvent: (event: ServerEvent) => void): (text: string) => void {
  // Pieces of the unfinished line, joined once it is complete: a large event arrives in many
  // pieces.
  let pieces: string[] = [];
  let name = 'message';
  let data: string[] = [];

  function parseLine(line: string): void {
    if (line === '') {
      if (data.length > 0) onEvent({ name, data: data.join('\n') });
      name = 'message';
      data = [];
    } else if (line.startsWith('data: ')) data.push(line.slice('data: '.length));
    else if (line.startsWith('event: ')) name = line.slice('event: '.length);
  }

  return (text) => {
    const lines = text.split('\n');
    const rest = lines.pop() ?? '';
    for (const line of lines) {
      parseLine(pieces.length === 0 ? line : pieces.join('') + line);
      pieces = [];
    }
    if (rest !== '') pieces.push(rest);
  };
}
