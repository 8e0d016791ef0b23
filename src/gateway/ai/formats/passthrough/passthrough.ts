// A call in a foreign format for a provider that speaks it: the caller's bytes go up and the provider's bytes come
// down, because translating would lose members that neither side would forgive. Only what must differ is edited, at
// its place in the bytes: the model's name both ways, an output limit where none was sent, and the request for usage.
import { isUtf8 } from 'node:buffer';
import { nextTurn } from '../../../../kernel/event-loop.ts';
import { Problem } from '../../../../kernel/problem.ts';
import type { CatalogModel } from '../../catalog/catalog.ts';
import { chat, type PassthroughFormat } from './format.ts';
import { longestOutput } from '../../metering/bound.ts';
import { findError, providerEvents, type ProviderEvent } from '../../upstream/events.ts';
import { redactErrorEdits } from '../../upstream/error-text.ts';
import {
  applyEdits,
  concatEdited,
  topLevelMembers,
  type Edit,
  type EditedBytes,
  type Member,
  type Members,
} from '../../upstream/json-members.ts';
import { maxEventBytesFor, maxAnswerBytes, readAll, type UpstreamAnswer } from '../../upstream/client.ts';

/** What this file reads of a request, whatever its format. */
export interface PassthroughBody {
  stream?: boolean | null | undefined;
  stream_options?: { include_usage?: boolean | null } | null | undefined;
}

export interface ProviderRequest {
  bytes: Buffer;
  /** Whether the caller asked for a usage chunk; otherwise the one that we asked for is taken out again. */
  wantsUsage: boolean;
}

/** What of a request is not the caller's: for which model, in which format, and the limit that was paid for where none was sent. */
export interface OutgoingTerms {
  model: CatalogModel;
  format?: PassthroughFormat;
  limit?: number | undefined;
}

/** The request as the provider gets it. */
export function buildProviderRequest(
  rawBody: Uint8Array,
  body: PassthroughBody,
  { model, format = chat, limit: paidLimit }: OutgoingTerms,
): ProviderRequest {
  const bytes = Buffer.from(rawBody.buffer, rawBody.byteOffset, rawBody.byteLength);
  const object = topLevelMembers(bytes);
  if (object === undefined)
    throw new Problem('bad_request', 'invalid_json', 'The body is not a JSON object.');
  const wantsUsage = !format.asksForUsage || body.stream_options?.include_usage === true;
  const edits = modelEdits(object.members, model.upstream_model);
  if (body.stream === true && model.providerEntry.usage === 'ask' && !wantsUsage)
    edits.push(...usageEdits(bytes, object, body));
  const limit = limitEdit(object, body, { model, format, tokens: paidLimit ?? model.max_output_tokens });
  if (limit !== undefined) edits.push(limit);
  return { bytes: applyEdits(bytes, edits), wantsUsage };
}

export interface PassthroughAnswer {
  /** With our name of the model in it. */
  bytes: Buffer;
  /** The same as a value, as exact as JSON values are. */
  value: Record<string, unknown>;
  /** Whether the value is all of the answer; otherwise its long members are empty. */
  isComplete: boolean;
}

// The parser takes 100 ms for 32 MiB of vectors, of which the gateway reads only the usage.
const largeAnswerBytes = 1024 * 1024;
const longMemberBytes = 64 * 1024;

/** A whole answer, checked to be one. */
export async function readPassthroughAnswer(
  answer: UpstreamAnswer,
  modelId: string,
  format: PassthroughFormat = chat,
): Promise<PassthroughAnswer> {
  const bytes = await readAll(answer.body, maxAnswerBytes);
  const foreign = () =>
    new Problem(
      'upstream_failed',
      'upstream_failed',
      'The model provider answered with something that is not of the format that was asked for.',
    );
  if (!isUtf8(bytes)) throw foreign();
  // Each step over a large answer has a turn of the event loop of its own.
  const isLarge = bytes.length > largeAnswerBytes;
  if (isLarge) await nextTurn();
  const object = topLevelMembers(bytes);
  if (isLarge) await nextTurn();
  // Parsed only where it is an object of a bounded number of parts. The text of a model is counted where its provider
  // tells no usage; vectors and ranks are not.
  const isComplete = !isLarge || format.textMembers.length > 0;
  const value = object && (isComplete ? parsed(bytes) : outlineOf(bytes, object.members));
  if (object === undefined || value === undefined) {
    if (!bytes.subarray(0, 64).toString('latin1').trimStart().startsWith('{')) throw foreign();
    throw new Problem(
      'upstream_failed',
      'upstream_truncated',
      'The model provider broke off before its answer was complete.',
    );
  }
  if (!format.isAnswer(value)) throw findError(bytes, object) ?? foreign();
  const failure = redactErrorEdits(bytes, object.members, answer.redact);
  const made = applyEdits(bytes, [...modelEdits(object.members, modelId), ...failure]);
  if (failure.length > 0) return { bytes: made, value: parsed(made) ?? value, isComplete };
  return { bytes: made, value: 'model' in value ? { ...value, model: modelId } : value, isComplete };
}

