// Detects silence in a stream, with a single timer for the whole stream.
export class SilenceTimer {
  readonly #timer: NodeJS.Timeout;
  #onSilence: (() => void) | undefined;

  constructor(ms: number) {
    this.#timer = setTimeout(() => this.#onSilence?.(), ms);
  }

  /** Settles like `work`, or resolves to undefined if `work` takes longer than the timer's delay. */
  race<T>(work: Promise<T>): Promise<T | undefined> {
    return new Promise((resolve, reject) => {
      this.#timer.refresh();
      this.#onSilence = () => resolve(undefined);
      work.then(resolve, reject);
    });
  }

  stop(): void {
    this.#onSilence = undefined;
    clearTimeout(this.#timer);
  }
}
