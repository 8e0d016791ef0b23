// The log of a command whose standard output is its result. It goes to standard error, as JSON lines, or
// as readable lines when standard error is a terminal.
import { createLog, type Log, type LogLevel } from '../../kernel/log.ts';
import type { RecentLines } from '../../kernel/recent-lines.ts';
import { createRedactor, type Redactor } from '../../kernel/secrets/secret.ts';
import { parseLogLine, prettyLine } from '../log-view/pretty.ts';

export interface StderrLogOptions {
  level?: LogLevel;
  secrets?: readonly string[];
  /**
   * Collects every line of level `info` and above, even if `level` keeps the line off standard error; with
   * the level `debug` also those lines.
   */
  recent?: Pick<RecentLines, 'add'>;
  /** Called before a line is written to a terminal, such as to erase a progress line. */
  beforeLine?: () => void;
}

/** Logs warnings and errors unless `level` says otherwise; `secrets` are redacted. */
export function stderrLog({ level = 'warn', secrets = [], recent, beforeLine }: StderrLogOptions = {}): {
  log: Log;
  redactor: Redactor;
} {
  const redactor = createRedactor();
  for (const secret of secrets) redactor.hold(secret);
  const write = process.stderr.isTTY ? prettyWriter(beforeLine) : writeError;
  return {
    redactor,
    log:
      recent === undefined
        ? createLog({ level, redactor, write })
        : createLog({
            level: level === 'debug' ? 'debug' : 'info',
            redactor,
            write: split(level, recent, write),
          }),
  };
}

const writeError = (text: string): void => void process.stderr.write(text);

function prettyWriter(beforeLine?: () => void): (line: string) => void {
  return (line) => {
    beforeLine?.();
    const members = parseLogLine(line);
    writeError(members === undefined ? line : `${prettyLine(members)}\n`);
  };
}

const levels: readonly string[] = ['debug', 'info', 'warn', 'error', 'silent'];

/** Passes lines of the level and above to `write`, and all of them to `recent`. */
function split(
  level: LogLevel,
  recent: Pick<RecentLines, 'add'>,
  write: (line: string) => void,
): (line: string) => void {
  const lowestLevel = levels.indexOf(level);
  return (line) => {
    recent.add(line);
    // The log writes the level first. A line without one, which is not from the log, is always written.
    const [, lineLevel = 'error'] = /^\{"level":"(\w+)"/.exec(line) ?? [];
    if (levels.indexOf(lineLevel) >= lowestLevel) write(line);
  };
}
