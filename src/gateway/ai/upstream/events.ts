// Reads the server-sent events of a provider as bytes: keeps the bytes of each event, finds its
// members and texts, and fails a stream that closes before the end that its format requires.
import { asRecord, parseJsonOrUndefined } from '../../../kernel/json-value.ts';
import { isUtf8 } from 'node:buffer';
import { Problem } from '../../../kernel/problem.ts';
import { EventPattern } from './event-pattern.ts';
import { EventSplitter } from './event-splitter.ts';
import { type EventText, findTexts } from './event-texts.ts';
import { arrayItems, topLevelMembers, type Member, type Members, type Span } from './json-members.ts';
import { textForLog } from './provider-error.ts';

/**
 * The data of an event: a JSON object (`object`), an object that equals that of an earlier event
 * but for its text, which has this many bytes (`like`), `[DONE]`, or no data, as in a comment.
 */
export type EventData =
  | { kind: 'object'; members: readonly Member[]; texts: readonly EventText[] }
  | { kind: 'like'; pattern: EventPattern; textBytes: number }
  | { kind: 'done' }
  | { kind: 'none' };

/** One event of a provider's stream. */
export interface ProviderEvent {
  /** The whole event, including the empty line that ends it. */
  bytes: Buffer;
  data: EventData;
  /** Whether the stream ends with this event. */
  isEnd?: boolean;
  /** Whether the event ends the stream and reports that the answer failed. */
  hasFailed?: boolean;
}

/**
 * How a format ends a whole stream: `done` with `[DONE]`, `messages` and `responses` with an event
 * of a certain type, and `gemini` by closing the connection after an event with a finish reason.
 */
export type EndRule = 'done' | 'messages' | 'responses' | 'gemini';

const lf = 0x0a;
const cr = 0x0d;

export interface StreamRules {
  maxEventBytes: number;
  endRule: EndRule;
  /** Members of an event that hold text of the model; without them no text is found. */
  textMembers?: readonly string[];
}

/** Reads the events of one stream, in order. */
class EventReader {
  readonly #splitter = new EventSplitter();
  readonly #textMembers: readonly string[];
  #isFirst = true;
  #pattern: EventPattern | undefined;

  constructor(textMembers: readonly string[]) {
    this.#textMembers = textMembers;
  }

  feed(piece: Uint8Array): void {
    this.#splitter.feed(piece);
  }

  get bufferedBytes(): number {
    return this.#splitter.bufferedBytes;
  }

  get hasUnfinishedEvent(): boolean {
    return this.#splitter.hasUnfinishedEvent;
  }

  /**
   * Undefined when the piece has no further event. Throws a Problem for an error
   * event and for data that is not an object.
   */
  next(): ProviderEvent | undefined {
    const repetition = this.#nextLike();
    if (repetition !== undefined) return repetition;
    const bytes = this.#splitter.next();
    if (bytes === undefined) return undefined;
    const event = readEvent(this.#isFirst ? withoutByteOrderMark(bytes) : bytes, this.#textMembers);
    this.#isFirst = false;
    if (event.data.kind === 'object')
      this.#pattern = EventPattern.of(event.bytes, event.data.members, event.data.texts);
    return event;
  }

  #nextLike(): ProviderEvent | undefined {
    const pattern = this.#pattern;
    if (pattern === undefined) return undefined;
    const event = this.#splitter.nextLike(pattern);
    return event && { bytes: event.bytes, data: { kind: 'like', pattern, textBytes: event.textBytes } };
  }
}

/**
 * The events of a provider's stream up to its end, grouped as they arrived. Throws a Problem for an
 * error event, for invalid data, and for a connection that closes before the stream has ended.
 */
