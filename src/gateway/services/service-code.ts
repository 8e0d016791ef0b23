// Handles errors that a service's code throws after its call has ended.
import type { Log } from '../../kernel/log.ts';
import type { CodeOwner } from '../../kernel/operator-errors.ts';

/** Logs the errors of one service; the gateway continues. */
export function serviceCode(log: Pick<Log, 'error'>): CodeOwner {
  return {
    fail: (error) =>
      log.error({ err: error }, 'a service threw an error outside a call or tried to end the process'),
  };
}
