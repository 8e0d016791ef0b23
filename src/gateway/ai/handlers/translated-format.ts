// Handles a call in a format that passes through to providers which support it and is translated for
// all other models: responses and messages. `TranslatedFormat` describes how the two formats differ.
import {
  type AiContext,
  creditsHeader,
  firstByteDeadlineMs,
  openBill,
  settleAndRender,
  type StreamErrorBody,
  streamErrorBody,
} from '../calls/context.ts';
import type { Bill } from '../billing/bill.ts';
import { attemptHeaders, callModel, type ModelAttempt, type ModelResult } from '../calls/call.ts';
import { type CatalogModel, viewerOf } from '../catalog/catalog.ts';
import { waitForFirst } from '../calls/first-item.ts';
import { collectDroppedHints, type DroppedHints } from '../formats/translation/dropped-hints.ts';
import { checkAnswerFormat, checkLocalInput } from '../formats/translation/input-checks.ts';
import type { PassthroughResult } from '../formats/passthrough/calls.ts';
import type { PassthroughFormat } from '../formats/passthrough/formats.ts';
import type { UnpackReplay } from '../formats/passthrough/replay.ts';
import { checkReplays } from '../formats/translation/replay.ts';
import { checkDefinitions } from '../formats/tool-definitions.ts';
import { checkToolValues } from '../formats/translation/tool-values.ts';
import type { Answer, ModelCall, StreamPart, Warning } from '../hub/language-model.ts';
import { requirePrice } from '../metering/bound.ts';
import { generate, streamParts } from '../calls/model-calls.ts';
import {
  passthroughDemand,
  type PassthroughReply,
  createPassthroughReply,
  type PassthroughRequest,
  toPassthroughCall,
} from './passthrough-reply.ts';
import { adapterOf } from '../providers/adapters.ts';
import { refuseUnsafeMembers } from '../upstream/request-guard.ts';
import { sessionHash } from '../upstream/session-hash.ts';
import { refusePricedTools } from '../upstream/tool-guard.ts';
import { warningHeaders } from './warning-headers.ts';
import { unixSeconds } from '../../../kernel/clock.ts';
import type { TranslateOptions } from '../formats/translation/prompt-parts.ts';

type Body = PassthroughRequest['body'];

export interface SerializeOptions<B> {
  modelId: string;
  /** The time now, in seconds. */
  nowSeconds: () => number;
  /** The request, for members that the answer repeats. */
  body: B;
}

export interface TranslatedFormat<B extends Body, Whole, Event extends { type: string }> {
  passthrough: PassthroughFormat;
  /** The effort to send. Throws a 422. */
  effort(model: CatalogModel, body: B, hints: DroppedHints): string | undefined;
  /** Returns the request for a provider that supports the format, with replay metadata unpacked. */
  unpackReplay: UnpackReplay;
  /** Replaces the effort in a request that passes through, when the model lacks the requested effort. */
  withEffort?(rawBody: Uint8Array, effort: string | undefined): Uint8Array;
  /** Changes the answer of a provider that supports the format. */
  rewritePassthrough?(result: PassthroughResult): PassthroughResult;
  /** Throws a 400 for a missing or invalid member and a 422 for one that the model does not support. */
  toModelCall(body: B, options: TranslateOptions): ModelCall;
  serializeAnswer(answer: Answer, options: SerializeOptions<B>): Whole;
  serializeStream(
    parts: AsyncIterable<StreamPart>,
    options: SerializeOptions<B> & { onWarnings: (warnings: readonly Warning[]) => void },
  ): AsyncGenerator<Event>;
  /** The event that ends a stream which failed midway, after `count` events. */
  errorEvent(body: StreamErrorBody, count: number): Event;
}

export type TranslatedReply<Whole, Event> =
  | PassthroughReply
  | { status: 200; body: Whole; headers: Record<string, string> }
  | {
      status: 200;
      events: AsyncIterable<{ event: string; data: Event }>;
      headers: Record<string, string>;
    };

