// One call in a foreign format, passed through to the provider of one model, up to the first byte of its answer.
import type { Clock } from '../../../../kernel/clock.ts';
import { Problem } from '../../../../kernel/problem.ts';
import type { CatalogModel } from '../../catalog/catalog.ts';
import type { PassthroughFormat } from './format.ts';
import { createEventMeter, meterPassthroughAnswer } from './usage.ts';
import type { Alongside } from '../../../credits/index.ts';
import type { Meter } from '../../metering/meter.ts';
import {
  type PassthroughBody,
  readPassthroughAnswer,
  readPassthroughStream,
  buildProviderRequest,
  type StreamMeter,
} from './passthrough.ts';
import type { CallOptions, ProviderModels } from '../../providers/text-models.ts';
import type { UpstreamRequest } from '../../upstream/client.ts';

/** What a handler knows of the call. */
export interface PassthroughCall {
  body: PassthroughBody;
  rawBody: Uint8Array;
  signal: AbortSignal;
  timing(name: string, durationMs: number): void;
  /** Headers of the caller that are part of the format. */
  formatHeaders?: Record<string, string>;
  /** Renders what a stream that failed midway ends with; undefined when the caller is gone. */
  streamErrorBody(
    thrown: unknown,
    model: CatalogModel,
  ): Parameters<PassthroughFormat['errorFrame']>[0] | undefined;
  /** Absent for a call of our own. */
  meter?: Meter;
  /** Keeps a whole answer for a repetition of the call; absent or undefined where it is not kept. */
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
    terms: CallOptions,
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
    async send(format, call, model, terms) {
      const { upstream, baseUrl, apiKey, idleMs, firstMs } = providers.access(model, terms);
      const { meter } = call;
      const sent = buildProviderRequest(call.rawBody, call.body, {
        model,
        format,
        limit: meter?.limit(model),
      });
      const streams = call.body.stream === true;
      const startedMs = clock.monotonicMs();
      // Whoever takes Anthropic's format without being Anthropic takes a bearer credential as for all others.
      const keyHeader = model.providerEntry.kind === 'anthropic' ? keyHeaders[format.name] : undefined;
      const answer = await upstream.send({
        url: `${baseUrl}${format.path}`,
        apiKey,
        keyHeader,
        headers: call.formatHeaders,
        idleMs,
        firstMs,
        body: sent.bytes,
        streams,
        signal: call.signal,
      });
      if (!streams) {
        const { bytes, value, isComplete } = await readPassthroughAnswer(answer, model.id, format);
        call.timing('upstream', clock.monotonicMs() - startedMs);
        return {
          status: 200,
          content: bytes,
          mediaType: 'application/json; charset=utf-8',
          headers: meter
            ? await paid(format, { value, meter, saveForReplay: isComplete ? call.saveForReplay : undefined })
            : {},
        };
      }
      const content = await readPassthroughStream(answer, {
        model,
        format,
        wantsUsage: sent.wantsUsage,
        heartbeatMs,
        errorFrame: (thrown) => {
          const body = call.streamErrorBody(thrown, model);
          return body && format.errorFrame(body);
        },
        meter: meter && streamMeter(format, meter),
      });
      call.timing('upstream', clock.monotonicMs() - startedMs);
      return {
        status: 200,
        content,
        mediaType: 'text/event-stream; charset=utf-8',
        headers: { 'x-accel-buffering': 'no' },
      };
    },
  };
}

function streamMeter(format: PassthroughFormat, meter: Meter): StreamMeter {
  return {
    event: createEventMeter(format, meter),
    awaitsUsage: () => meter.awaitsUsage,
    ended: async (outcome) => void (await meter.settle(outcome)),
  };
}

async function paid(
  format: PassthroughFormat,
  {
    value,
    meter,
    saveForReplay,
  }: { value: Record<string, unknown>; meter: Meter; saveForReplay: PassthroughCall['saveForReplay'] },
): Promise<Record<string, string>> {
  meterPassthroughAnswer(format, value, meter);
  return creditsHeader(
    await meter.settle(
      format.hasFailed?.(value) === true ? 'upstream_failed' : 'completed',
      saveForReplay?.(value),
    ),
  );
}

/** What a whole answer says of its price where its format has no member for it. */
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
