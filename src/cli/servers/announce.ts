// The line that scripts wait for. It belongs to the command line's promise and not to the log, so it comes at any level.
import { createLog } from '../../kernel/log.ts';
import { createRedactor } from '../../kernel/secrets/secret.ts';

/** Writes `{"msg":"listening","url":"…"}`, in the form of a log line, once the server serves. */
export function announceListening(url: string): void {
  createLog({ level: 'info', redactor: createRedactor() }).info({ url }, 'listening');
}
