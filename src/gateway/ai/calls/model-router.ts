// The order in which the models of a call are tried: the requested model and then its fallbacks,
// or, if the requested model has `route_by`, all of them by weight, price or latency.
import type { Clock } from '../../../kernel/clock.ts';
import { hashText } from '../../../kernel/hash-text.ts';
import type { CatalogModel } from '../catalog/catalog.ts';
import type { Rates } from '../catalog/rates.ts';
import { mixHashes } from '../upstream/session-hash.ts';

export interface ModelRouter {
  /** Returns the chain in the order in which to try it. Only `route_by: weight` calls `session`. */
  order(
    chain: readonly CatalogModel[],
    session: (() => number | undefined) | undefined,
  ): readonly CatalogModel[];
  /** Records how long the model took to start its answer; undefined records a failure. */
  record(model: CatalogModel, ms: number | undefined): void;
}

export function createModelRouter({ clock }: { clock: Pick<Clock, 'monotonicMs'> }): ModelRouter {
  const latencies = new LatencyTable(clock);
  let calls = 0;
  return {
    order(chain, session) {
      const [requestedModel] = chain;
      if (requestedModel?.route_by === undefined || chain.length < 2) return chain;
      if (requestedModel.route_by === 'price') return sortBy(chain, ({ rates }) => comparablePrice(rates));
      if (requestedModel.route_by === 'latency') return latencies.sort(chain);
      calls += 1;
      // Calls without a session use the hash of a counter, which spreads them by weight.
      return sortByWeight(chain, session?.() ?? mixHashes(calls, 0));
    },
    record: (model, ms) => latencies.record(model, ms),
  };
}

/** Weighted rendezvous hashing: a session keeps its order, and each model gets its share of the sessions. */
function sortByWeight(chain: readonly CatalogModel[], hash: number): CatalogModel[] {
  return sortBy(chain, ({ id, weight = 1 }) => Math.log(shareOf(mixHashes(hash, hashText(id)))) / -weight);
}

/** A number between 0 and 1, both excluded. */
function shareOf(hash: number): number {
  return (hash + 0.5) / 2 ** 32;
}

interface Latency {
  /** Moving average in milliseconds; undefined before the first answer. */
  averageMs: number | undefined;
  /** Whether the last call failed; the average includes a penalty then. */
  hasFailed: boolean;
  /** When the model was last measured, or was last chosen to be measured. */
  measuredMs: number;
}

// The weight of the last measurement.
const smoothing = 0.2;
// A model that no call has measured for this long is tried first by one call, even if it is slow.
const measurementMs = 60_000;
// The latency of a model that has never answered, and the limit to which failures raise a latency.
const longestMs = 600_000;
// A failure doubles the average latency, or this latency if the average is lower.
const minPenaltyMs = 1_000;
// More models than any catalog has. Bounds the table when a models file that changes often brings new ids: a
// new model replaces the one that was measured longest ago.
const maxModels = 1_000;

/** How long each model takes to start its answer. */
class LatencyTable {
  readonly #clock: Pick<Clock, 'monotonicMs'>;
  readonly #latencies = new Map<string, Latency>();

  constructor(clock: Pick<Clock, 'monotonicMs'>) {
    this.#clock = clock;
  }

  /** Puts the fastest model first, or a model that has to be measured again before it. */
  sort(chain: readonly CatalogModel[]): CatalogModel[] {
    const nowMs = this.#clock.monotonicMs();
    const outdatedModel = chain.find(
      ({ id }) => nowMs - (this.#latencies.get(id)?.measuredMs ?? -Infinity) >= measurementMs,
    );
    const sortedChain = sortBy(chain, (model) =>
      model === outdatedModel ? -1 : (this.#latencies.get(model.id)?.averageMs ?? longestMs),
    );
    if (outdatedModel !== undefined) this.#latencyOf(outdatedModel).measuredMs = nowMs;
    return sortedChain;
  }

  record(model: CatalogModel, ms: number | undefined): void {
    const latency = this.#latencyOf(model);
    const { averageMs, hasFailed } = latency;
    latency.measuredMs = this.#clock.monotonicMs();
    latency.hasFailed = ms === undefined;
    if (ms === undefined) latency.averageMs = Math.min(Math.max(averageMs ?? 0, minPenaltyMs) * 2, longestMs);
    else
      latency.averageMs =
        averageMs === undefined || hasFailed ? ms : averageMs + smoothing * (ms - averageMs);
  }

  #latencyOf({ id }: CatalogModel): Latency {
    let latency = this.#latencies.get(id);
    if (latency === undefined) {
      if (this.#latencies.size >= maxModels) this.#deleteOldest();
      latency = { averageMs: undefined, hasFailed: false, measuredMs: -Infinity };
      this.#latencies.set(id, latency);
    }
    return latency;
  }

  #deleteOldest(): void {
    let oldestMs = Infinity;
    let oldestId = '';
    for (const [id, { measuredMs }] of this.#latencies) {
      if (measuredMs >= oldestMs) continue;
      oldestMs = measuredMs;
      oldestId = id;
    }
    this.#latencies.delete(oldestId);
  }
}

/** Sorts in ascending order; equal models keep their order. */
function sortBy(models: readonly CatalogModel[], valueOf: (model: CatalogModel) => number): CatalogModel[] {
  return models
    .map((model) => ({ model, value: valueOf(model) }))
    .sort((first, second) => first.value - second.value)
    .map(({ model }) => model);
}

/** The price of three input tokens and one output token, or of one unit of media. */
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
