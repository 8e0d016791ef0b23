// Sends one pass-through call to the provider of one model, up to the first byte of its answer.
import type { Clock } from '../../../../kernel/clock.ts';
import type { Bill } from '../../billing/bill.ts';
import type { CatalogModel } from '../../catalog/catalog.ts';
import { adapterOf } from '../../providers/adapters.ts';
import type { ProviderModels } from '../../providers/text-models.ts';
import type { Backend } from '../../upstream/backends.ts';
import type { UpstreamAnswer } from '../../upstream/client.ts';
import { streamRateOf } from '../../upstream/stream-rate.ts';
import { type PassthroughAnswer, readPassthroughAnswer } from './answer.ts';
import type { PassthroughFormat } from './formats.ts';
import { buildProviderRequest, type PassthroughBody } from './request.ts';
import { readPassthroughStream } from './stream.ts';
import { countPassthroughAnswer } from './usage.ts';
import { unsupportedMember } from '../../hub/problems.ts';

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
    attempt: Pick<PassthroughAttempt, 'model' | 'backend'>,
  ): Parameters<PassthroughFormat['errorFrame']>[0] | undefined;
  /** Absent for calls that the gateway makes itself. */
  bill?: Bill;
}

/** One attempt at a model. */
export interface PassthroughAttempt {
  model: CatalogModel;
  effort: string | undefined;
  /** Time left until the first byte, in milliseconds. */
  firstMs?: number;
  /** Time limit for the first content of a stream. */
  firstContentMs?: number | undefined;
  /** The key and the endpoint; absent for calls that the gateway makes itself. */
  backend?: Backend;
}

/** A whole answer, counted but not settled yet; or a stream that settles the bill before its last event. */
export type PassthroughResult =
  | { kind: 'whole'; answer: PassthroughAnswer }
  | { kind: 'stream'; content: AsyncIterable<Uint8Array> };

export interface Passthrough {
  /** Throws failures before the first byte. */
  send(
    format: PassthroughFormat,
    call: PassthroughCall,
    attempt: PassthroughAttempt,
  ): Promise<PassthroughResult>;
}

interface PassthroughOptions {
  providers: ProviderModels;
  clock: Pick<Clock, 'monotonicMs'>;
  /** Interval of comments on a silent stream. */
  heartbeatMs: number;
}

export function createPassthrough(options: PassthroughOptions): Passthrough {
  return { send: (format, call, attempt) => send(options, format, { call, attempt }) };
}

async function send(
  { providers, clock, heartbeatMs }: PassthroughOptions,
  format: PassthroughFormat,
  { call, attempt }: { call: PassthroughCall; attempt: PassthroughAttempt },
): Promise<PassthroughResult> {
  const { model, effort } = attempt;
  const { upstream, baseUrl, apiKey, authorizer, idleMs, firstMs } = providers.access(model, {
    effort,
    firstMs: attempt.firstMs,
    backend: attempt.backend,
  });
  const { bytes, bytesWithoutUsage, wantsUsage } = buildProviderRequest(call.rawBody, call.body, {
    model,
    format,
    limit: call.bill?.outputLimit,
  });
  const streams = call.body.stream === true;
  const startedMs = clock.monotonicMs();
  const answer = await upstream.send({
    url: `${baseUrl}${format.path}`,
    apiKey,
    keyHeader: adapterOf(model).keyHeaders?.[format.name],
    authorizer,
    headers: call.formatHeaders,
    idleMs,
    firstMs,
    body: bytes,
    bodyWithoutUsage: bytesWithoutUsage,
    streams,
    signal: call.signal,
  });
  const { firstContentMs } = attempt;
  const result = streams
    ? await readStream(answer, {
        clock,
        format,
        call,
        attempt,
        wantsUsage,
        heartbeatMs,
        firstContentMs: firstContentMs && firstContentMs - (clock.monotonicMs() - startedMs),
      })
    : await readWhole(answer, { format, call, attempt });
  call.timing('upstream', clock.monotonicMs() - startedMs);
  return result;
}

interface ReadOptions {
  format: PassthroughFormat;
  call: PassthroughCall;
  attempt: PassthroughAttempt;
}

async function readWhole(
  upstreamAnswer: UpstreamAnswer,
  { format, call: { bill }, attempt }: ReadOptions,
): Promise<PassthroughResult> {
  const answer = await readPassthroughAnswer(upstreamAnswer, attempt.model.id, format);
  if (bill !== undefined) countPassthroughAnswer(format, answer.value, bill);
  return { kind: 'whole', answer };
}

interface StreamReadOptions extends ReadOptions, Pick<PassthroughOptions, 'clock' | 'heartbeatMs'> {
  wantsUsage: boolean;
  /** Time left until the first content. */
  firstContentMs: number | undefined;
}

async function readStream(answer: UpstreamAnswer, options: StreamReadOptions): Promise<PassthroughResult> {
  const { format, call, attempt, clock } = options;
  const content = await readPassthroughStream(answer, {
    model: attempt.model,
    format,
    wantsUsage: options.wantsUsage,
    heartbeatMs: options.heartbeatMs,
    firstContentMs: options.firstContentMs,
    errorFrame: (error) => {
      const body = call.streamErrorBody(error, attempt);
      return body && format.errorFrame(body);
    },
    bill: call.bill,
    rate: call.bill && streamRateOf(attempt.model, call.bill, clock),
  });
  return { kind: 'stream', content };
}

/** Throws a 422 when the model's provider does not support the format. */
export function requireFormat(model: CatalogModel, { name }: PassthroughFormat): void {
  if (model.providerEntry.formats.includes(name)) return;
  throw unsupportedMember(
    'model',
    `The provider of the model ${model.id} (kind ${model.providerEntry.kind}) does not support the format ` +
      `${name}; use a model whose provider does.`,
  );
}
