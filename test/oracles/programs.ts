// Compilers and interpreters of other languages, which may be missing on a machine.
import { spawnSync } from 'node:child_process';

/** Whether the program can be started. Tests that need it are skipped otherwise. */
export function hasProgram(name: string): boolean {
  const versionArgument = name === 'go' ? 'version' : '--version';
  return spawnSync(name, [versionArgument], { stdio: 'ignore' }).status === 0;
}
