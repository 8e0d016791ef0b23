// Server-sent events over fetch, because EventSource can send neither a header nor notice a connection that is silent.
import { keyHeaders } from './key.ts';

export interface ServerEvent {
  name: string;
  data: string;
}

export interface EventStreamOptions {
  onEvent(event: ServerEvent): void;
  /** Called once when the stream is over and `close` was not called: `status` is that of a refusal, 0 for a loss. */
  onEnd(status: number): void;
  /** The longest time without a byte; the server writes at least every 15 seconds. */
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
  const noteByte = (): void => {
    clearTimeout(timer);
    timer = setTimeout(() => abort.abort(), silenceMs);
  };

  async function read(): Promise<number> {
    noteByte();
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
      noteByte();
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

/** Takes text in pieces of any size. Knows what the console writes: `event` and one `data` line, ended by an empty line. */
export function createEventParser(onEvent: (event: ServerEvent) => void): (text: string) => void {
  // Pieces of the unfinished line, joined once it is complete: a large event comes in many pieces.
  let pieces: string[] = [];
  let name = 'message';
  let data: string[] = [];

  function takeLine(line: string): void {
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
      takeLine(pieces.length === 0 ? line : pieces.join('') + line);
      pieces = [];
    }
    if (rest !== '') pieces.push(rest);
  };
}
