import type { Log } from '../../kernel/log.ts';
import type { CodeOwner } from '../../kernel/operator-errors.ts';

/** The code of a project's service: its late errors go to the log, and the gateway continues. */
export function serviceCode(log: Pick<Log, 'error'>): CodeOwner {
  return {
    fail: (error) =>
      log.error({ err: error }, 'a service threw an error outside of its call or tried to end the process'),
  };
}
