// Server-sent events of a provider at the level of bytes: whole events out of whatever pieces the network makes,
// each still the bytes that came, and the one rule for all of them: a stream without its format's end did not end well.
import { isUtf8 } from 'node:buffer';
import { Problem } from '../../../kernel/problem.ts';
import { topLevelMembers, type Member, type Members } from './json-members.ts';
import { textForLog } from './provider-error.ts';

/** One event of a provider's stream. */
export interface ProviderEvent {
  /** All its bytes, the empty line that ends it included. */
  bytes: Buffer;
  /** What it carries: a JSON object by its members, the word `[DONE]`, or nothing (a comment). */
  data: { kind: 'object'; members: Member[] } | { kind: 'done' } | { kind: 'none' };
  /** Whether the stream ends with it, by the rule of its format. */
  isEnd?: boolean;
  /** Whether it says that the answer came to nothing, in the format's own words. */
  hasFailed?: boolean;
}

/**
 * How a format ends a whole stream: `done` with the word `[DONE]`; `messages` and `responses` with an event of a
 * certain type; `gemini` with the connection, once a reason for the end has been given.
 */
export type EndRule = 'done' | 'messages' | 'responses' | 'gemini';

/** Whole events out of pieces; what is unfinished is kept for the next piece. */
export interface EventSplitter {
  feed(piece: Uint8Array): Buffer[];
  /** How much of an unfinished event is held. */
  bufferedBytes(): number;
}

const lf = 0x0a;
const cr = 0x0d;

export function createEventSplitter(): EventSplitter {
  // Unfinished pieces stay apart until their event is whole: joining them at each piece would be quadratic.
  let held: Buffer[] = [];
  let bufferedBytes = 0;
  let lineIsEmpty = true;
  let lastWasCr = false;

  return {
    feed(piece) {
      const bytes = Buffer.from(piece.buffer, piece.byteOffset, piece.byteLength);
      const events: Buffer[] = [];
      let start = 0;
      for (let at = 0; at < bytes.length; at += 1) {
        const byte = bytes[at];
        if (byte === lf && lastWasCr) {
          // The second half of a CRLF whose first half has already ended the line.
          lastWasCr = false;
          continue;
        }
        lastWasCr = byte === cr;
        if (byte !== lf && byte !== cr) {
          lineIsEmpty = false;
          continue;
        }
        if (!lineIsEmpty) {
          lineIsEmpty = true;
          continue;
        }
        // An empty line ends the event; the LF of its CRLF belongs to it where it is already here.
        const end = byte === cr && bytes[at + 1] === lf ? at + 2 : at + 1;
        if (end === at + 2) {
          at += 1;
          lastWasCr = false;
        }
        const tail = bytes.subarray(start, end);
        events.push(held.length === 0 ? tail : Buffer.concat([...held, tail]));
        held = [];
        bufferedBytes = 0;
        start = end;
      }
      if (start < bytes.length) {
        held.push(bytes.subarray(start));
        bufferedBytes += bytes.length - start;
      }
      return events;
    },
    bufferedBytes: () => bufferedBytes,
  };
}

/**
 * The events of a provider's stream, in groups as they arrived, up to its end. Throws a Problem for an error event,
 * for bytes that are not what the format says, and for a connection that ends before the stream does.
 */
export async function* providerEvents(
  body: AsyncIterable<Uint8Array>,
  maxEventBytes: number,
  rule: EndRule,
): AsyncGenerator<ProviderEvent[]> {
  const splitter = createEventSplitter();
  let first = true;
  let mayEnd = false;
  for await (const piece of body) {
    const events: ProviderEvent[] = [];
    let failure: Problem | undefined;
    let ended = false;
    try {
      for (const bytes of splitter.feed(piece)) {
        const event = readEvent(first ? withoutByteOrderMark(bytes) : bytes);
        first = false;
        const meaning = meaningOf(event, rule);
        if (meaning === 'failure') throw reportedError(undefined);
        if (meaning === 'early') throw truncated();
        ended = meaning === 'end' || meaning === 'failed end';
        if (ended) event.isEnd = true;
        if (meaning === 'failed end') event.hasFailed = true;
        events.push(event);
        mayEnd ||= meaning === 'reason';
        if (ended) break;
      }
      if (splitter.bufferedBytes() > maxEventBytes) throw foreignData('sent an event that is too long');
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      failure = error;
    }
    // What came whole before the fault is still the caller's.
    if (events.length > 0) yield events;
    if (ended) return;
    if (failure !== undefined) throw failure;
  }
  const isCut = splitter.bufferedBytes() > 0;
  const last = lastEvent(splitter, rule);
  if (last !== undefined) yield [last];
  else if (!mayEnd || isCut) throw truncated();
}