/** The members of an answer, of which the long ones are empty; undefined where a short one is no JSON. */
function outlineOf(bytes: Buffer, members: readonly Member[]): Record<string, unknown> | undefined {
  const empty: Readonly<Record<number, string>> = { 0x5b: '[]', 0x7b: '{}', 0x22: '""' };
  try {
    return Object.fromEntries(
      members.map(({ name, start, end }) => {
        const text =
          end - start > longMemberBytes
            ? (empty[bytes[start] as number] ?? '')
            : bytes.toString('utf8', start, end);
        return [name, JSON.parse(text) as unknown];
      }),
    );
  } catch {
    return undefined;
  }
}

export interface PassthroughStreamOptions {
  model: Pick<CatalogModel, 'id' | 'modalities'>;
  format: PassthroughFormat;
  wantsUsage: boolean;
  /** Between two comments while the provider is silent. */
  heartbeatMs: number;
  /** The frame that ends a stream which failed midway; undefined when nobody is there to read it. */
  errorFrame: (thrown: unknown) => string | undefined;
  /** Sees what passes, and pays for it before the caller hears the end. */
  meter?: StreamMeter | undefined;
}

export interface StreamMeter {
  event(event: ProviderEvent): void;
  /** Whether the caller has left and the usage may still come, so that the stream is read on. */
  awaitsUsage(): boolean;
  ended(outcome: 'completed' | 'upstream_failed' | 'client_closed'): Promise<void>;
}

/**
 * The provider's stream as ours, in groups of whole events, from its first event on. Throws before that; a failure
 * midway is one last frame made by `errorFrame`, and the end without the format's own.
 */
export async function readPassthroughStream(
  answer: UpstreamAnswer,
  options: PassthroughStreamOptions,
): Promise<AsyncIterable<Uint8Array>> {
  if (answer.mediaType !== 'text/event-stream') {
    answer.abort();
    throw new Problem(
      'upstream_failed',
      'upstream_failed',
      'The model provider did not answer with a stream.',
    );
  }
  const groups = providerEvents(
    answer.body,
    maxEventBytesFor(options.format.endRule, options.model),
    options.format.endRule,
  );
  const held: ProviderEvent[] = [];
  // Comments say that the provider is alive, not that it will answer: an error after them can still have a status.
  // But a caller who hears nothing for long gives up, so after a while they are handed on.
  let late = false;
  const patience = setTimeout(() => (late = true), options.heartbeatMs);
  try {
    while (held.every((event) => event.data.kind === 'none') && !(late && held.length > 0)) {
      const next = await groups.next();
      if (next.done === true) break;
      held.push(...next.value);
    }
  } finally {
    clearTimeout(patience);
  }
  return rewritten(held, groups, { ...options, redact: answer.redact });
}

async function* rewritten(
  first: ProviderEvent[],
  groups: AsyncGenerator<ProviderEvent[]>,
  {
    model,
    format,
    wantsUsage,
    heartbeatMs,
    errorFrame,
    meter,
    redact: clean,
  }: PassthroughStreamOptions & Pick<UpstreamAnswer, 'redact'>,
): AsyncGenerator<Uint8Array> {
  const name = JSON.stringify(model.id);
  let coming: Promise<IteratorResult<ProviderEvent[]>> | undefined;
  try {
    let group: ProviderEvent[] = first;
    for (;;) {
      if (meter !== undefined) for (const event of group) meter.event(event);
      // A short answer comes in one piece with its end, and only the end waits until it is paid for.
      const isEnding = group.at(-1)?.isEnd === true && meter !== undefined;
      for (const events of isEnding ? [group.slice(0, -1), group.slice(-1)] : [group]) {
        if (isEnding && events[0]?.isEnd === true)
          await meter.ended(events[0].hasFailed === true ? 'upstream_failed' : 'completed');
        const parts = events.flatMap(
          (event) => ours(event, name, { format, wantsUsage, redact: clean }) ?? [],
        );
        if (parts.length > 0) yield concatEdited(parts);
      }
      coming = groups.next();
      // Only here, between two events, may a comment stand.
      while ((await quietFor(coming, heartbeatMs)) === 'quiet') yield heartbeat;
      const next = await coming;
      coming = undefined;
      if (next.done === true) return;
      group = next.value;
    }
  } catch (error) {
    coming = undefined;
    await meter?.ended('upstream_failed');
    const frame = errorFrame(error);
    if (frame !== undefined) yield Buffer.from(frame, 'utf8');
  } finally {
    if (meter !== undefined) await readUsage(coming, groups, meter);
    // Only who reads no further gets here unsettled.
    await meter?.ended('client_closed');
    await groups.return(undefined);
  }
}

// The meter ends the request to the provider when it has waited long enough, and with it this loop.
async function readUsage(
  coming: Promise<IteratorResult<ProviderEvent[]>> | undefined,
  groups: AsyncGenerator<ProviderEvent[]>,
  meter: StreamMeter,
): Promise<void> {
  try {
    for (let pending = coming; meter.awaitsUsage(); pending = undefined) {
      const next = await (pending ?? groups.next());
      if (next.done === true) return;
      for (const event of next.value) meter.event(event);
    }
  } catch {
    // The call is charged by what came before.
  }
}

