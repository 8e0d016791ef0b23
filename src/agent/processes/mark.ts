// Marks a child process so that its descendants are recognized in any process group. Descendants
// inherit two marks: an environment variable, and a hard RLIMIT_FSIZE of some exabytes whose number is
// unique to the process. A command that empties its environment and leaves its group and session still
// carries the limit, since a hard limit can only be lowered. The limit is too high to bound any file.
import { createHash, randomUUID } from 'node:crypto';
import { accessSync, constants, statSync } from 'node:fs';
import { resolve } from 'node:path';

export interface ProcessMark {
  /** Sets the limit and then replaces itself with the program (exec), so the process id stays. */
  command: readonly string[];
  env: Record<string, string>;
  /** The variable as /proc/PID/environ contains it, between zero bytes. */
  variable: string;
  /** The hard limit in bytes, as /proc/PID/limits writes it; undefined where there is no such file. */
  limit: string | undefined;
}

/** Marks every child process of an agent, for the orphan reaper. */
export const agentVariable = 'TOWNHALL_OWNER';
const processVariable = 'TOWNHALL_PROGRAM';
// The limit in decimal: ten digits of the agent, then nine of the process. Shells count in blocks of
// 512 bytes, and 512 divides 10^9, so the agent's digits stay readable. The number stays below 2^63.
const maxMarks = 1_000_000_000 / 512;
let markCount = 0;

/**
 * Throws an error with the `code` ENOENT or EACCES, as `spawn` does, when the program does not exist or
 * is not executable.
 */
export function markCommand(
  command: readonly string[],
  { folder, env }: { folder: string; env: Readonly<Record<string, string>> },
): ProcessMark {
  const id = randomUUID();
  const markedCommand = {
    command,
    env: { ...env, [processVariable]: id },
    variable: `${processVariable}=${id}`,
    limit: undefined,
  };
  if (process.platform !== 'linux') return markedCommand;
  requireProgram(command[0] ?? '', folder, env['PATH']);
  markCount = (markCount + 1) % maxMarks;
  const blocks = (BigInt(agentDigits(env[agentVariable] ?? id)) * 1_000_000_000n) / 512n + BigInt(markCount);
  // ulimit fails if a lower limit is already set; then only the variable marks the process.
  return {
    ...markedCommand,
    command: ['/bin/sh', '-c', `ulimit -f ${blocks} 2>/dev/null; exec "$@"`, 'sh', ...command],
    limit: String(blocks * 512n),
  };
}

/** The first ten digits of the limits of all child processes of an agent. */
export function agentDigits(agentMark: string): string {
  const number = createHash('sha256').update(agentMark).digest().readUInt32BE(0);
  return String(4_000_000_000 + number);
}

// Checked before the start: the shell that sets the limit would report a missing program only by an
// exit code that the program itself might use.
function requireProgram(file: string, folder: string, path = '/usr/bin:/bin'): void {
  const candidates = file.includes('/')
    ? [resolve(folder, file)]
    : path.split(':').map((entry) => resolve(folder, entry, file));
  let code = 'ENOENT';
  for (const candidate of file === '' ? [] : candidates) {
    if (statSync(candidate, { throwIfNoEntry: false })?.isFile() !== true) continue;
    try {
      accessSync(candidate, constants.X_OK);
      return;
    } catch {
      code = 'EACCES';
    }
  }
  throw Object.assign(new Error(`The program ${JSON.stringify(file)} cannot be run.`), { code });
}