// Some servers leave out the empty line behind their last event. A whole one that is the format's end is the end all
// the same; anything else that lies there was cut.
function lastEvent(splitter: EventSplitter, rule: EndRule): ProviderEvent | undefined {
  const [bytes] = splitter.bufferedBytes() === 0 ? [] : splitter.feed(Buffer.from('\n\n'));
  if (bytes === undefined) return undefined;
  try {
    const event = readEvent(bytes);
    const meaning = meaningOf(event, rule);
    return meaning === 'end' || meaning === 'failed end' || meaning === 'reason'
      ? { ...event, isEnd: true, hasFailed: meaning === 'failed end' }
      : undefined;
  } catch {
    return undefined;
  }
}

function truncated(): Problem {
  return new Problem(
    'upstream_failed',
    'upstream_truncated',
    'The model provider ended its answer before it was complete.',
  );
}

const lastResponseEvents = new Set(['response.completed', 'response.incomplete', 'response.cancelled']);

function meaningOf(
  { bytes, data }: ProviderEvent,
  rule: EndRule,
): 'end' | 'failed end' | 'early' | 'reason' | 'failure' | undefined {
  if (rule === 'done') return data.kind === 'done' ? 'end' : undefined;
  // No word of these formats, though some servers add it behind their end. Before that, clients would take it for one.
  if (data.kind === 'done') return rule === 'gemini' ? undefined : 'early';
  if (data.kind !== 'object') return undefined;
  if (rule === 'gemini')
    return /"(?:finishReason|blockReason)"/.test(bytes.toString('latin1')) ? 'reason' : undefined;
  const type = data.members.find((member) => member.name === 'type');
  const text = type === undefined ? '' : bytes.toString('latin1', type.start + 1, type.end - 1);
  if (text === 'error') return 'failure';
  if (text === 'response.failed') return 'failed end';
  return text === 'message_stop' || lastResponseEvents.has(text) ? 'end' : undefined;
}

const reasonName = Buffer.from('"finish_reason"');
const completeTypes = new Set([
  'content_block_stop',
  'message_delta',
  'response.output_text.done',
  'response.output_item.done',
]);

/** Whether the event completes an answer, or a part of it, so that the usage may follow. */
export function completesAnswer({ bytes, data }: ProviderEvent, rule: EndRule): boolean {
  if (data.kind !== 'object') return false;
  if (rule === 'done') return hasFinishReason(bytes);
  if (rule === 'gemini') return false;
  const type = data.members.find((member) => member.name === 'type');
  return type !== undefined && completeTypes.has(bytes.toString('latin1', type.start + 1, type.end - 1));
}