export async function* readProviderEvents(
  body: AsyncIterable<Uint8Array>,
  { maxEventBytes, endRule, textMembers = [] }: StreamRules,
): AsyncGenerator<ProviderEvent[]> {
  const reader = new EventReader(textMembers);
  let mayEnd = false;
  for await (const piece of body) {
    const events: ProviderEvent[] = [];
    let failure: Problem | undefined;
    let isEnded = false;
    reader.feed(piece);
    try {
      for (let event = reader.next(); event !== undefined; event = reader.next()) {
        const kind = classify(event, endRule);
        if (kind === 'error') throw errorOfEvent(event);
        if (kind === 'premature end') throw truncatedProblem();
        isEnded = kind === 'end' || kind === 'failed end';
        if (isEnded) event.isEnd = true;
        if (kind === 'failed end') event.hasFailed = true;
        events.push(event);
        mayEnd ||= kind === 'finish reason';
        if (isEnded) break;
      }
      if (reader.bufferedBytes > maxEventBytes) throw invalidData('sent an event that is too long');
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      failure = error;
    }
    // Deliver the complete events that precede the failure first.
    if (events.length > 0) yield events;
    if (isEnded) return;
    if (failure !== undefined) throw failure;
  }
  const { hasUnfinishedEvent } = reader;
  const lastEvent = readUnterminatedEnd(reader, endRule);
  if (lastEvent !== undefined) yield [lastEvent];
  else if (!mayEnd || hasUnfinishedEvent) throw truncatedProblem();
}

// Some servers omit the empty line after their last event. The buffered event is accepted if it
// ends the stream by the format's rule; otherwise the stream was cut.
function readUnterminatedEnd(reader: EventReader, rule: EndRule): ProviderEvent | undefined {
  if (!reader.hasUnfinishedEvent) return undefined;
  try {
    reader.feed(Buffer.from('\n\n'));
    const event = reader.next();
    if (event === undefined) return undefined;
    const kind = classify(event, rule);
    return kind === 'end' || kind === 'failed end' || kind === 'finish reason'
      ? { ...event, isEnd: true, hasFailed: kind === 'failed end' }
      : undefined;
  } catch {
    return undefined;
  }
}

export function truncatedProblem(): Problem {
  return new Problem(
    'upstream_failed',
    'upstream_truncated',
    'The model provider ended its answer before it was complete.',
  );
}

const lastResponseEvents = new Set(['response.completed', 'response.incomplete', 'response.cancelled']);

function classify(
  event: ProviderEvent,
  rule: EndRule,
): 'end' | 'failed end' | 'premature end' | 'finish reason' | 'error' | undefined {
  const { data } = event;
  if (rule === 'done') return data.kind === 'done' ? 'end' : undefined;
  // `[DONE]` is not part of these formats, but some servers send it after the end. In the middle of
  // a stream, clients would take it for the end.
  if (data.kind === 'done') return rule === 'gemini' ? undefined : 'premature end';
  if (data.kind !== 'object') return undefined;
  if (rule === 'gemini') return hasGeminiReason(event.bytes, data.members) ? 'finish reason' : undefined;
  const type = eventType(event);
  if (type === 'error') return 'error';
  if (type === 'response.failed') return 'failed end';
  return type === 'message_stop' || lastResponseEvents.has(type) ? 'end' : undefined;
}

// The reason is a member of a candidate, or of the feedback for a blocked prompt. The same names can
// occur in texts and in the arguments of tool calls.
function hasGeminiReason(bytes: Buffer, members: readonly Member[]): boolean {
  return members.some(({ name, start, end }) => {
    if (name === 'promptFeedback') return hasMember(bytes, { start, end }, 'blockReason');
    if (name !== 'candidates') return false;
    const candidates = arrayItems(bytes, start, end) ?? [];
    return candidates.some((candidate) => hasMember(bytes, candidate, 'finishReason'));
  });
}

function hasMember(bytes: Buffer, { start, end }: Span, memberName: string): boolean {
  const object = topLevelMembers(bytes, start, end);
  return object?.members.some(({ name }) => name === memberName) ?? false;
}

