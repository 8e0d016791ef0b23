// The order in which the models of a call are tried: the requested model and then its fallbacks,
// or, where the requested model has `route_by`, all of them by weight, price or latency.
import type { Clock } from '../../../kernel/clock.ts';
import type { CatalogModel } from '../catalog/catalog.ts';
import type { Rates } from '../catalog/rates.ts';
import { hashText, mixHashes } from '../upstream/session-hash.ts';

export interface ModelRouter {
  /** The chain in the order of the call. `session` is asked for by weight only. */
  order(
    chain: readonly CatalogModel[],
    session: (() => number | undefined) | undefined,
  ): readonly CatalogModel[];
  /** Records how long the model took to the beginning of its answer, or undefined for a failure. */
  record(model: CatalogModel, ms: number | undefined): void;
}

interface Latency {
  /** Moving average in milliseconds; undefined before the first answer. */
  averageMs: number | undefined;
  /** Whether the last call failed; the average includes a penalty then. */
  hasFailed: boolean;
  /** When a call was last sent to measure it, or was measured. */
  measuredMs: number;
}

// The weight of the last measurement.
const smoothing = 0.2;
// A model that is not the fastest is measured again after this time, by one call.
const measurementMs = 60_000;
const longestMs = 600_000;
// The bound is above the size of any catalog; a models file may change many times while the server
// runs.
const maximumModels = 1_000;

export function createModelRouter({ clock }: { clock: Pick<Clock, 'monotonicMs'> }): ModelRouter {
  const latencies = new Map<string, Latency>();
  let calls = 0;

  function latencyOf({ id }: CatalogModel): Latency {
    let latency = latencies.get(id);
    if (latency === undefined) {
      if (latencies.size >= maximumModels) latencies.clear();
      latency = { averageMs: undefined, hasFailed: false, measuredMs: -Infinity };
      latencies.set(id, latency);
    }
    return latency;
  }

  /** The average, or -1 for the one call that measures the model. */
  function expectedMs(model: CatalogModel, mayMeasure: boolean): number {
    const latency = latencyOf(model);
    const nowMs = clock.monotonicMs();
    if (mayMeasure && nowMs - latency.measuredMs >= measurementMs) {
      latency.measuredMs = nowMs;
      return -1;
    }
    return latency.averageMs ?? longestMs;
  }

  function sortByLatency(chain: readonly CatalogModel[]): CatalogModel[] {
    let mayMeasure = true;
    return sortBy(chain, (model) => {
      const ms = expectedMs(model, mayMeasure);
      if (ms < 0) mayMeasure = false;
      return ms;
    });
  }

  return {
    order(chain, session) {
      const [requestedModel] = chain;
      if (requestedModel?.route_by === undefined || chain.length < 2) return chain;
      if (requestedModel.route_by === 'price') return sortBy(chain, ({ rates }) => comparablePrice(rates));
      if (requestedModel.route_by === 'latency') return sortByLatency(chain);
      calls += 1;
      // The hash of a counter shares calls without a session by weight.
      const hash = session?.() ?? mixHashes(calls, 0);
      return sortBy(
        chain,
        ({ id, weight = 1 }) => Math.log(shareOf(mixHashes(hash, hashText(id)))) / -weight,
      );
    },
    record(model, ms) {
      const latency = latencyOf(model);
      latency.measuredMs = clock.monotonicMs();
      const { averageMs: average, hasFailed } = latency;
      latency.hasFailed = ms === undefined;
      if (ms === undefined) latency.averageMs = Math.min(Math.max(average ?? 0, 1_000) * 2, longestMs);
      else latency.averageMs = average === undefined || hasFailed ? ms : average + smoothing * (ms - average);
    },
  };
}

/** A number between 0 and 1, both excluded. */
function shareOf(hash: number): number {
  return (hash + 0.5) / 2 ** 32;
}

/** Sorts in ascending order; equal models keep their order. */
function sortBy(models: readonly CatalogModel[], valueOf: (model: CatalogModel) => number): CatalogModel[] {
  return models
    .map((model) => ({ model, value: valueOf(model) }))
    .sort((first, second) => first.value - second.value)
    .map(({ model }) => model);
}

/** The price of three tokens of input and one of output, or of one unit of media. */
function comparablePrice(rates: Rates | null): number {
  const {
    input = 0,
    output = 0,
    image,
    video_second: video,
    speech_character: speech,
    audio_second: audio,
  } = rates ?? {};
  return 3 * input + output + (image ?? video ?? speech ?? audio ?? 0);
}
