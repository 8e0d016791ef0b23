// Forwards the event stream of a provider that supports the caller's format: the model's name,
// errors and an unrequested usage chunk are edited in the bytes, and heartbeats fill silence.
import type { Bill } from '../../billing/bill.ts';
import type { CatalogModel } from '../../catalog/catalog.ts';
import { maxEventBytesFor, type UpstreamAnswer } from '../../upstream/client.ts';
import { redactErrorEdits } from '../../upstream/error-text.ts';
import {
  eventType,
  failureOfResponse,
  readProviderEvents,
  type ProviderEvent,
} from '../../upstream/events.ts';
import type { EventPattern } from '../../upstream/event-pattern.ts';
import {
  concatEdited,
  topLevelMembers,
  type Edit,
  type EditedBytes,
  type Member,
} from '../../upstream/json-members.ts';
import { timeoutProblem } from '../../upstream/provider-error.ts';
import { isTransient, markBeforeContent } from '../../upstream/retry.ts';
import type { StreamRate } from '../../upstream/stream-rate.ts';
import type { PassthroughFormat } from './formats.ts';
import { modelNameEdits } from './request.ts';
import { SilenceTimer } from './silence-timer.ts';
import { createEventCounter } from './usage.ts';
import { upstreamFailed } from '../../hub/problems.ts';

export interface PassthroughStreamOptions {
  model: Pick<CatalogModel, 'id' | 'modalities'>;
  format: PassthroughFormat;
  wantsUsage: boolean;
  /** Interval of comments while the provider is silent. */
  heartbeatMs: number;
  /** Time left until the first content; set only if another backend or model can take over. */
  firstContentMs?: number | undefined;
  /** Renders the frame that ends a stream which failed midway; undefined when the caller has disconnected. */
  errorFrame: (error: unknown) => string | undefined;
  /**
   * Counts the events, and is settled before the caller receives the end. Absent for
   * calls of the gateway itself.
   */
  bill?: Bill | undefined;
  /** Absent for a model without a limit. */
  rate?: StreamRate | undefined;
}

/**
 * Resolves at the first content, in groups of whole events. Throws failures before it. A later
 * failure ends the stream with the frame of `errorFrame` instead of the format's own end.
 */
export async function readPassthroughStream(
  answer: UpstreamAnswer,
  options: PassthroughStreamOptions,
): Promise<AsyncIterable<Uint8Array>> {
  const { endRule, textMembers } = options.format;
  if (answer.mediaType !== 'text/event-stream') {
    answer.abort();
    throw upstreamFailed('The model provider did not answer with a stream.');
  }
  const maxEventBytes = maxEventBytesFor(endRule, options.model);
  const groups = readProviderEvents(answer.body, { maxEventBytes, endRule, textMembers });
  const { format, bill } = options;
  const count = bill === undefined ? () => {} : createEventCounter(format, bill);
  const start = await readStart(groups, { ...options, count }, answer).catch((error: unknown) => {
    markBeforeContent(error);
    throw error;
  });
  return forward(start, groups, { ...options, count, redact: answer.redact });
}

/** The counted events up to the first content, and the next group if it did not arrive in time. */
interface StreamStart {
  events: ProviderEvent[];
  pending?: NextGroup;
}

type CountEvent = (event: ProviderEvent) => void;
type StartOptions = Pick<PassthroughStreamOptions, 'heartbeatMs' | 'firstContentMs' | 'format'> & {
  count: CountEvent;
};

// Formats have up to three events before the content, and pings; the largest one repeats the instructions.
const maxHeldEvents = 1_000;
const maxHeldBytes = 4 * 1024 * 1024;

