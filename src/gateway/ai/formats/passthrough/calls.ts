// Sends one pass-through call to the provider of one model, up to the first byte of its answer.
import type { Clock } from '../../../../kernel/clock.ts';
import { Problem } from '../../../../kernel/problem.ts';
import type { Alongside } from '../../../credits/index.ts';
import type { CatalogModel } from '../../catalog/catalog.ts';
import type { Meter } from '../../metering/meter.ts';
import type { CallOptions, ProviderModels } from '../../providers/text-models.ts';
import type { UpstreamAnswer, UpstreamRequest } from '../../upstream/client.ts';
import { readPassthroughAnswer } from './answer.ts';
import type { PassthroughFormat } from './formats.ts';
import { buildProviderRequest, type PassthroughBody } from './request.ts';
import { readPassthroughStream, type StreamMeter } from './stream.ts';
import { createEventMeter, meterPassthroughAnswer } from './usage.ts';

/** The call as its handler received it. */
export interface PassthroughCall {
  body: PassthroughBody;
  rawBody: Uint8Array;
  signal: AbortSignal;
  timing(name: string, durationMs: number): void;
  /** Headers of the caller that belong to the format. */
  formatHeaders?: Record<string, string>;
  /** Renders the error that ends a stream which failed midway; undefined when the caller has disconnected. */
  streamErrorBody(
    error: unknown,
    model: CatalogModel,
  ): Parameters<PassthroughFormat['errorFrame']>[0] | undefined;
  /** Absent for calls that the gateway makes itself. */
  meter?: Meter;
  /** The write that stores a whole answer for a retry with the same idempotency key; undefined without a key. */
  saveForReplay?: (body: unknown) => Alongside | undefined;
}

export type PassthroughReply = {
  status: 200;
  content: Uint8Array | AsyncIterable<Uint8Array>;
  mediaType: string;
  headers?: Record<string, string>;
};

export interface Passthrough {
  /** Throws what fails before the first byte. */
  send(
    format: PassthroughFormat,
    call: PassthroughCall,
    model: CatalogModel,
    options: CallOptions,
  ): Promise<PassthroughReply>;
}

const keyHeaders: Partial<Record<PassthroughFormat['name'], UpstreamRequest['keyHeader']>> = {
  messages: 'x-api-key',
};

export function createPassthrough({
  providers,
  clock,
  heartbeatMs,
}: {
  providers: ProviderModels;
  clock: Pick<Clock, 'monotonicMs'>;
  heartbeatMs: number;
}): Passthrough {
  return {
    async send(format, call, model, options) {
      const { upstream, baseUrl, apiKey, idleMs, firstMs } = providers.access(model, options);
      const { bytes, bytesWithoutUsage, wantsUsage } = buildProviderRequest(call.rawBody, call.body, {
        model,
        format,
        limit: call.meter?.limit(model),
      });
      const streams = call.body.stream === true;
      const startedMs = clock.monotonicMs();
      const answer = await upstream.send({
        url: `${baseUrl}${format.path}`,
        apiKey,
        // Other servers that speak Anthropic's format take a bearer token.
        keyHeader: model.providerEntry.kind === 'anthropic' ? keyHeaders[format.name] : undefined,
        headers: call.formatHeaders,
        idleMs,
        firstMs,
        body: bytes,
        bodyWithoutUsage: bytesWithoutUsage,
        streams,
        signal: call.signal,
      });
      const recordTiming = () => call.timing('upstream', clock.monotonicMs() - startedMs);
      return streams
        ? replyWithStream(answer, { format, call, model, wantsUsage, heartbeatMs, recordTiming })
        : replyWithAnswer(answer, { format, call, model, recordTiming });
    },
  };
}

interface ReplyOptions {
  format: PassthroughFormat;
  call: PassthroughCall;
  model: CatalogModel;
  recordTiming: () => void;
}

async function replyWithAnswer(
  answer: UpstreamAnswer,
  { format, call: { meter, saveForReplay }, model, recordTiming }: ReplyOptions,
): Promise<PassthroughReply> {
  const { bytes, value, isComplete } = await readPassthroughAnswer(answer, model.id, format);
  recordTiming();
  let headers = {};
  if (meter !== undefined) {
    meterPassthroughAnswer(format, value, meter);
    const outcome = format.hasFailed?.(value) === true ? 'upstream_failed' : 'completed';
    headers = creditsHeader(await meter.settle(outcome, isComplete ? saveForReplay?.(value) : undefined));
  }
  return { status: 200, content: bytes, mediaType: 'application/json; charset=utf-8', headers };
}

async function replyWithStream(
  answer: UpstreamAnswer,
  {
    format,
    call,
    model,
    wantsUsage,
    heartbeatMs,
    recordTiming,
  }: ReplyOptions & { wantsUsage: boolean; heartbeatMs: number },
): Promise<PassthroughReply> {
  const content = await readPassthroughStream(answer, {
    model,
    format,
    wantsUsage,
    heartbeatMs,
    errorFrame: (error) => {
      const body = call.streamErrorBody(error, model);
      return body && format.errorFrame(body);
    },
    meter: call.meter && createStreamMeter(format, call.meter),
  });
  recordTiming();
  return {
    status: 200,
    content,
    mediaType: 'text/event-stream; charset=utf-8',
    headers: { 'x-accel-buffering': 'no' },
  };
}

function createStreamMeter(format: PassthroughFormat, meter: Meter): StreamMeter {
  return {
    event: createEventMeter(format, meter),
    awaitsUsage: () => meter.awaitsUsage,
    ended: async (outcome) => void (await meter.settle(outcome)),
  };
}

/** The price of a whole answer, for formats that have no member for it. */
export function creditsHeader(credits: number): Record<string, string> {
  return { 'x-townhall-credits': String(credits) };
}

/** Throws a 422 when the model's provider does not take the format. */
export function requireFormat(model: CatalogModel, { name }: PassthroughFormat): void {
  if (model.providerEntry.formats.includes(name)) return;
  throw new Problem(
    'impossible',
    'unsupported_by_model',
    `The provider of the model ${model.id} does not take the format of this path.`,
    { param: 'model' },
  );
}