export interface TranslatedRequest<B extends Body> {
  call: PassthroughRequest & { body: B };
  /** Headers of the caller that belong to the format, for providers that support it. */
  formatHeaders?: Record<string, string>;
  /** Called before each attempt is sent, after the call was checked and its credits were reserved. */
  beforeSend?: (() => Promise<void>) | undefined;
}

/** The content for one model: the caller's bytes, or the translated call. */
type Content = { warnings: readonly Warning[] } & (
  | { kind: 'bytes'; rawBody: Uint8Array }
  | { kind: 'hub'; hub: ModelCall }
);

type Result<Event> = { warnings: readonly Warning[] } & (
  | PassthroughResult
  | { kind: 'answer'; answer: Answer }
  | { kind: 'events'; events: AsyncIterable<{ event: string; data: Event }> }
);

/** Answers a call with the requested model or one of its fallbacks, passed through or translated for each. */
export async function answerTranslated<B extends Body, Whole, Event extends { type: string }>(
  context: AiContext,
  format: TranslatedFormat<B, Whole, Event>,
  request: TranslatedRequest<B>,
): Promise<TranslatedReply<Whole, Event>> {
  const { call } = request;
  const { body, signal } = call;
  checkDefinitions(body);
  checkReplays(body);
  const chain = chainOf(context, format.passthrough, call);
  const demand = passthroughDemand(body, format.passthrough, chain[0]);
  const bill = openBill(context, call, { action: format.passthrough.name, demand });
  const result = await callModel(
    {
      chain,
      signal,
      streams: body.stream === true,
      session: () => sessionHash(call),
      deadlineMs: firstByteDeadlineMs(context, body.stream === true),
      check: (model) => checkModel(model, format.passthrough, body),
      effort: (model) => format.effort(model, body, collectDroppedHints()),
      content: (model, effort) => toContent(format, call, { model, effort }),
      async send(attempt) {
        await request.beforeSend?.();
        return send(context, format, { ...request, attempt, bill });
      },
    },
    { ...context, bill },
  );
  return render(context, format, { call, result, bill });
}

function providesFormat({ providerEntry }: CatalogModel, { name }: PassthroughFormat): boolean {
  return providerEntry.formats.includes(name);
}

/** The requested model and its fallbacks. For translation a model must support chat completions. */
function chainOf(
  { catalog }: AiContext,
  format: PassthroughFormat,
  { identity, body }: PassthroughRequest,
): CatalogModel[] {
  const viewer = viewerOf(identity);
  const [requestedModel, ...fallbacks] = catalog.chain(viewer, body.model);
  if (requestedModel === undefined) throw new Error(`The chain of ${body.model} is empty.`);
  if (!providesFormat(requestedModel, format)) catalog.callableModel(viewer, body.model, 'openai');
  return [
    requestedModel,
    ...fallbacks.filter((model) => providesFormat(model, format) || model.modalities.includes('openai')),
  ];
}

function checkModel(model: CatalogModel, format: PassthroughFormat, body: Body): void {
  requirePrice(model, ['input', 'output']);
  if (!providesFormat(model, format)) checkLocalInput(model, body);
}

/** Throws a 400 or 422 for members that must not reach the provider, or that the model does not support. */
function toContent<B extends Body, Whole, Event extends { type: string }>(
  format: TranslatedFormat<B, Whole, Event>,
  { body, rawBody, signal }: TranslatedRequest<B>['call'],
  { model, effort }: { model: CatalogModel; effort: string | undefined },
): Content {
  refuseUnsafeMembers(body, model.providerEntry, { limits: format.passthrough.limitMembers });
  if (model.rates !== null) refusePricedTools(body);
  const hints = collectDroppedHints();
  // Only for its hints; `effort` is its result. Until here, all hints are about a replaced effort.
  format.effort(model, body, hints);
  if (providesFormat(model, format.passthrough)) {
    const isEffortReplaced = hints.warnings.length > 0;
    const bytes = (isEffortReplaced ? format.withEffort?.(rawBody, effort) : undefined) ?? rawBody;
    return { kind: 'bytes', rawBody: format.unpackReplay(body, bytes, hints), warnings: hints.warnings };
  }
  const hub = format.toModelCall(body, { model, effort, hints, signal });
  checkToolValues(hub);
  if (adapterOf(model).dropsReasoning?.(hub) === true && hasReasoning(hub))
    hints.add('reasoning', 'of earlier turns is not sent to this model');
  checkAnswerFormat(model, hub.responseFormat, hub.memberNames?.responseSchema ?? 'model');
  return { kind: 'hub', hub, warnings: hints.warnings };
}