// Every chunk has the member; it is a text in the last one of a choice alone.
function hasFinishReason(bytes: Buffer): boolean {
  for (let at = bytes.indexOf(reasonName); at >= 0; at = bytes.indexOf(reasonName, at + 1)) {
    if (/^\s*:\s*"/.test(bytes.toString('latin1', at + reasonName.length, at + reasonName.length + 16)))
      return true;
  }
  return false;
}

const dataName = Buffer.from('data:');
const eventName = Buffer.from('event:');
const doneText = Buffer.from('[DONE]');

function readEvent(bytes: Buffer): ProviderEvent {
  if (!isUtf8(bytes)) throw foreignData('sent bytes that are not UTF-8');
  const { lines, isError } = readLines(bytes);
  if (lines.length === 0) return { bytes, data: { kind: 'none' } };
  if (lines.length > 1) return readEvent(joined(bytes, lines, isError));
  const [start, lineEnd] = lines[0] ?? [0, 0];
  let end = lineEnd;
  while (end > start && bytes[end - 1] === 0x20) end -= 1;
  if (end - start === doneText.length && bytes.compare(doneText, 0, doneText.length, start, end) === 0) {
    return { bytes, data: { kind: 'done' } };
  }
  const object = topLevelMembers(bytes, start, end);
  if (object === undefined) throw foreignData('sent an event that is not a JSON object');
  const error =
    findError(bytes, object) ?? (isError ? reportedError(bytes.toString('utf8', start, end)) : undefined);
  if (error !== undefined) throw error;
  return { bytes, data: { kind: 'object', members: object.members } };
}

/** The error that a provider reports in a document of a success, in its member `error` or by the kind of its object. */
export function findError(bytes: Buffer, { members }: Members): Problem | undefined {
  const error = members.find(({ name }) => name === 'error');
  if (error !== undefined && bytes.toString('latin1', error.start, error.end) !== 'null')
    return reportedError(bytes.toString('utf8', error.start, error.end));
  const kind = members.find(({ name }) => name === 'object');
  if (kind === undefined || bytes.toString('latin1', kind.start, kind.end) !== '"error"') return undefined;
  const code = members.find(({ name }) => name === 'code');
  return reportedError(code && `{"code":${bytes.toString('utf8', code.start, code.end)}}`);
}

// The spans of the values of all `data` lines, and whether the event is named an error.
function readLines(bytes: Buffer): { lines: [number, number][]; isError: boolean } {
  const lines: [number, number][] = [];
  let isError = false;
  let lineStart = 0;
  for (let at = 0; at < bytes.length; at += 1) {
    if (bytes[at] !== lf && bytes[at] !== cr) continue;
    if (begins(bytes, lineStart, at, dataName)) {
      const value = lineStart + dataName.length;
      lines.push([bytes[value] === 0x20 ? value + 1 : value, at]);
    } else if (begins(bytes, lineStart, at, eventName)) {
      isError = bytes.toString('latin1', lineStart + eventName.length, at).trim() === 'error';
    }
    lineStart = at + 1;
  }
  return { lines, isError };
}

function begins(bytes: Buffer, from: number, to: number, name: Buffer): boolean {
  return to - from >= name.length && bytes.compare(name, 0, name.length, from, from + name.length) === 0;
}

// A document over several `data` lines has its line ends between tokens, where a space means the same.
function joined(bytes: Buffer, lines: readonly [number, number][], isError: boolean): Buffer {
  const text = lines.map(([start, end]) => bytes.toString('utf8', start, end)).join(' ');
  return Buffer.from(`${isError ? 'event: error\n' : ''}data: ${text}\n\n`, 'utf8');
}

// It may stand before the first event and is no part of it.
function withoutByteOrderMark(bytes: Buffer): Buffer {
  return bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf ? bytes.subarray(3) : bytes;
}

function foreignData(what: string): Problem {
  return new Problem('upstream_failed', 'upstream_failed', `The model provider ${what}.`);
}

// The statuses that these words of an error stand for, so that one before the first byte can be tried again.
const statusOfType: Readonly<Record<string, number>> = {
  overloaded_error: 529,
  rate_limit_error: 429,
  api_error: 500,
  server_error: 500,
};

function reportedError(json: string | undefined): Problem {
  const { type, code, status, message } = errorMembers(json);
  // The log hides live keys by their values.
  const words = typeof message === 'string' ? textForLog(message, (text) => text) : undefined;
  const said =
    [status, code].find((value) => typeof value === 'number') ??
    statusOfType[String(type)] ??
    statusOfType[String(code)];
  return new Problem(
    'upstream_failed',
    'upstream_failed',
    'The model provider reported an error and ended its answer.',
    {
      cause: said === undefined && words === undefined ? undefined : { status: said, words },
    },
  );
}

function errorMembers(json: string | undefined): {
  type?: unknown;
  code?: unknown;
  status?: unknown;
  message?: unknown;
} {
  try {
    const value: unknown = JSON.parse(json ?? '{}');
    return typeof value === 'object' && value !== null ? value : {};
  } catch {
    return {};
  }
}
