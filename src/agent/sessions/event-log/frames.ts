// Events as bytes, for the two forms of the stream. The same event goes to every follower of a session in the same
// bytes, so they are made once.
import type { StoredEvent } from './events.ts';
import type { Delta, OpenPart } from './bus.ts';

export type StreamForm = 'sse' | 'ndjson';

const made = { sse: new WeakMap<object, Buffer>(), ndjson: new WeakMap<object, Buffer>() };

/** The JSON of a durable event. Put together as text: a replay of thousands parses none of them. */
function eventJson(event: StoredEvent, sessionId: string): string {
  const run = event.runId === null ? '' : `,"runId":${JSON.stringify(event.runId)}`;
  const own = event.json.slice(1).trimStart();
  return `{"type":"${event.type}","sessionId":${JSON.stringify(sessionId)}${run},"time":"${event.time}","seq":${event.seq}${own === '}' ? '}' : `,${own}`}`;
}

export function eventText(event: StoredEvent, sessionId: string, form: StreamForm): string {
  const json = eventJson(event, sessionId);
  return form === 'sse' ? `id: ${event.seq}\nevent: ${event.type}\ndata: ${json}\n\n` : `${json}\n`;
}

/** Shared between followers: the object is the key. */
export function eventBytes(event: StoredEvent, sessionId: string, form: StreamForm): Buffer {
  return once(event, form, () => eventText(event, sessionId, form));
}

export function deltaBytes(delta: Delta, sessionId: string, form: StreamForm): Buffer {
  return once(delta, form, () => {
    const { part, offset, text, time } = delta;
    return liveText(
      {
        type: 'part.delta',
        sessionId,
        runId: part.runId,
        time,
        messageId: part.messageId,
        partId: part.partId,
        offset,
        delta: text,
      },
      form,
    );
  });
}

export function snapshotText(part: OpenPart, sessionId: string, time: string, form: StreamForm): string {
  const { runId, messageId, partId, partType, text } = part;
  return liveText({ type: 'part.snapshot', sessionId, runId, time, messageId, partId, partType, text }, form);
}

/** An event without a seq. */
export function liveText(event: { type: string } & Record<string, unknown>, form: StreamForm): string {
  const json = JSON.stringify(event);
  return form === 'sse' ? `event: ${event.type}\ndata: ${json}\n\n` : `${json}\n`;
}

/** What keeps a quiet connection open. */
export const heartbeats: Record<StreamForm, Buffer> = {
  sse: Buffer.from(': hb\n\n'),
  ndjson: Buffer.from('\n'),
};

export const mediaTypes = { sse: 'text/event-stream', ndjson: 'application/x-ndjson' } as const;

function once(key: object, form: StreamForm, make: () => string): Buffer {
  const known = made[form].get(key);
  if (known) return known;
  const bytes = Buffer.from(make());
  made[form].set(key, bytes);
  return bytes;
}
