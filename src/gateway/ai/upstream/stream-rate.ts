// The slow-stream guard: ends a stream whose text arrives more slowly than the model's
// `min_bytes_per_s`. It counts only the time in which the gateway waits for the provider, so a
// client that reads slowly does not end its stream. It has no timer: a silent stream ends at the
// idle timeout. A translated stream that has only comments and pings is not checked, as the AI
// SDK's packages drop them; it ends at the limit of the whole request.
import type { Clock } from '../../../kernel/clock.ts';
import { Problem } from '../../../kernel/problem.ts';

// Providers send in bursts, and models pause for seconds between two parts of an answer.
const windowMs = 20_000;

interface MeasuredText {
  /** The bytes of text so far. */
  readonly textBytes: number;
}

export class StreamRate {
  readonly #bytesPerSecond: number;
  readonly #text: MeasuredText;
  readonly #clock: Pick<Clock, 'monotonicMs'>;
  #waitStartedMs = 0;
  #waitedMs = 0;
  /** The count of bytes when the window began; undefined before the first text. */
  #startBytes: number | undefined;

  constructor(bytesPerSecond: number, text: MeasuredText, clock: Pick<Clock, 'monotonicMs'>) {
    this.#bytesPerSecond = bytesPerSecond;
    this.#text = text;
    this.#clock = clock;
  }

  /** Call it before each wait for the provider. */
  startWait(): void {
    this.#waitStartedMs = this.#clock.monotonicMs();
  }

  endWait(): void {
    this.#waitedMs += this.#clock.monotonicMs() - this.#waitStartedMs;
  }

  /**
   * Call it after the text of an event was counted. Throws a 504 when a window is over and had too
   * little text.
   */
  check(): void {
    const { textBytes } = this.#text;
    if (this.#startBytes === undefined) {
      this.#waitedMs = 0;
      if (textBytes > 0) this.#startBytes = textBytes;
      return;
    }
    if (this.#waitedMs < windowMs) return;
    const bytesPerSecond = ((textBytes - this.#startBytes) * 1_000) / this.#waitedMs;
    if (bytesPerSecond < this.#bytesPerSecond) throw this.#slowProblem();
    this.#startBytes = textBytes;
    this.#waitedMs = 0;
  }

  #slowProblem(): Problem {
    return new Problem(
      'upstream_timeout',
      'upstream_timeout',
      `The model provider sent less than ${this.#bytesPerSecond} bytes of text a second ` +
        `for ${windowMs / 1_000} seconds.`,
    );
  }
}

/** The guard of one stream; undefined for a model without a limit. */
export function streamRateOf(
  model: { min_bytes_per_s?: number },
  text: MeasuredText,
  clock: Pick<Clock, 'monotonicMs'>,
): StreamRate | undefined {
  const { min_bytes_per_s: limit } = model;
  return limit === undefined ? undefined : new StreamRate(limit, text, clock);
}
