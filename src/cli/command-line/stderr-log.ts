// The log of a command whose standard output is its result: it goes to standard error.
import { createLog, type Log, type LogLevel } from '../../kernel/log.ts';
import type { RecentLines } from '../../kernel/recent-lines.ts';
import { createRedactor, type Redactor } from '../../kernel/secrets/secret.ts';

export interface StderrLogOptions {
  level?: LogLevel;
  secrets?: readonly string[];
  /** Takes each line from `info` on, whatever the level. */
  recent?: Pick<RecentLines, 'add'>;
}

/** Logs warnings and errors unless `level` says otherwise; `secrets` are redacted. */
export function stderrLog({ level = 'warn', secrets = [], recent }: StderrLogOptions = {}): {
  log: Log;
  redactor: Redactor;
} {
  const redactor = createRedactor();
  for (const secret of secrets) redactor.hold(secret);
  return {
    redactor,
    log:
      recent === undefined
        ? createLog({ level, redactor, write: (line) => void process.stderr.write(line) })
        : createLog({ level: level === 'debug' ? 'debug' : 'info', redactor, write: split(level, recent) }),
  };
}

const levels: readonly string[] = ['debug', 'info', 'warn', 'error', 'silent'];

/** Writes lines of the level and above to standard error, and all of them to `recent`. */
function split(level: LogLevel, recent: Pick<RecentLines, 'add'>): (line: string) => void {
  const lowestLevel = levels.indexOf(level);
  return (line) => {
    recent.add(line);
    const [, lineLevel = 'error'] = /^\{"level":"(\w+)"/.exec(line) ?? [];
    if (levels.indexOf(lineLevel) >= lowestLevel) process.stderr.write(line);
  };
}
