// The common part of all formats that pass through: the demand of a call, which bounds its price, and the
// reply with the provider's bytes.
import {
  type AiContext,
  answerForReplay,
  callMembers,
  creditsHeader,
  type PaidRequest,
  streamErrorBody,
} from '../calls/context.ts';
import type { Bill } from '../billing/bill.ts';
import type { CatalogModel } from '../catalog/catalog.ts';
import type { PassthroughCall, PassthroughResult } from '../formats/passthrough/calls.ts';
import type { PassthroughFormat } from '../formats/passthrough/formats.ts';
import { requestedOutputLimit } from '../formats/passthrough/request.ts';
import type { Demand } from '../metering/bound.ts';
import { usesHourCache, sizeOf } from '../metering/measure.ts';

export interface PassthroughRequest extends PaidRequest, Pick<PassthroughCall, 'rawBody' | 'timing'> {
  body: PassthroughCall['body'] & { model: string };
}

/** Returns the call with another body; sends the JSON of that body unless the caller passes the bytes. */
export function withPassthroughBody(
  call: Omit<PassthroughRequest, 'body' | 'rawBody'>,
  body: PassthroughRequest['body'] & Record<string, unknown>,
  rawBody: Uint8Array = Buffer.from(JSON.stringify(body)),
): PassthroughRequest {
  return {
    ...callMembers(call),
    timing: (name, durationMs) => call.timing(name, durationMs),
    body,
    rawBody,
  };
}

export interface PassthroughReply {
  status: 200;
  content: Uint8Array | AsyncIterable<Uint8Array>;
  mediaType: string;
  headers: Record<string, string>;
}

export function toPassthroughCall(
  context: Pick<AiContext, 'health'>,
  call: PassthroughRequest,
  { bill, formatHeaders = {} }: { bill: Bill; formatHeaders?: Record<string, string> | undefined },
): PassthroughCall {
  return {
    body: call.body,
    rawBody: call.rawBody,
    signal: bill.signal,
    formatHeaders,
    bill,
    timing: (name, durationMs) => call.timing(name, durationMs),
    streamErrorBody: (error, attempt) => streamErrorBody(context, call, { error, attempt }),
  };
}

/**
 * Replies with the provider's bytes. A whole answer is settled here; a stream is settled before its last
 * event.
 */
export async function createPassthroughReply(
  { hasFailed }: PassthroughFormat,
  call: PassthroughRequest,
  { result, bill, headers }: { result: PassthroughResult; bill: Bill; headers: Record<string, string> },
): Promise<PassthroughReply> {
  if (result.kind === 'stream')
    return {
      status: 200,
      content: result.content,
      mediaType: 'text/event-stream; charset=utf-8',
      headers: { ...headers, 'x-accel-buffering': 'no' },
    };
  const { bytes, value, isComplete } = result.answer;
  const outcome = hasFailed?.(value) === true ? 'upstream_failed' : 'completed';
  const replyHeaders = { ...headers, ...creditsHeader(Number(bill.price)) };
  const replay = isComplete ? answerForReplay(call, { body: value, headers: replyHeaders }) : undefined;
  const credits = await bill.settle(outcome, replay);
  return {
    status: 200,
    content: bytes,
    mediaType: 'application/json; charset=utf-8',
    headers: { ...headers, ...creditsHeader(credits) },
  };
}

/** The demand of a pass-through call, for its maximum price. */
export function passthroughDemand(
  body: PassthroughCall['body'],
  format: PassthroughFormat,
  model: CatalogModel | undefined,
): Demand {
  const { tools, n, query, documents } = body as {
    tools?: unknown;
    n?: unknown;
    query?: unknown;
    documents?: unknown;
  };
  return {
    size: sizeOf(body, format.name),
    hasTools: Array.isArray(tools) && tools.length > 0,
    usesHourCache: (format.name === 'messages' || format.name === 'chat') && usesHourCache(body),
    limit: model && requestedOutputLimit(body, model, format),
    limitMember:
      (format.usesProviderLimit ? model?.providerEntry.output_limit_member : undefined) ??
      format.limitMembers[0],
    // Only these formats have `n`; the contract limits it.
    choices: (format.name === 'chat' || format.name === 'completions') && typeof n === 'number' ? n : 1,
    hasOutput: format.limitMembers.length > 0,
    // The reranking model reads the query once per document.
    repeatedBytes:
      typeof query === 'string' && Array.isArray(documents) ? Buffer.byteLength(query) * documents.length : 0,
  };
}