const heartbeat = Buffer.from(': hb\n\n');

// Settles when the promise does, or after the time; never rejects.
function quietFor(coming: Promise<unknown>, ms: number): Promise<'quiet' | 'settled'> {
  return new Promise((resolve) => {
    const timer = setTimeout(() => resolve('quiet'), ms);
    const settled = () => {
      clearTimeout(timer);
      resolve('settled');
    };
    coming.then(settled, settled);
  });
}

// One event with our name of the model, or undefined where it carries only the usage that we asked for.
function ours(
  { bytes, data }: ProviderEvent,
  name: string,
  {
    format,
    wantsUsage,
    redact: clean,
  }: Pick<PassthroughStreamOptions, 'format' | 'wantsUsage'> & Pick<UpstreamAnswer, 'redact'>,
): EditedBytes | undefined {
  if (data.kind !== 'object') return { bytes, edits: [] };
  const edits: Edit[] = [];
  for (const member of data.members) {
    if (member.name === 'model') {
      edits.push({ start: member.start, end: member.end, text: name });
    } else if (format.modelNestedIn.includes(member.name)) {
      const inner = topLevelMembers(bytes, member.start, member.end)?.members ?? [];
      for (const { name: told, start, end } of inner)
        if (told === 'model') edits.push({ start, end, text: name });
      edits.push(...redactErrorEdits(bytes, inner, clean));
    } else if (member.name === 'usage' && !wantsUsage && bytes[member.start] === 0x7b) {
      const choices = data.members.find((candidate) => candidate.name === 'choices');
      const empty =
        choices === undefined || /^\[\s*\]$/.test(bytes.toString('latin1', choices.start, choices.end));
      if (empty) return undefined;
      edits.push({ start: member.start, end: member.end, text: 'null' });
    }
  }
  return { bytes, edits };
}

function modelEdits(members: readonly Member[], name: string): Edit[] {
  return members
    .filter((member) => member.name === 'model')
    .map(({ start, end }) => ({ start, end, text: JSON.stringify(name) }));
}

function usageEdits(bytes: Buffer, object: Members, body: PassthroughBody): Edit[] {
  const options = object.members.find((member) => member.name === 'stream_options');
  if (options === undefined) return [added(object, '"stream_options":{"include_usage":true}')];
  if (body.stream_options === null)
    return [{ start: options.start, end: options.end, text: '{"include_usage":true}' }];
  const inner = topLevelMembers(bytes, options.start, options.end);
  // All of them, where it stands there twice: which of the two counts is each reader's own choice.
  const asked = inner?.members.filter((member) => member.name === 'include_usage') ?? [];
  if (asked.length > 0) return asked.map(({ start, end }) => ({ start, end, text: 'true' }));
  const at = inner?.bodyStart ?? options.start;
  return [{ start: at, end: at, text: `"include_usage":true${inner?.members.length ? ',' : ''}` }];
}

// A limit that the caller sent is never lowered; where there is none, the provider's own could exceed what is paid for.
function limitEdit(
  object: Members,
  body: PassthroughBody,
  { model, format, tokens }: { model: CatalogModel; format: PassthroughFormat; tokens: number | null },
): Edit | undefined {
  const provided = model.providerEntry.output_limit_member;
  const name = format.usesProviderLimit ? provided : format.limitMembers[0];
  if (provided === undefined || name === undefined || tokens === null) return undefined;
  if (requestedOutputLimit(body, model, format) !== undefined) return undefined;
  const empty = object.members.find((member) => member.name === name);
  if (empty !== undefined) return { start: empty.start, end: empty.end, text: String(tokens) };
  return added(object, `${JSON.stringify(name)}:${tokens}`);
}

/** The output limit that the caller sent, the highest where there are several, by the member that it stands in. */
export function requestedOutputLimit(
  body: PassthroughBody,
  model: CatalogModel,
  format: PassthroughFormat,
): { member: string; tokens: number } | undefined {
  const sent = body as Record<string, unknown>;
  const { providerEntry: by } = model;
  const names =
    format.usesProviderLimit && by.output_limit_member !== undefined
      ? [...format.limitMembers, by.output_limit_member]
      : format.limitMembers;
  let most: { member: string; tokens: number } | undefined;
  for (const member of names) {
    const value = sent[member];
    if (value === undefined || value === null) continue;
    // Nobody knows what a provider makes of a limit that is none; the most has to be expected.
    const tokens =
      typeof value === 'number' && value > 0
        ? Math.min(Math.ceil(value), Number.MAX_SAFE_INTEGER)
        : longestOutput(model);
    if (most === undefined || tokens > most.tokens) most = { member, tokens };
  }
  return most;
}

// New members go first: the contract's required ones follow for certain, so a comma is always right.
function added(object: Members, text: string): Edit {
  return { start: object.bodyStart, end: object.bodyStart, text: `${text},` };
}

function parsed(bytes: Buffer): Record<string, unknown> | undefined {
  try {
    return (JSON.parse(bytes.toString('utf8')) as Record<string, unknown> | null) ?? undefined;
  } catch {
    return undefined;
  }
}