// Reads up to the first event with content, because a failure before it can still be retried or answered
// with an error status. After `heartbeatMs`, or when the events reach a limit of number or size, it returns
// without content: a caller that receives nothing would time out. Events are counted at once, so that a
// caller that disconnects here pays what the provider reports.
async function readStart(
  groups: AsyncGenerator<ProviderEvent[]>,
  { heartbeatMs, firstContentMs = Infinity, format, count }: StartOptions,
  { abort }: Pick<UpstreamAnswer, 'abort'>,
): Promise<StreamStart> {
  const events: ProviderEvent[] = [];
  let bytes = 0;
  const heartbeatDelay = createDelay(Math.min(heartbeatMs, firstContentMs));
  try {
    for (let pending = groups.next(); ; pending = groups.next()) {
      // Before the first event only the deadline of the first byte applies (upstream/deadlines.ts): until it
      // passes, the call can still end with a status of its own.
      const next =
        events.length === 0 ? await pending : await Promise.race([pending, heartbeatDelay.promise()]);
      if (next === undefined) {
        // `forward` awaits it, unless the caller disconnects first.
        pending.catch(() => {});
        if (firstContentMs <= heartbeatMs) {
          abort();
          throw timeoutProblem();
        }
        return { events, pending };
      }
      if (next.done === true) return { events };
      for (const event of next.value) {
        count(event);
        events.push(event);
        bytes += event.bytes.length;
      }
      const content = next.value.find((event) => hasContent(event, format));
      if (content === undefined && (events.length >= maxHeldEvents || bytes >= maxHeldBytes))
        return { events };
      if (content === undefined) continue;
      const failure = failureOfResponse(content);
      if (failure !== undefined && isTransient(failure)) {
        await groups.return(undefined);
        throw failure;
      }
      return { events };
    }
  } finally {
    heartbeatDelay.stop();
  }
}

function hasContent(event: ProviderEvent, { openingEvents }: PassthroughFormat): boolean {
  if (event.data.kind === 'none') return false;
  return openingEvents === undefined || !openingEvents.has(eventType(event));
}

/**
 * A promise that resolves to undefined after `ms`. It is created on demand, since most streams start with
 * content.
 */
function createDelay(ms: number) {
  let promise: Promise<undefined> | undefined;
  let isOver = false;
  let resolve = () => {
    isOver = true;
  };
  const timer = setTimeout(() => resolve(), ms);
  return {
    promise: () =>
      (promise ??= new Promise((settle) => {
        if (isOver) settle(undefined);
        resolve = () => settle(undefined);
      })),
    stop: () => clearTimeout(timer),
  };
}

type ForwardOptions = PassthroughStreamOptions & Pick<UpstreamAnswer, 'redact'> & { count: CountEvent };
type NextGroup = Promise<IteratorResult<ProviderEvent[]>>;

async function* forward(
  start: StreamStart,
  groups: AsyncGenerator<ProviderEvent[]>,
  options: ForwardOptions,
): AsyncGenerator<Uint8Array> {
  const { heartbeatMs, errorFrame, bill, count, rate } = options;
  // Begins the measurement with the text so far; only a later check can throw.
  rate?.check();
  const edit = createEventEditor(options);
  const silence = new SilenceTimer(heartbeatMs);
  let { pending } = start;
  try {
    for (let group = start.events; ;) {
      yield* forwardGroup(group, edit, bill);
      pending ??= groups.next();
      rate?.startWait();
      let next = await silence.race(pending);
      rate?.endWait();
      // A comment may only stand between two events.
      while (next === undefined) {
        yield heartbeat;
        rate?.startWait();
        next = await silence.race(pending);
        rate?.endWait();
      }
      pending = undefined;
      if (next.done === true) return;
      group = next.value;
      group.forEach(count);
      if (group.at(-1)?.isEnd !== true) rate?.check();
    }
  } catch (error) {
    pending = undefined;
    bill?.noteFailure(error);
    await bill?.settle('upstream_failed');
    const frame = errorFrame(error);
    if (frame !== undefined) yield Buffer.from(frame, 'utf8');
  } finally {
    silence.stop();
    if (bill !== undefined) {
      await readUsage(pending, groups, { bill, count });
      // Only the first outcome counts, so this one applies to a caller that stopped reading.
      await bill.settle('client_closed');
    }
    await groups.return(undefined);
  }
}

