// Metrics of calls to model providers, by provider and model, and of the usage that requests
// record.
import type { CallNote } from '../../kernel/contract/operation.ts';
import { boundedLabel, secondsBuckets, type Metrics } from '../../kernel/telemetry/metrics.ts';

// Above the size of any catalog. The bound is for models files that change many times while the
// server runs.
const maximumModels = 500;

const callLabels = ['provider', 'model'];

export interface UpstreamMetrics {
  /**
   * The label of a model: `other` unless the model has been called, since a client can request any
   * name.
   */
  modelLabel(model: string | undefined): string;
  /** The labels of a call. From then on its model has a label of its own. */
  labelsOfCall(call: { provider: string; model: string }): string[];
  countCall(labels: readonly string[], outcome: string): void;
  /** Counts a call by its key; no effect for a provider with a single key. */
  countKey(call: { provider: string; key?: string | undefined }, outcome: string): void;
  countRetry(labels: readonly string[]): void;
  measureDuration(labels: readonly string[], ms: number): void;
  measureFirstPiece(labels: readonly string[], ms: number): void;
  countUsage(notes: Pick<CallNote, 'model' | 'tokens' | 'credits'>): void;
}

export function createUpstreamMetrics(metrics: Metrics): UpstreamMetrics {
  const calls = metrics.counter(
    'townhall_upstream_requests_total',
    'Calls to model providers; the outcome is answered, aborted or the code of the failure.',
    [...callLabels, 'outcome'],
  );
  const keyCalls = metrics.counter(
    'townhall_upstream_key_requests_total',
    'Calls to model providers with several keys, by the environment variable of the key.',
    ['provider', 'key', 'outcome'],
  );
  const retries = metrics.counter(
    'townhall_upstream_retries_total',
    'Retries of failed calls to model providers.',
    callLabels,
  );
  const durations = metrics.histogram(
    'townhall_upstream_duration_seconds',
    'Seconds from a call to a model provider to the end of its answer.',
    callLabels,
    secondsBuckets,
  );
  const firstPieces = metrics.histogram(
    'townhall_upstream_first_piece_seconds',
    'Seconds from a call to a model provider to the first piece of a streamed answer.',
    callLabels,
    secondsBuckets,
  );
  const countUsage = createUsageCounters(metrics);
  const boundedModel = boundedLabel(maximumModels);
  const calledModels = new Set<string>();
  const modelLabel = (model: string | undefined): string =>
    model !== undefined && calledModels.has(model) ? boundedModel(model) : 'other';
  return {
    modelLabel,
    labelsOfCall({ provider, model }) {
      if (calledModels.size < maximumModels) calledModels.add(model);
      return [provider, modelLabel(model)];
    },
    countCall: (labels, outcome) => calls.add([...labels, outcome]),
    countKey({ provider, key }, outcome) {
      if (key !== undefined) keyCalls.add([provider, key, outcome]);
    },
    countRetry: (labels) => retries.add(labels),
    measureDuration: (labels, ms) => durations.observe(labels, ms / 1000),
    measureFirstPiece: (labels, ms) => firstPieces.observe(labels, ms / 1000),
    countUsage: (notes) => countUsage(notes, modelLabel),
  };
}

function createUsageCounters(metrics: Metrics) {
  const tokens = metrics.counter('townhall_tokens_total', 'Tokens of answered calls by kind.', [
    'model',
    'kind',
  ]);
  const credits = metrics.counter('townhall_credits_total', 'Credits charged; a million are one US dollar.', [
    'model',
  ]);
  return (
    notes: Pick<CallNote, 'model' | 'tokens' | 'credits'>,
    modelLabel: UpstreamMetrics['modelLabel'],
  ): void => {
    if (notes.tokens === undefined && notes.credits === undefined) return;
    const model = modelLabel(notes.model);
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
  };
}

/** The state of a key at an endpoint. `keyEnv` is the environment variable of the key. */
export interface KeyReport {
  provider: string;
  keyEnv: string | undefined;
  baseUrl: string | undefined;
  outstanding: number;
  cooling: object | undefined;
}

export function registerKeyGauges(metrics: Metrics, reports: () => readonly KeyReport[]): void {
  const labels = ['provider', 'key', 'endpoint'];
  const read = (valueOf: (report: KeyReport) => number) => () =>
    reports().map((report) => ({ labels: labelsOfKey(report), value: valueOf(report) }));
  metrics.gauge(
    'townhall_upstream_key_running',
    'Calls in progress, by key, for providers with several keys.',
    read(({ outstanding }) => outstanding),
    labels,
  );
  metrics.gauge(
    'townhall_upstream_key_cooling',
    '1 while no calls are sent with the key, after the provider limited or refused it.',
    read(({ cooling }) => (cooling === undefined ? 0 : 1)),
    labels,
  );
}

/** The endpoint without its scheme; empty where the provider has only one. */
function labelsOfKey({ provider, keyEnv = '', baseUrl = '' }: KeyReport): string[] {
  return [provider, keyEnv, baseUrl.replace(/^https?:\/\//, '')];
}

export function registerUsageAlarmGauges(
  metrics: Metrics,
  counts: () => { alarms: number; stoppedUsers: number },
): void {
  metrics.gauge(
    'townhall_usage_alarms',
    'Calls since the process started for which a provider reported more usage than is possible.',
    () => counts().alarms,
  );
  metrics.gauge(
    'townhall_stopped_payers',
    'Users whose paid calls are stopped after repeated usage alarms.',
    () => counts().stoppedUsers,
  );
}

export function registerBreakerGauge(
  metrics: Metrics,
  states: () => readonly { model: string; provider: string; isOpen: boolean }[],
  modelLabel: UpstreamMetrics['modelLabel'],
): void {
  metrics.gauge(
    'townhall_upstream_breaker_open',
    '1 while calls to the model are stopped after too many failures.',
    () => {
      // Models that share the label `other` have one series, which is 1 while any of their breakers is open.
      const series = new Map<string, { labels: string[]; value: number }>();
      for (const { provider, model, isOpen } of states()) {
        const labels = [provider, modelLabel(model)];
        const key = labels.join(' ');
        series.set(key, { labels, value: Math.max(series.get(key)?.value ?? 0, isOpen ? 1 : 0) });
      }
      return [...series.values()];
    },
    callLabels,
  );
}
