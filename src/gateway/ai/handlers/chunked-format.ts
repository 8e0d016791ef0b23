// Handles a call in a format whose stream is a list of unnamed chunks that ends with `[DONE]`: chat
// completions and OpenAI's older completions. Providers that support the format get the caller's bytes;
// for all others the call is translated. `ChunkedFormat` describes how the two formats differ.
import { unixSeconds } from '../../../kernel/clock.ts';
import { id } from '../../../kernel/ids.ts';
import type { Bill } from '../billing/bill.ts';
import { attemptHeaders, callModel, type ModelAttempt, type ModelResult } from '../calls/call.ts';
import {
  type AiContext,
  asEvents,
  creditsHeader,
  firstByteDeadlineMs,
  openBill,
  settleAndRender,
} from '../calls/context.ts';
import { waitForFirst } from '../calls/first-item.ts';
import { generate, streamParts } from '../calls/model-calls.ts';
import { type CatalogModel, viewerOf } from '../catalog/catalog.ts';
import type { ChunkOptions, CompletionOptions } from '../formats/chat-completions/answer.ts';
import type { PassthroughResult } from '../formats/passthrough/calls.ts';
import type { PassthroughFormat } from '../formats/passthrough/formats.ts';
import type { Answer, ModelCall, StreamPart, Warning } from '../hub/language-model.ts';
import { sessionHash } from '../upstream/session-hash.ts';
import {
  createPassthroughReply,
  passthroughDemand,
  type PassthroughReply,
  type PassthroughRequest,
  toPassthroughCall,
} from './passthrough-reply.ts';
import { warningHeaders } from './warning-headers.ts';

type Body = PassthroughRequest['body'];

export interface ChunkedFormat<B extends Body, Whole, Chunk> {
  passthrough: PassthroughFormat;
  /** The action of its usage records. */
  action: string;
  /** The prefix of the answer's id. */
  idPrefix: string;
  /** Throws a 422 for a call that the model does not support; its fallbacks are tried next. */
  checkModel(model: CatalogModel, body: B): void;
  /** The effort to send. Throws a 422. */
  effort?(model: CatalogModel, body: B): string | undefined;
  /** Throws a 400 or 422 for members that must not reach the provider, or that the model does not support. */
  toContent(
    request: { body: B; rawBody: Uint8Array; signal: AbortSignal },
    model: CatalogModel,
    effort: string | undefined,
  ): ChunkedContent;
  /** Warnings for the members that translation drops. */
  droppedMemberWarnings(body: B, model: CatalogModel): Warning[];
  serializeAnswer(answer: Answer, options: CompletionOptions): Whole;
  serializeChunks(parts: AsyncIterable<StreamPart>, options: ChunkOptions): AsyncGenerator<Chunk>;
}

/** The content for one model: the caller's bytes, or the translated call. */
export type ChunkedContent =
  | { kind: 'bytes'; rawBody: Uint8Array; warnings: readonly Warning[] }
  | { kind: 'hub'; hub: ModelCall };

/** The result of an attempt: the provider's bytes, or an answer to translate. */
type Result<Chunk> =
  | (PassthroughResult & { warnings: readonly Warning[] })
  | { kind: 'answer'; answer: Answer }
  | { kind: 'chunks'; chunks: AsyncIterable<Chunk>; warnings: readonly Warning[] };

export type ChunkedReply<Whole, Chunk> =
  | PassthroughReply
  | { status: 200; body: Whole; headers: Record<string, string> }
  | {
      status: 200;
      events: AsyncIterable<{ data: Chunk }>;
      end: string;
      headers: Record<string, string>;
    };

type ChunkedRequest<B extends Body> = PassthroughRequest & { body: B };