/** The type that the data of an event names; empty without one. */
export function eventType({ bytes, data }: ProviderEvent): string {
  const type = data.kind === 'object' ? data.members.find(({ name }) => name === 'type') : undefined;
  return type === undefined ? '' : bytes.toString('latin1', type.start + 1, type.end - 1);
}

/** The error in the event of a failed response; undefined for all other events. */
export function failureOfResponse({ bytes, data, hasFailed }: ProviderEvent): Problem | undefined {
  if (hasFailed !== true || data.kind !== 'object') return undefined;
  const response = data.members.find(({ name }) => name === 'response');
  const object = response && topLevelMembers(bytes, response.start, response.end);
  return object && findError(bytes, object);
}

const reasonName = Buffer.from('"finish_reason"');
const completeTypes = new Set([
  'content_block_stop',
  'message_delta',
  'response.output_text.done',
  'response.output_item.done',
]);

/**
 * Whether the event completes an answer or one of its parts; an event with the usage may follow.
 */
export function completesAnswer(event: ProviderEvent, rule: EndRule): boolean {
  if (event.data.kind !== 'object') return false;
  if (rule === 'done') return hasFinishReason(event.bytes);
  if (rule === 'gemini') return hasGeminiReason(event.bytes, event.data.members);
  return completeTypes.has(eventType(event));
}

// Every chunk has the member `finish_reason`; it has a text only in the last chunk of a choice. In the chunks
// before, it is null, or an empty string from some servers.
function hasFinishReason(bytes: Buffer): boolean {
  for (let offset = bytes.indexOf(reasonName); offset >= 0; offset = bytes.indexOf(reasonName, offset + 1)) {
    if (
      /^\s*:\s*"[^"]/.test(
        bytes.toString('latin1', offset + reasonName.length, offset + reasonName.length + 16),
      )
    )
      return true;
  }
  return false;
}

const dataName = Buffer.from('data:');
const eventName = Buffer.from('event:');
const doneText = Buffer.from('[DONE]');
// Replaces an event with empty data, which some servers send to keep a connection open. The standard ignores
// such an event, but many clients parse its data as JSON.
const emptyComment = Buffer.from(':\n\n');

function readEvent(bytes: Buffer, textMembers: readonly string[]): ProviderEvent {
  if (!isUtf8(bytes)) throw invalidData('sent bytes that are not UTF-8');
  const { lines, isError } = readLines(bytes);
  if (lines.length === 0) return { bytes, data: { kind: 'none' } };
  if (lines.length > 1) return readEvent(joinDataLines(bytes, lines), textMembers);
  const [start, lineEnd] = lines[0] ?? [0, 0];
  let end = lineEnd;
  while (end > start && bytes[end - 1] === 0x20) end -= 1;
  if (end - start === doneText.length && bytes.compare(doneText, 0, doneText.length, start, end) === 0) {
    return { bytes, data: { kind: 'done' } };
  }
  if (end === start && !isError) return { bytes: emptyComment, data: { kind: 'none' } };
  const object = topLevelMembers(bytes, start, end);
  if (object === undefined) throw invalidData('sent an event that is not a JSON object');
  const error =
    findError(bytes, object) ?? (isError ? reportedError(bytes.toString('utf8', start, end)) : undefined);
  if (error !== undefined) throw error;
  const { members } = object;
  const texts = textMembers.length === 0 ? [] : findTexts(bytes, members, textMembers);
  return { bytes, data: { kind: 'object', members, texts } };
}

/**
 * The error that a provider reports in a successful response: a member `error`,
 * or `object: 'error'`.
 */
export function findError(bytes: Buffer, { members }: Members): Problem | undefined {
  const error = members.find(({ name }) => name === 'error');
  if (error !== undefined && bytes.toString('latin1', error.start, error.end) !== 'null')
    return reportedError(bytes.toString('utf8', error.start, error.end));
  const object = members.find(({ name }) => name === 'object');
  if (object === undefined || bytes.toString('latin1', object.start, object.end) !== '"error"')
    return undefined;
  return errorOfMembers(bytes, members);
}

