// The `listening` line, for which scripts wait. It is part of the command line's interface, so it
// is written at any log level.
import { createLog } from '../../kernel/log.ts';
import { createRedactor } from '../../kernel/secrets/secret.ts';

/** Writes `{"msg":"listening","url":"…"}` as a log line. */
export function announceListening(url: string): void {
  createLog({ level: 'info', redactor: createRedactor() }).info({ url }, 'listening');
}
