// The log of a command whose standard output is its result: it goes to standard error.
import { createLog, type Log, type LogLevel } from '../../kernel/log.ts';
import { createRedactor, type Redactor } from '../../kernel/secrets/secret.ts';

/** Logs warnings and errors unless `level` says otherwise; `secrets` are redacted. */
export function stderrLog({
  level = 'warn',
  secrets = [],
}: { level?: LogLevel; secrets?: readonly string[] } = {}): { log: Log; redactor: Redactor } {
  const redactor = createRedactor();
  for (const secret of secrets) redactor.hold(secret);
  return {
    redactor,
    log: createLog({ level, redactor, write: (line) => void process.stderr.write(line) }),
  };
}
