// The events of a streamed reply as values, whether its handler returned values or the bytes of a provider.
import type { AnyReply } from '../contract/reply.ts';
import { isRecord, type JsonRecord, parseJsonOrUndefined } from '../json-value.ts';

/** Throws for a reply without events. */
export async function* eventsOf(reply: AnyReply): AsyncGenerator<JsonRecord> {
  if (reply.events !== undefined) {
    for await (const { data } of reply.events) yield data as JsonRecord;
    return;
  }
  const { content } = reply;
  if (content === undefined) throw new Error('A call of a socket has no events.');
  const decoder = new TextDecoder();
  let rest = '';
  for await (const chunk of content instanceof Uint8Array ? [content] : content) {
    const frames = (rest + decoder.decode(chunk, { stream: true })).split(/\r?\n\r?\n/);
    rest = frames.pop() ?? '';
    for (const frame of frames) {
      const event = eventOf(frame);
      if (event !== undefined) yield event;
    }
  }
  const last = eventOf(rest);
  if (last !== undefined) yield last;
}

function eventOf(frame: string): JsonRecord | undefined {
  const data = frame
    .split(/\r?\n/)
    .flatMap((line) => (line.startsWith('data:') ? [line.slice(5).trimStart()] : []))
    .join('\n');
  const event = parseJsonOrUndefined(data);
  return isRecord(event) ? event : undefined;
}
