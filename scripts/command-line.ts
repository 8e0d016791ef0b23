// Command lines of the scripts: their options, `--help`, and one line about a wrong option.
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { parseArgs, type ParseArgsConfig } from 'node:util';

/**
 * Parses the command line like `parseArgs`, in which a file without `allowPositionals` takes options only.
 * `--help` prints the comment at the top of `file` and exits. A wrong option prints one line to stderr and
 * exits with 2.
 */
export function parseCommandLine<T extends ParseArgsConfig>(
  file: string,
  config: T,
): ReturnType<typeof parseArgs<T>> {
  const help = { type: 'boolean', short: 'h', default: false } as const;
  try {
    const parsed = parseArgs({ ...config, options: { ...config.options, help } });
    const { values } = parsed as { values: Record<string, unknown> };
    if (values['help'] !== true) return parsed as unknown as ReturnType<typeof parseArgs<T>>;
  } catch (error) {
    // Node adds a hint about values that start with "-", which no script takes.
    exitWithUsageError(file, (error as Error).message.replace(/\. To specify .*/s, ''));
  }
  console.log(topComment(file));
  process.exit(0);
}

/** Reports a wrong command line in one line and exits with 2. */
export function exitWithUsageError(file: string, message: string): never {
  console.error(`${path.basename(file, '.ts')}: ${message}; use --help for the options`);
  process.exit(2);
}

function topComment(file: string): string {
  const lines = readFileSync(file, 'utf8').split('\n');
  const end = lines.findIndex((line) => !line.startsWith('//'));
  return lines
    .slice(0, end)
    .map((line) => line.replace(/^\/\/ ?/, ''))
    .join('\n');
}
