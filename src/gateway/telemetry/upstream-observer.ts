// Observes calls to model providers: metrics by provider and model, one span per call (by
// OpenTelemetry's conventions for generative AI), and the model and the time that the request
// waited for it in the request log.
import type { Clock } from '../../kernel/clock.ts';
import type { CallNote } from '../../kernel/contract/operation.ts';
import type { RequestEnd, RequestScope } from '../../kernel/http/observer.ts';
import { noteAttributes } from '../../kernel/telemetry/request-telemetry.ts';
import type { Telemetry } from '../../kernel/telemetry/telemetry.ts';
import { codeOf, type Span } from '../../kernel/telemetry/traces.ts';
import {
  createUpstreamMetrics,
  type KeyReport,
  registerBreakerGauge,
  registerKeyGauges,
  registerUsageAlarmGauges,
  type UpstreamMetrics,
} from './upstream-metrics.ts';

/** One attempt to call a model: the first one, or a retry. */
export interface UpstreamAttempt {
  /** The model's id in the catalog. */
  model: string;
  provider: string;
  /** 0 for the first attempt. */
  retry: number;
  /** The environment variable of the key, if the provider has several keys. */
  key?: string | undefined;
}

export interface UpstreamObserver {
  /** Measures the call, which resolves when the answer begins. Returns its result and rethrows its error. */
  observe<T>(attempt: UpstreamAttempt, call: () => Promise<T>): Promise<T>;
  /**
   * Counts the usage and adds the fields to the current request, if there is one. The metrics do not wait for
   * the end of the request: a call may be settled after it.
   */
  note(fields: CallNote): void;
  /** Registers the gauge of open breakers. */
  showBreakers(states: () => readonly { model: string; provider: string; isOpen: boolean }[]): void;
  /** Registers the gauges of the keys of providers that have several keys. */
  showKeys(states: () => readonly KeyReport[]): void;
  /** Registers the gauges of implausible usage: affected calls, and users whose paid calls are stopped. */
  showUsageAlarms(counts: () => { alarms: number; stoppedUsers: number }): void;
}

// The value of `gen_ai.operation.name` by operation ID; `chat` for all others.
const operationNames: Readonly<Record<string, string>> = {
  'ai.createCompletion': 'text_completion',
  'ai.embedText': 'embeddings',
  'ai.embedSdkValues': 'embeddings',
  'ai.moderateContent': 'moderation',
  'ai.rerankDocuments': 'rerank',
  'ai.rerankSdkDocuments': 'rerank',
  'ai.synthesizeSpeech': 'generate_content',
  'ai.synthesizeClientSpeech': 'generate_content',
  'ai.synthesizeSdkSpeech': 'generate_content',
  'ai.transcribeAudio': 'transcription',
  'ai.transcribeClientAudio': 'transcription',
  'ai.transcribeSdkAudio': 'transcription',
  'ai.generateGeminiContent': 'generate_content',
  'ai.streamGeminiContent': 'generate_content',
};

export function createUpstreamObserver({
  telemetry,
  clock,
}: {
  telemetry: Telemetry;
  clock: Pick<Clock, 'monotonicMs'>;
}): UpstreamObserver {
  const { metrics, traces } = telemetry;
  const upstreamMetrics = createUpstreamMetrics(metrics);
  const addUpstreamMs = createUpstreamTimes();

  return {
    note(fields) {
      upstreamMetrics.countUsage(fields);
      telemetry.request()?.note(fields);
    },
    async observe(attempt, call) {
      const labels = upstreamMetrics.labelsOfCall(attempt);
      const request = telemetry.request();
      const startedMs = clock.monotonicMs();
      const span = startSpan(telemetry, attempt, request);
      if (attempt.retry > 0) upstreamMetrics.countRetry(labels);
      const observation = {
        attempt,
        labels,
        request,
        startedMs,
        span,
        isTraced: traces.isOn,
        clock,
        upstreamMetrics,
        addUpstreamMs,
      };
      try {
        const answer = await traces.runInSpan(span, call);
        recordAnswer(observation);
        return answer;
      } catch (error) {
        recordFailure(observation, error);
        throw error;
      }
    },
    showUsageAlarms: (counts) => registerUsageAlarmGauges(metrics, counts),
    showKeys: (states) => registerKeyGauges(metrics, states),
    showBreakers: (states) => registerBreakerGauge(metrics, states, upstreamMetrics.modelLabel),
  };
}

