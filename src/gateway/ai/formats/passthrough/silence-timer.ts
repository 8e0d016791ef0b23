// Detects silence of a stream with one timer for the whole stream.
export class SilenceTimer {
  readonly #timer: NodeJS.Timeout;
  #onSilence: (() => void) | undefined;

  constructor(ms: number) {
    this.#timer = setTimeout(() => this.#onSilence?.(), ms);
  }

  /** Settles as the work does; resolves to undefined when the work takes longer than the timer. */
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
