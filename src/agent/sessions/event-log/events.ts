// The durable events of a session's log. Each is stored under its `seq`; what a reader needs to know of a run can
// be told from them alone, so a message is only their projection.
import type { SessionEvent as WireEvent } from '../../../contract/agent/types.gen.ts';

/** How a run ended; every accepted run ends in exactly one of these. */
export type RunOutcome = 'completed' | 'failed' | 'cancelled' | 'interrupted' | 'expired';

/** What went wrong, as the log keeps it: for the owner of the session, without the exception's text. */
export interface RunError {
  code: string;
  message: string;
}

type Envelope = 'sessionId' | 'time' | 'seq' | 'runId';
type Bare<Event> = Event extends { type: string } ? Omit<Event, Envelope> : never;
type Live = 'stream.ready' | 'stream.reset' | 'part.delta' | 'part.snapshot';

/** An event of the contract without what the log adds: session, run, seq and time. */
export type SessionEvent = Bare<Exclude<WireEvent, { type: Live }>>;

/** One that is in the log. */
export interface StoredEvent {
  sessionKey: string;
  seq: number;
  runId: string | null;
  type: string;
  /** The members of the event's own, as JSON text: a reader of many events need not parse them. */
  json: string;
  time: string;
}

/** The members of one event. */
export function readEvent(event: Pick<StoredEvent, 'type' | 'json'>): SessionEvent {
  return { type: event.type, ...(JSON.parse(event.json) as object) } as SessionEvent;
}

// PostgreSQL stores neither NUL nor half a surrogate pair in jsonb, and a model or a tool may write either.
// JSON.stringify gives both as escapes, and gives no other character of these ranges as one.
const unstorable = /(?<!\\)((?:\\\\)*)\\u(?:0000|d[89a-f][0-9a-f]{2})/g;

/** JSON that PostgreSQL takes: what it cannot keep in a string becomes a replacement character. */
export function asJson(value: unknown): string {
  const text = JSON.stringify(value);
  return isStorable(value) ? text : text.replace(unstorable, '$1\ufffd');
}

// A look at the strings costs a tenth of what a search among the escapes of their JSON does.
function isStorable(value: unknown): boolean {
  if (typeof value === 'string') return !value.includes('\u0000') && value.isWellFormed();
  if (typeof value !== 'object' || value === null) return true;
  if (Array.isArray(value)) return value.every(isStorable);
  return Object.entries(value).every(([name, member]) => isStorable(name) && isStorable(member));
}

/** The same for a plain text column. */
export function asText(value: string): string {
  return value.replaceAll('\u0000', '\ufffd').toWellFormed();
}
