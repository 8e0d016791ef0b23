// One line of `townhall doctor`: what was checked, the result, and what to do about it.

export interface Finding {
  check: string;
  state: 'ok' | 'warn' | 'fail';
  /** The result in one sentence. Never a secret. */
  message: string;
  /** The advice; null when no action is needed. */
  next: string | null;
}

export function ok(check: string, message: string): Finding {
  return { check, state: 'ok', message, next: null };
}

export function warn(check: string, message: string, next: string): Finding {
  return { check, state: 'warn', message, next };
}

export function fail(check: string, message: string, next: string): Finding {
  return { check, state: 'fail', message, next };
}
