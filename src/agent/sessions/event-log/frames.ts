// Encodes events for the two formats of the stream, server-sent events and NDJSON.
import type { StoredEvent } from './events.ts';
import type { OpenPart, TextDelta, ToolDelta } from './live-feed.ts';

export type StreamFormat = 'sse' | 'ndjson';

export const mediaTypes = { sse: 'text/event-stream', ndjson: 'application/x-ndjson' } as const;

/** Keep an idle connection open. */
export const heartbeats: Record<StreamFormat, Buffer> = {
  sse: Buffer.from(': hb\n\n'),
  ndjson: Buffer.from('\n'),
};

// All subscribers of a session get the same event object, so it is encoded once for all of them.
const encodedFrames = { sse: new WeakMap<object, Buffer>(), ndjson: new WeakMap<object, Buffer>() };

export function eventBytes(event: StoredEvent, sessionId: string, format: StreamFormat): Buffer {
  return encodeOnce(event, format, () => eventText(event, sessionId, format));
}

export function eventText(event: StoredEvent, sessionId: string, format: StreamFormat): string {
  const json = eventJson(event, sessionId);
  return format === 'sse' ? `id: ${event.seq}\nevent: ${event.type}\ndata: ${json}\n\n` : `${json}\n`;
}

/**
 * A frame of the stream of all sessions: its id is a time, because a seq counts the events of one session.
 */
export function timedEventText(event: StoredEvent, sessionId: string): string {
  return `id: ${Date.parse(event.time)}\nevent: ${event.type}\ndata: ${eventJson(event, sessionId)}\n\n`;
}

// The JSON of an event is concatenated as text, so that a replay of thousands of events parses none
// of them.
function eventJson(event: StoredEvent, sessionId: string): string {
  const run = event.runId === null ? '' : `,"runId":${JSON.stringify(event.runId)}`;
  const members = event.json.slice(1).trimStart();
  const end = members === '}' ? '}' : `,${members}`;
  return (
    `{"type":"${event.type}","sessionId":${JSON.stringify(sessionId)}${run},` +
    `"time":"${event.time}","seq":${event.seq}${end}`
  );
}

export function deltaBytes(delta: TextDelta, sessionId: string, format: StreamFormat): Buffer {
  return encodeOnce(delta, format, () => {
    const { part, offset, text, time } = delta;
    const { runId, messageId, partId, partType } = part;
    return liveText(
      { type: 'part.delta', sessionId, runId, time, messageId, partId, partType, offset, delta: text },
      format,
    );
  });
}

export function toolDeltaBytes(delta: ToolDelta, sessionId: string, format: StreamFormat): Buffer {
  return encodeOnce(delta, format, () => liveText({ ...delta, sessionId }, format));
}

export function snapshotText(part: OpenPart, sessionId: string, time: string, format: StreamFormat): string {
  const { runId, messageId, partId, partType, text } = part;
  return liveText(
    { type: 'part.snapshot', sessionId, runId, time, messageId, partId, partType, text },
    format,
  );
}

/** An event without a seq. */
export function liveText(event: { type: string } & Record<string, unknown>, format: StreamFormat): string {
  const json = JSON.stringify(event);
  return format === 'sse' ? `event: ${event.type}\ndata: ${json}\n\n` : `${json}\n`;
}

function encodeOnce(key: object, format: StreamFormat, encode: () => string): Buffer {
  const existing = encodedFrames[format].get(key);
  if (existing) return existing;
  const bytes = Buffer.from(encode());
  encodedFrames[format].set(key, bytes);
  return bytes;
}
