// The durable events of a session's log, each stored under its `seq`. Messages and
// runs are projections of them.
import type { SessionEvent as ContractEvent, UiMessage } from '../../../contract/agent/types.gen.ts';

/** Every accepted run ends in exactly one of these. */
export type RunOutcome = 'completed' | 'failed' | 'cancelled' | 'interrupted' | 'expired';

/** The error of a run as the owner of the session sees it; it never contains the text of an exception. */
export interface RunError {
  code: string;
  message: string;
}

type Envelope = 'sessionId' | 'time' | 'seq' | 'runId';
type Bare<Event> = Event extends { type: string } ? Omit<Event, Envelope> : never;
type Live =
  | 'stream.ready'
  | 'stream.reset'
  | 'part.delta'
  | 'part.snapshot'
  | 'tool.input.delta'
  | 'tool.output.delta';

/** An event of the contract without the members that the log adds: session, run, seq and time. */
export type SessionEvent = Bare<Exclude<ContractEvent, { type: Live }>>;

export interface StoredEvent {
  sessionKey: string;
  seq: number;
  runId: string | null;
  type: string;
  /** The event's own members as JSON text, so that a replay of many events parses none of them. */
  json: string;
  time: string;
}

export function readEvent(event: Pick<StoredEvent, 'type' | 'json'>): SessionEvent {
  return { type: event.type, ...(JSON.parse(event.json) as object) } as SessionEvent;
}

/** The message of a `message.completed`. */
export function readMessage(event: Pick<StoredEvent, 'json'>): UiMessage {
  return (JSON.parse(event.json) as { message: UiMessage }).message;
}

// PostgreSQL's jsonb accepts neither NUL nor lone surrogates, and a model or a tool may
// write either. JSON.stringify escapes both, and no other character of these ranges.
const unstorableEscapes = /(?<!\\)((?:\\\\)*)\\u(?:0000|d[89a-f][0-9a-f]{2})/g;

/** JSON for PostgreSQL: characters that it cannot store become U+FFFD. */
export function asJson(value: unknown): string {
  const text = JSON.stringify(value);
  return isStorable(value) ? text : text.replace(unstorableEscapes, '$1\ufffd');
}

// Checking the strings takes a tenth of the time that a search for escapes in their JSON takes.
function isStorable(value: unknown): boolean {
  if (typeof value === 'string') return !value.includes('\u0000') && value.isWellFormed();
  if (typeof value !== 'object' || value === null) return true;
  if (Array.isArray(value)) return value.every(isStorable);
  return Object.entries(value).every(([name, member]) => isStorable(name) && isStorable(member));
}

/** Text for PostgreSQL: characters that it cannot store become U+FFFD. */
export function asText(value: string): string {
  return value.replaceAll('\u0000', '\ufffd').toWellFormed();
}
