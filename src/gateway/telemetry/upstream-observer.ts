// Observes calls to model providers: metrics by provider and model, one span a call after OpenTelemetry's conventions for
// generative AI, and notes for the request log with the model and the waiting time.
import type { Clock } from '../../kernel/clock.ts';
import type { CallNote } from '../../kernel/contract/operation.ts';
import { boundedLabel, secondsBuckets } from '../../kernel/telemetry/metrics.ts';
import type { RequestEnd, RequestScope } from '../../kernel/http/observer.ts';
import { noteAttributes } from '../../kernel/telemetry/request-telemetry.ts';
import type { Telemetry } from '../../kernel/telemetry/telemetry.ts';
import { codeOf } from '../../kernel/telemetry/traces.ts';

/** One call to one model: the first try of it, or a retry. */
export interface UpstreamAttempt {
  /** By the id that the catalog gives it. */
  model: string;
  provider: string;
  /** 0 for the first try. */
  retry: number;
}

export interface UpstreamObserver {
  /** Follows the call, which has done its part when the answer begins; gives back, and throws, what it does. */
  observe<T>(attempt: UpstreamAttempt, call: () => Promise<T>): Promise<T>;
  /** Tells the request that runs here what came of it; of a job, which has none, it is counted at once. */
  note(fields: CallNote): void;
  /** Shows which breakers hold calls off. */
  showBreakers(states: () => readonly { model: string; provider: string; isOpen: boolean }[]): void;
  /** Shows how many calls had a usage that cannot be, and how many users' paid calls are stopped for it. */
  showUsageAlarms(counts: () => { alarms: number; stoppedUsers: number }): void;
}

// More than any catalog has; a models file may be rewritten for months while the server runs.
const maximumModels = 500;

const operationNames: Readonly<Record<string, string>> = {
  'ai.embedText': 'embeddings',
  'ai.rerankDocuments': 'rerank',
  'ai.createImage': 'generate_content',
  'ai.startVideo': 'generate_content',
  'ai.synthesizeSpeech': 'generate_content',
  'ai.transcribeAudio': 'transcription',
};