/** The error of an event of the type `error` that has the error's members itself. */
function errorOfEvent({ bytes, data }: ProviderEvent): Problem {
  return errorOfMembers(bytes, data.kind === 'object' ? data.members : []);
}

function errorOfMembers(bytes: Buffer, members: readonly Member[]): Problem {
  const errorMembers = members
    .filter(({ name }) => errorMemberNames.has(name))
    .map(({ name, start, end }) => `"${name}":${bytes.toString('utf8', start, end)}`);
  return reportedError(`{${errorMembers.join(',')}}`);
}

// The offsets of the values of all `data` lines, and whether the event's name is `error`.
function readLines(bytes: Buffer): { lines: [number, number][]; isError: boolean } {
  const lines: [number, number][] = [];
  let isError = false;
  let lineStart = 0;
  for (let offset = 0; offset < bytes.length; offset += 1) {
    if (bytes[offset] !== lf && bytes[offset] !== cr) continue;
    if (startsWith(bytes, lineStart, offset, dataName)) {
      const valueStart = lineStart + dataName.length;
      const hasSpace = bytes[valueStart] === 0x20;
      lines.push([hasSpace ? valueStart + 1 : valueStart, offset]);
    } else if (startsWith(bytes, lineStart, offset, eventName)) {
      isError = bytes.toString('latin1', lineStart + eventName.length, offset).trim() === 'error';
    }
    lineStart = offset + 1;
  }
  return { lines, isError };
}

function startsWith(bytes: Buffer, start: number, end: number, name: Buffer): boolean {
  return end - start >= name.length && bytes.compare(name, 0, name.length, start, start + name.length) === 0;
}

// The event with one `data` line after its other lines, such as `event` and `id`. JSON over several
// `data` lines is split between tokens, where a space is equivalent to a line break.
function joinDataLines(bytes: Buffer, dataLines: readonly [number, number][]): Buffer {
  const text = dataLines.map(([start, end]) => bytes.toString('utf8', start, end)).join(' ');
  const otherLines = bytes
    .toString('utf8')
    .split(/\r\n|\r|\n/)
    .filter((line) => line !== '' && !line.startsWith('data:'));
  return Buffer.from(`${[...otherLines, `data: ${text}`].join('\n')}\n\n`, 'utf8');
}

// A stream may begin with a byte order mark, which is not part of its first event.
function withoutByteOrderMark(bytes: Buffer): Buffer {
  return bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf ? bytes.subarray(3) : bytes;
}

export function invalidData(reason: string): Problem {
  return new Problem('upstream_failed', 'upstream_failed', `The model provider ${reason}.`);
}

// The HTTP statuses of these error types: an error before the first byte is retried if its status
// is transient.
const statusOfType: Readonly<Record<string, number>> = {
  overloaded_error: 529,
  rate_limit_error: 429,
  rate_limit_exceeded: 429,
  api_error: 500,
  server_error: 500,
};

const errorMemberNames = new Set(['type', 'code', 'status', 'message']);

/** The Problem of an error within an answer. `json` has its type or code, status and message. */
export function reportedError(json: string): Problem {
  const { type, code, status, message } = parseError(json);
  // Only patterns are redacted here; the log itself redacts live keys.
  const words = typeof message === 'string' ? textForLog(message, (text) => text) : undefined;
  const httpStatus =
    [status, code].find((value) => typeof value === 'number') ??
    statusOfType[String(type)] ??
    statusOfType[String(code)];
  return new Problem(
    'upstream_failed',
    'upstream_failed',
    'The model provider reported an error and ended its answer.',
    {
      cause: httpStatus === undefined && words === undefined ? undefined : { status: httpStatus, words },
    },
  );
}

function parseError(json: string): {
  type?: unknown;
  code?: unknown;
  status?: unknown;
  message?: unknown;
} {
  return asRecord(parseJsonOrUndefined(json));
}