async function* forwardGroup(
  group: readonly ProviderEvent[],
  edit: EditEvent,
  bill: Bill | undefined,
): AsyncGenerator<Uint8Array> {
  const lastEvent = group.at(-1);
  if (bill === undefined || lastEvent?.isEnd !== true) {
    yield* editedGroup(group, edit);
    return;
  }
  // A short answer arrives in the same group as its end. Only the end waits for the charge.
  yield* editedGroup(group.slice(0, -1), edit);
  await bill.settle(lastEvent.hasFailed === true ? 'upstream_failed' : 'completed');
  yield* editedGroup([lastEvent], edit);
}

function* editedGroup(events: readonly ProviderEvent[], edit: EditEvent): Generator<Uint8Array> {
  const parts: EditedBytes[] = [];
  for (const event of events) {
    const part = edit(event);
    if (part !== undefined) parts.push(part);
  }
  if (parts.length > 0) yield concatEdited(parts);
}

// Continues reading for the usage after the caller has disconnected. The bill aborts
// the upstream request after its own deadline, which ends this loop.
async function readUsage(
  pending: NextGroup | undefined,
  groups: AsyncGenerator<ProviderEvent[]>,
  { bill, count }: { bill: Bill; count: CountEvent },
): Promise<void> {
  try {
    for (let next = pending; bill.awaitsUsage; next = undefined) {
      const group = await (next ?? groups.next());
      if (group.done === true) return;
      group.value.forEach(count);
    }
  } catch {
    // The call is charged by the events that were read.
  }
}

const heartbeat = Buffer.from(': hb\n\n');

type EditEvent = (event: ProviderEvent) => EditedBytes | undefined;

/**
 * Returns a function that edits one event for the caller. The function returns undefined for a usage chunk
 * that only the gateway requested.
 */
function createEventEditor(options: ForwardOptions): EditEvent {
  let pattern: EventPattern | undefined;
  let patternEdits: readonly Edit[] = [];
  return ({ bytes, data }) => {
    if (data.kind === 'object') return editObject(bytes, data.members, options);
    if (data.kind !== 'like') return { bytes, edits: noEdits };
    if (data.pattern !== pattern) {
      pattern = data.pattern;
      patternEdits = editObject(pattern.bytes, pattern.members, options)?.edits ?? [];
    }
    const { textStart } = pattern;
    // After the text the offsets differ from those of the pattern.
    if (patternEdits.some(({ end }) => end > textStart)) return editWithoutPattern(bytes, options);
    return { bytes, edits: patternEdits };
  };
}

const noEdits: readonly Edit[] = [];
const openBrace = 0x7b;

function editWithoutPattern(bytes: Buffer, options: ForwardOptions): EditedBytes | undefined {
  const start = bytes.indexOf('{');
  const members = topLevelMembers(bytes, start, bytes.lastIndexOf('}') + 1)?.members ?? [];
  return editObject(bytes, members, options);
}

function editObject(
  bytes: Buffer,
  members: readonly Member[],
  { model, format, wantsUsage, redact }: ForwardOptions,
): EditedBytes | undefined {
  const edits: Edit[] = modelNameEdits(members, model.id);
  for (const member of members) {
    if (format.modelNestedIn.includes(member.name)) {
      const innerMembers = topLevelMembers(bytes, member.start, member.end)?.members ?? [];
      edits.push(...modelNameEdits(innerMembers, model.id), ...redactErrorEdits(bytes, innerMembers, redact));
    } else if (member.name === 'usage' && !wantsUsage && bytes[member.start] === openBrace) {
      const choices = members.find(({ name }) => name === 'choices');
      const isEmpty =
        choices === undefined || /^\[\s*\]$/.test(bytes.toString('latin1', choices.start, choices.end));
      if (isEmpty) return undefined;
      edits.push({ start: member.start, end: member.end, text: 'null' });
    }
  }
  return { bytes, edits };
}
