// Runs commands on a real terminal, which `script` of util-linux creates.
import { spawn, spawnSync } from 'node:child_process';
import { entry } from './townhall.ts';

export const hasTerminal = spawnSync('script', ['--version']).status === 0;

/** Starts `townhall …` on a terminal; its output and its input are those of the child process. */
export function spawnOnTerminal(words: readonly string[], options: { cwd: string; env?: NodeJS.ProcessEnv }) {
  const command = [process.execPath, entry, ...words].map((word) => `'${word}'`).join(' ');
  const flags = ['--quiet', '--return', '--echo', 'never', '--command', command, '/dev/null'];
  return spawn('script', flags, options);
}