/** A running attempt and the parts that record its outcome. */
interface Observation {
  attempt: UpstreamAttempt;
  labels: readonly string[];
  /** Absent for a job. */
  request: RequestScope | undefined;
  startedMs: number;
  span: Span;
  isTraced: boolean;
  clock: Pick<Clock, 'monotonicMs'>;
  upstreamMetrics: UpstreamMetrics;
  addUpstreamMs: AddUpstreamMs;
}

type AddUpstreamMs = (request: RequestScope | undefined, ms: number) => number;

/**
 * Sums up the time that a request waited for providers. Failed attempts count: they delayed the
 * answer.
 */
function createUpstreamTimes(): AddUpstreamMs {
  const upstreamMsByRequest = new WeakMap<RequestScope, number>();
  return (request, ms) => {
    if (request === undefined) return ms;
    const sum = (upstreamMsByRequest.get(request) ?? 0) + ms;
    upstreamMsByRequest.set(request, sum);
    return sum;
  };
}

function startSpan(
  { traces }: Pick<Telemetry, 'traces'>,
  { model, provider, retry }: UpstreamAttempt,
  request: RequestScope | undefined,
): Span {
  // Only jobs, which create images and videos, make calls outside of a request.
  const operation =
    request === undefined ? 'generate_content' : (operationNames[request.operationId ?? ''] ?? 'chat');
  if (!traces.isOn) return traces.start(operation);
  return traces.start(`${operation} ${model}`, {
    kind: 'client',
    attributes: {
      'gen_ai.operation.name': operation,
      'gen_ai.provider.name': provider,
      'gen_ai.request.model': model,
      'townhall.retry': retry === 0 ? undefined : retry,
    },
  });
}

/** Records the start of the answer now. The end is recorded when the request ends. */
function recordAnswer(observation: Observation): void {
  const { attempt, labels, request, startedMs, clock, upstreamMetrics, addUpstreamMs } = observation;
  const { model, provider } = attempt;
  const answeredMs = clock.monotonicMs();
  const upstreamMs = addUpstreamMs(request, answeredMs - startedMs);
  upstreamMetrics.countCall(labels, 'answered');
  upstreamMetrics.countKey(attempt, 'answered');
  // A streamed answer lasts as long as its request or detached work. A job has no request, and its answer has
  // ended.
  if (request === undefined) {
    recordEnd(observation, answeredMs, { isStream: false, isClientGone: false, notes: {} });
  } else {
    request.note({ model, provider, upstreamMs });
    request.onEnd((end) => recordEnd(observation, answeredMs, end));
  }
}

function recordEnd(
  { attempt, labels, startedMs, span, isTraced, clock, upstreamMetrics }: Observation,
  answeredMs: number,
  { isStream, isClientGone, notes }: RequestEnd,
): void {
  const { model, provider } = attempt;
  const endedMs = isStream ? clock.monotonicMs() : answeredMs;
  upstreamMetrics.measureDuration(labels, endedMs - startedMs);
  if (isStream) upstreamMetrics.measureFirstPiece(labels, answeredMs - startedMs);
  if (!isTraced) return;
  span.set({
    ...noteAttributes({ ...notes, model, provider }),
    'townhall.client_gone': isClientGone ? true : undefined,
  });
  span.end(endedMs);
}

function recordFailure(
  { attempt, labels, request, startedMs, span, clock, upstreamMetrics, addUpstreamMs }: Observation,
  error: unknown,
): void {
  const { model, provider } = attempt;
  const outcome = isAbort(error) ? 'aborted' : codeOf(error);
  upstreamMetrics.countCall(labels, outcome);
  upstreamMetrics.countKey(attempt, outcome);
  const spentMs = clock.monotonicMs() - startedMs;
  request?.note({ model, provider, upstreamMs: addUpstreamMs(request, spentMs) });
  upstreamMetrics.measureDuration(labels, spentMs);
  span.fail(outcome);
  span.end();
}

function isAbort(error: unknown): boolean {
  return (
    error instanceof Error && (error.name === 'AbortError' || ('code' in error && error.code === 'ABORT_ERR'))
  );
}