/** Answers a call with the requested model or one of its fallbacks, passed through or translated for each. */
export async function answerInChunks<B extends Body, Whole, Chunk>(
  context: AiContext,
  format: ChunkedFormat<B, Whole, Chunk>,
  call: ChunkedRequest<B>,
): Promise<ChunkedReply<Whole, Chunk>> {
  const { identity, body, signal } = call;
  const chain = context.catalog.chain(viewerOf(identity), body.model, 'openai');
  const demand = passthroughDemand(body, format.passthrough, chain[0]);
  const bill = openBill(context, call, { action: format.action, demand });
  const result = await callModel(
    {
      chain,
      signal,
      streams: body.stream === true,
      session: () => sessionHash(call),
      deadlineMs: firstByteDeadlineMs(context, body.stream === true),
      check: (model) => format.checkModel(model, body),
      effort: (model) => format.effort?.(model, body),
      content: (model, effort) => format.toContent(call, model, effort),
      send: (attempt) => send(context, format, { call, attempt, bill }),
    },
    { ...context, bill },
  );
  return render(context, format, { call, result, bill });
}

async function send<B extends Body, Whole, Chunk>(
  context: AiContext,
  format: ChunkedFormat<B, Whole, Chunk>,
  { call, attempt, bill }: { call: ChunkedRequest<B>; attempt: ModelAttempt<ChunkedContent>; bill: Bill },
): Promise<Result<Chunk>> {
  const { body } = call;
  const { model, content } = attempt;
  if (content.kind === 'bytes') {
    const { rawBody, warnings } = content;
    const bytesCall = { ...toPassthroughCall(context, call, { bill }), rawBody };
    return { ...(await context.passthrough.send(format.passthrough, bytesCall, attempt)), warnings };
  }
  const { hub } = content;
  if (body.stream !== true)
    return { kind: 'answer', answer: await generate(context, attempt, { hub, bill }) };
  let warnings: readonly Warning[] = [];
  const chunks = await waitForFirst(
    format.serializeChunks(streamParts(context, attempt, { hub, bill }), {
      ...completionOptions(context, format, model),
      includeUsage: body.stream_options?.include_usage === true,
      onWarnings: (streamWarnings) => (warnings = streamWarnings),
    }),
  );
  return { kind: 'chunks', chunks, warnings };
}

async function render<B extends Body, Whole, Chunk>(
  context: AiContext,
  format: ChunkedFormat<B, Whole, Chunk>,
  {
    call,
    result: modelResult,
    bill,
  }: { call: ChunkedRequest<B>; result: ModelResult<Result<Chunk>>; bill: Bill },
): Promise<ChunkedReply<Whole, Chunk>> {
  const { answer: result, model } = modelResult;
  const attempts = attemptHeaders(modelResult);
  if (result.kind === 'whole' || result.kind === 'stream') {
    const headers = { ...attempts, ...warningHeaders(result.warnings) };
    return createPassthroughReply(format.passthrough, call, { result, bill, headers });
  }
  const memberWarnings = format.droppedMemberWarnings(call.body, model);
  if (result.kind === 'chunks')
    return {
      status: 200,
      events: asEvents(result.chunks, (error) => context.health.recordStreamFailure(modelResult, error)),
      end: '[DONE]',
      headers: { ...warningHeaders([...memberWarnings, ...result.warnings]), ...attempts },
    };
  const { answer } = result;
  const options = completionOptions(context, format, model);
  const warnings = warningHeaders([...memberWarnings, ...answer.warnings]);
  const rendered = await settleAndRender<Whole>(call, bill, (credits) => ({
    body: format.serializeAnswer(answer, options),
    headers: { ...warnings, ...attempts, ...creditsHeader(credits) },
  }));
  return { status: 200, ...rendered };
}

function completionOptions(
  { clock }: AiContext,
  { idPrefix }: { idPrefix: string },
  model: CatalogModel,
): CompletionOptions {
  return {
    modelId: model.id,
    completionId: id(idPrefix).replace('_', '-'),
    createdSeconds: unixSeconds(clock.now()),
  };
}
