// The lifeline of one call: the caller's signal, a clock and our own wish to stop, made into the one signal that fetch
// gets. It remembers which of them ended the call, because fetch's own error does not say.

export interface Lifeline {
  readonly signal: AbortSignal;
  /** What ended the call, `open` while nothing has. */
  readonly end: 'open' | 'aborted' | 'late' | 'closed' | 'complete';
  /** Starts the clock anew; 0 means no limit. */
  arm(limitMs: number): void;
  disarm(): void;
  /** Closes the connection now. */
  close(): void;
  /** The answer was read whole: lets go of the caller's signal and the clock, and leaves the connection usable. */
  release(): void;
}

export function createLifeline(caller: AbortSignal | undefined): Lifeline {
  const controller = new AbortController();
  let end: Lifeline['end'] = 'open';
  let timer: ReturnType<typeof setTimeout> | undefined;

  function settle(reason: Exclude<Lifeline['end'], 'open'>): boolean {
    if (end !== 'open') return false;
    end = reason;
    clearTimeout(timer);
    caller?.removeEventListener('abort', onAbort);
    return true;
  }
  function stop(reason: 'aborted' | 'late' | 'closed'): void {
    if (settle(reason)) controller.abort();
  }
  function onAbort(): void {
    stop('aborted');
  }

  if (caller?.aborted) onAbort();
  else caller?.addEventListener('abort', onAbort, { once: true });

  return {
    signal: controller.signal,
    get end() {
      return end;
    },
    arm(limitMs) {
      clearTimeout(timer);
      if (end === 'open' && limitMs > 0) timer = setTimeout(() => stop('late'), limitMs);
    },
    disarm: () => clearTimeout(timer),
    close: () => stop('closed'),
    release: () => void settle('complete'),
  };
}