export function createUpstreamObserver({
  telemetry,
  clock,
}: {
  telemetry: Telemetry;
  clock: Pick<Clock, 'monotonicMs'>;
}): UpstreamObserver {
  const { metrics, traces } = telemetry;
  const by = ['provider', 'model'];
  const calls = metrics.counter(
    'townhall_upstream_requests_total',
    'Calls to model providers; the outcome is answered, aborted or the code of the failure.',
    [...by, 'outcome'],
  );
  const retries = metrics.counter(
    'townhall_upstream_retries_total',
    'Calls that repeated one that had failed.',
    by,
  );
  const durations = metrics.histogram(
    'townhall_upstream_duration_seconds',
    'From a call to a model provider to the end of its answer.',
    by,
    secondsBuckets,
  );
  const firsts = metrics.histogram(
    'townhall_upstream_first_piece_seconds',
    'From a call to a model provider to the first piece of a streamed answer.',
    by,
    secondsBuckets,
  );
  const tokens = metrics.counter('townhall_tokens_total', 'Tokens of answered calls by kind.', [
    'model',
    'kind',
  ]);
  const credits = metrics.counter('townhall_credits_total', 'Credits charged; a million are one US dollar.', [
    'model',
  ]);
  const modelLabel = boundedLabel(maximumModels);
  // Labels are only models of the catalog that have run; a requested name could be any text.
  const ranModels = new Set<string>();
  // Failed attempts count too: they delayed the answer.
  const upstreamMsByRequest = new WeakMap<RequestScope, number>();
  const addUpstreamMs = (request: RequestScope | undefined, ms: number): number => {
    if (request === undefined) return ms;
    const sum = (upstreamMsByRequest.get(request) ?? 0) + ms;
    upstreamMsByRequest.set(request, sum);
    return sum;
  };
  const nameOf = (model: string | undefined): string =>
    model !== undefined && ranModels.has(model) ? modelLabel(model) : 'other';

  function count(notes: CallNote): void {
    if (notes.tokens === undefined && notes.credits === undefined) return;
    const model = nameOf(notes.model);
    const { input, cachedInput, cacheWrite, output, reasoning } = notes.tokens ?? {};
    for (const [kind, amount] of Object.entries({
      input,
      cached_input: cachedInput,
      cache_write: cacheWrite,
      output,
      reasoning,
    })) {
      if (amount !== undefined && amount > 0) tokens.add([model, kind], amount);
    }
    if (notes.credits !== undefined && Number(notes.credits) > 0) credits.add([model], Number(notes.credits));
  }
  telemetry.onRequestEnd(({ notes }) => count(notes));

  return {
    note(fields) {
      const request = telemetry.request();
      if (request === undefined) count(fields);
      else request.note(fields);
    },
    async observe({ model, provider, retry }, call) {
      if (ranModels.size < maximumModels) ranModels.add(model);
      const labels = [provider, nameOf(model)];
      const request = telemetry.request();
      const operation = operationNames[request?.operationId ?? ''] ?? 'chat';
      const startedMs = clock.monotonicMs();
      const span = traces.start(`${operation} ${model}`, {
        kind: 'client',
        attributes: {
          'gen_ai.operation.name': operation,
          'gen_ai.provider.name': provider,
          'gen_ai.request.model': model,
          'townhall.retry': retry === 0 ? undefined : retry,
        },
      });
      if (retry > 0) retries.add(labels);
      try {
        const answer = await traces.within(span, call);
        const answeredMs = clock.monotonicMs();
        const upstreamMs = addUpstreamMs(request, answeredMs - startedMs);
        calls.add([...labels, 'answered']);
        const ended = ({
          isStream,
          clientGone,
          notes,
        }: Pick<RequestEnd, 'isStream' | 'clientGone' | 'notes'>): void => {
          const endedMs = isStream ? clock.monotonicMs() : answeredMs;
          durations.observe(labels, (endedMs - startedMs) / 1000);
          if (isStream) firsts.observe(labels, (answeredMs - startedMs) / 1000);
          span.set({
            ...noteAttributes({ ...notes, model, provider }),
            'townhall.client_gone': clientGone ? true : undefined,
          });
          span.end(endedMs);
        };
        // An answer that is streamed goes on for as long as the request does; a job has no request.
        if (request === undefined) ended({ isStream: false, clientGone: false, notes: {} });
        else {
          request.note({ model, provider, upstreamMs });
          request.onEnd(ended);
        }
        return answer;
      } catch (error) {
        const outcome = isAbort(error) ? 'aborted' : codeOf(error);
        calls.add([...labels, outcome]);
        const spentMs = clock.monotonicMs() - startedMs;
        request?.note({ model, provider, upstreamMs: addUpstreamMs(request, spentMs) });
        durations.observe(labels, spentMs / 1000);
        span.fail(outcome);
        span.end();
        throw error;
      }
    },
    showUsageAlarms(counts) {
      metrics.gauge(
        'townhall_usage_alarms',
        'Calls of users since the start for which a provider claimed a usage far above what was possible.',
        () => counts().alarms,
      );
      metrics.gauge(
        'townhall_stopped_payers',
        'Users whose paid calls are stopped after repeated usage alarms.',
        () => counts().stoppedUsers,
      );
    },
    showBreakers(states) {
      metrics.gauge(
        'townhall_upstream_breaker_open',
        '1 while calls to the model are held off after too many failures.',
        () => {
          const open = new Map<string, { labels: string[]; value: number }>();
          for (const { provider, model, isOpen } of states()) {
            const labels = [provider, nameOf(model)];
            const value = Math.max(open.get(labels.join(' '))?.value ?? 0, isOpen ? 1 : 0);
            open.set(labels.join(' '), { labels, value });
          }
          return [...open.values()];
        },
        by,
      );
    },
  };
}

function isAbort(error: unknown): boolean {
  return (
    error instanceof Error && (error.name === 'AbortError' || ('code' in error && error.code === 'ABORT_ERR'))
  );
}
