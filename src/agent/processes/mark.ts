// How the processes of a program are recognized wherever they go. Two marks are inherited by whatever a program starts:
// a variable of the environment, and a limit of file size (RLIMIT_FSIZE) in the exabytes, whose number is the program's.
// A command that empties its environment and leaves its process group and session still carries the limit: a hard limit
// can be lowered but not raised again. The limit itself never bounds anything.
import { createHash, randomUUID } from 'node:crypto';
import { accessSync, constants, statSync } from 'node:fs';
import { resolve } from 'node:path';

export interface ProgramMark {
  /** The command that sets the limit and then becomes the program itself, with the same process id. */
  command: readonly string[];
  env: Record<string, string>;
  /** A line of /proc/PID/environ, between zero bytes. */
  variable: string;
  /** The hard limit in bytes, as /proc/PID/limits writes it; undefined where there is no such file. */
  limit: string | undefined;
}

/** Of an agent, for the process that ends its programs when the agent itself is killed. */
export const agentVariable = 'TOWNHALL_KEEPER';
const programVariable = 'TOWNHALL_PROGRAM';
// A limit in bytes is ten digits of the agent and nine of the program. Shells count in blocks of 512 bytes, and 512
// divides 10^9, so the digits of the agent stand apart. The sum stays below 2^63.
const mostPrograms = 1_953_125;
let programs = 0;

/** Throws an error with a code as spawn does when the program is not there or may not be run. */
export function markProgram(
  command: readonly string[],
  { folder, env }: { folder: string; env: Readonly<Record<string, string>> },
): ProgramMark {
  const id = randomUUID();
  const marked = {
    command,
    env: { ...env, [programVariable]: id },
    variable: `${programVariable}=${id}`,
    limit: undefined,
  };
  if (process.platform !== 'linux') return marked;
  requireProgram(command[0] ?? '', folder, env['PATH']);
  programs = (programs + 1) % mostPrograms;
  const blocks = (BigInt(agentDigits(env[agentVariable] ?? id)) * 1_000_000_000n) / 512n + BigInt(programs);
  // Where a lower limit is set already, the variable alone marks the program.
  return {
    ...marked,
    command: ['/bin/sh', '-c', `ulimit -f ${blocks} 2>/dev/null; exec "$@"`, 'sh', ...command],
    limit: String(blocks * 512n),
  };
}

/** The first ten digits of the limits of all programs of an agent. */
export function agentDigits(agentMark: string): string {
  const number = createHash('sha256').update(agentMark).digest().readUInt32BE(0);
  return String(4_000_000_000 + number);
}

// A shell would say this with an exit code alone, which the program might have as well.
function requireProgram(file: string, folder: string, path = '/usr/bin:/bin'): void {
  const places = file.includes('/')
    ? [resolve(folder, file)]
    : path.split(':').map((place) => resolve(folder, place, file));
  let code = 'ENOENT';
  for (const place of file === '' ? [] : places) {
    if (statSync(place, { throwIfNoEntry: false })?.isFile() !== true) continue;
    try {
      accessSync(place, constants.X_OK);
      return;
    } catch {
      code = 'EACCES';
    }
  }
  throw Object.assign(new Error(`The program ${JSON.stringify(file)} cannot be run.`), { code });
}
