// Combines the caller's signal, a timer and our own close into the one signal for fetch, and
// records which of them ended the call, because fetch's error does not tell.

export interface AbortScope {
  readonly signal: AbortSignal;
  /** The cause of the call's end; `open` before that. */
  readonly end: 'open' | 'aborted' | 'late' | 'closed' | 'complete';
  /** Restarts the timer; 0 means no limit. */
  arm(limitMs: number): void;
  disarm(): void;
  /** Closes the connection now. */
  close(): void;
  /** Removes the listener and the timer after the whole answer, and keeps the connection reusable. */
  release(): void;
}

export function createAbortScope(caller: AbortSignal | undefined): AbortScope {
  const controller = new AbortController();
  let end: AbortScope['end'] = 'open';
  let timer: ReturnType<typeof setTimeout> | undefined;

  function settle(reason: Exclude<AbortScope['end'], 'open'>): boolean {
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
