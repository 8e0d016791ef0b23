// Reads the events of a streamed reply as values, whether its handler returned values or a provider's bytes.
import type { SseEvent } from '../contract/operation.ts';
import { isRecord, type JsonRecord, parseJsonOrUndefined } from '../json-value.ts';

export interface StreamedReply {
  events?: AsyncIterable<SseEvent<unknown>> | undefined;
  content?: Uint8Array | AsyncIterable<Uint8Array> | undefined;
}

/** Throws for a reply without a stream. */
export async function* readEvents({ events, content }: StreamedReply): AsyncGenerator<JsonRecord> {
  if (events !== undefined) {
    for await (const { data } of events) yield data as JsonRecord;
    return;
  }
  if (content === undefined) throw new Error('The reply of a streamed call has no events.');
  for await (const frame of readFrames(content)) {
    const event = eventOf(frame);
    if (event !== undefined) yield event;
  }
}

/**
 * The frames of an event stream, each with its blank line. A frame may have megabytes in hundreds of chunks,
 * so each chunk is searched for a blank line only once.
 */
export async function* readFrames(content: Uint8Array | AsyncIterable<Uint8Array>): AsyncGenerator<string> {
  const chunks = content instanceof Uint8Array ? [content] : content;
  const decoder = new TextDecoder();
  let unfinishedFrame: string[] = [];
  // The end of the text so far: a blank line may begin there.
  let lastCharacters = '';
  for await (const chunk of chunks) {
    const text = decoder.decode(chunk, { stream: true });
    unfinishedFrame.push(text);
    const hasBlankLine = /\n\r?\n/.test(lastCharacters + text);
    lastCharacters = (lastCharacters + text).slice(-2);
    if (!hasBlankLine) continue;
    const frames = splitFrames(unfinishedFrame.join(''));
    const lastFrame = frames.at(-1) ?? '';
    unfinishedFrame = /\n\r?\n$/.test(lastFrame) ? [] : [lastFrame];
    yield* unfinishedFrame.length === 0 ? frames : frames.slice(0, -1);
  }
  const rest = unfinishedFrame.join('');
  if (rest !== '') yield rest;
}

/** The frames in the text, each with its blank line; the last frame may be incomplete. */
export function splitFrames(text: string): string[] {
  return text.split(/(?<=\n\r?\n)/);
}

/** The JSON object of a frame; undefined for a comment and other data. */
export function eventOf(frame: string): JsonRecord | undefined {
  const data = frame
    .split(/\r?\n/)
    .flatMap((line) => (line.startsWith('data:') ? [line.slice(5).trimStart()] : []))
    .join('\n');
  const event = parseJsonOrUndefined(data);
  return isRecord(event) ? event : undefined;
}