function hasReasoning({ prompt }: ModelCall): boolean {
  return prompt.some(
    ({ role, content }) => role === 'assistant' && content.some(({ type }) => type === 'reasoning'),
  );
}

interface SendOptions<B extends Body> extends TranslatedRequest<B> {
  attempt: ModelAttempt<Content>;
  bill: Bill;
}

async function send<B extends Body, Whole, Event extends { type: string }>(
  context: AiContext,
  format: TranslatedFormat<B, Whole, Event>,
  { call, formatHeaders, attempt, bill }: SendOptions<B>,
): Promise<Result<Event>> {
  const { model, content } = attempt;
  const { warnings } = content;
  if (content.kind === 'bytes') {
    const bytesCall = {
      ...toPassthroughCall(context, call, { bill, formatHeaders }),
      rawBody: content.rawBody,
    };
    const result = await context.passthrough.send(format.passthrough, bytesCall, attempt);
    return { ...(format.rewritePassthrough?.(result) ?? result), warnings };
  }
  const { hub } = content;
  if (call.body.stream !== true)
    return { kind: 'answer', answer: await generate(context, attempt, { hub, bill }), warnings };
  let streamWarnings: readonly Warning[] = [];
  const events = await waitForFirst(
    format.serializeStream(streamParts(context, attempt, { hub, bill }), {
      ...serializeOptions(context, call.body, model),
      onWarnings: (modelWarnings) => (streamWarnings = modelWarnings),
    }),
  );
  return {
    kind: 'events',
    events: withErrorEvent(events, (error, count) => {
      const body = streamErrorBody(context, call, { error, attempt });
      return body && format.errorEvent(body, count);
    }),
    warnings: [...warnings, ...streamWarnings],
  };
}

/** Adds the name of each event. A failure midway becomes the last event. */
async function* withErrorEvent<Event extends { type: string }>(
  events: AsyncIterable<Event>,
  toErrorEvent: (error: unknown, count: number) => Event | undefined,
): AsyncGenerator<{ event: string; data: Event }> {
  let count = 0;
  try {
    for await (const data of events) {
      count += 1;
      yield { event: data.type, data };
    }
  } catch (error) {
    const data = toErrorEvent(error, count);
    if (data !== undefined) yield { event: data.type, data };
  }
}

async function render<B extends Body, Whole, Event extends { type: string }>(
  context: AiContext,
  format: TranslatedFormat<B, Whole, Event>,
  {
    call,
    result: modelResult,
    bill,
  }: { call: TranslatedRequest<B>['call']; result: ModelResult<Result<Event>>; bill: Bill },
): Promise<TranslatedReply<Whole, Event>> {
  const { answer: result, model } = modelResult;
  const attempts = attemptHeaders(modelResult);
  const headers = { ...warningHeaders(result.warnings), ...attempts };
  if (result.kind === 'events') return { status: 200, events: result.events, headers };
  if (result.kind !== 'answer')
    return createPassthroughReply(format.passthrough, call, { result, bill, headers });
  const { answer } = result;
  const options = serializeOptions(context, call.body, model);
  const warnings = warningHeaders([...result.warnings, ...answer.warnings]);
  const rendered = await settleAndRender<Whole>(call, bill, (credits) => ({
    body: format.serializeAnswer(answer, options),
    headers: { ...warnings, ...attempts, ...creditsHeader(credits) },
  }));
  return { status: 200, ...rendered };
}

function serializeOptions<B>(
  { clock }: AiContext,
  body: B,
  { id: modelId }: CatalogModel,
): SerializeOptions<B> {
  return { body, modelId, nowSeconds: () => unixSeconds(clock.now()) };
}
