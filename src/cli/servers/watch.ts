// `--watch`: runs the server in Node's watch mode, which restarts it when a file that it has loaded changes.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { isSingleExecutable } from '../../kernel/assets.ts';
import type { Option } from '../command-line/command.ts';

export const watchOption = {
  kind: 'switch',
  summary: 'Restart after a change of a loaded file, for development.',
} as const satisfies Option;

/**
 * Runs this command again without `--watch`, as a child of Node's watch mode, until a signal ends it.
 * Returns the exit code. Throws for the executable, which cannot load itself in watch mode.
 */
export async function runWatched(): Promise<number> {
  if (isSingleExecutable)
    throw new Error('--watch needs the package "townhall" of npm; the executable cannot restart itself.');
  const command = process.argv.slice(1).filter((word) => word !== '--watch');
  const child = spawn(process.execPath, ['--watch', '--watch-preserve-output', ...command], {
    stdio: 'inherit',
  });
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => void child.kill(signal));
  const [code] = (await once(child, 'exit')) as [number | null];
  return code ?? 0;
}
