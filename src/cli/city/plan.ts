// Shared by `townhall deploy` and `townhall city`: makes the plan of a project, and prints the progress
// of a deployment.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { makePlan } from '../../deploy/index.ts';
import type { DeployOptions, InspectedService, Plan } from '../../deploy/index.ts';
import { systemClock } from '../../kernel/clock.ts';
import { SettingError } from '../../kernel/settings.ts';
import type { CommandContext } from '../command-line/command.ts';
import { stderrLog } from '../command-line/stderr-log.ts';
import { isForwarded, ownRunner } from './environment.ts';

// Without a limit, an entry that never finishes would block the deployment.
const inspectTimeoutMs = 30_000;

/** The plan of a project, or of a stored version of it in `cityDirectory`. */
export function planOf(
  directory: string,
  { env }: Pick<CommandContext, 'env'>,
  { cityDirectory }: { cityDirectory?: string } = {},
): Promise<Plan> {
  return makePlan({ directory, cityDirectory, env, isForwarded, inspect, log: stderrLog().log });
}

/**
 * Runs the project's entry in its own process, since it may crash or hang. Throws with the
 * process's standard error.
 */
async function inspect(
  directory: string,
  env: Readonly<Record<string, string>>,
): Promise<InspectedService[]> {
  const runner = ownRunner();
  const child = spawn(
    runner.command,
    [...runner.arguments, 'city', 'check', '--project', directory, '--json'],
    { env: { ...env }, cwd: directory, stdio: ['ignore', 'pipe', 'pipe'] },
  );
  let output = '';
  let errors = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => (output += text));
  child.stderr.setEncoding('utf8').on('data', (text: string) => (errors += text));
  const timer = setTimeout(() => child.kill('SIGKILL'), inspectTimeoutMs);
  const [code, signal] = (await once(child, 'close').finally(() => clearTimeout(timer))) as [
    number | null,
    string | null,
  ];
  // `killed`: another process, such as the kernel's for a lack of memory, may have sent the signal.
  if (signal === 'SIGKILL' && child.killed)
    throw new Error(
      `The entry did not finish within ${inspectTimeoutMs / 1_000} seconds; it must export its services without waiting for anything.`,
    );
  // The entry may print lines of its own before the result.
  const lastLine = output.trimEnd().split('\n').at(-1) ?? '';
  if (code === 0 && lastLine.startsWith('[')) return JSON.parse(lastLine) as InspectedService[];
  throw new Error(
    errors.trim().replace(/^townhall city: /, '') ||
      `The entry ended the process (${signal ?? `code ${code}`}).`,
  );
}

/**
 * The options of a deployment run by this process. The first Ctrl-C stops it before
 * its next step, which undoes it.
 */
export function deployOptions(printProgress: (line: string) => void, startMs: number): DeployOptions {
  let isStopped = false;
  // A second Ctrl-C ends the command at once; the supervisor then undoes the deployment later.
  process.once('SIGINT', () => {
    isStopped = true;
    printProgress('  stopping before the next step …');
  });
  return {
    runner: ownRunner(),
    clock: systemClock,
    log: stderrLog().log,
    startMs,
    progress(_step, activity) {
      if (isStopped) throw new Error('The deployment was stopped.');
      printProgress(`  ${activity} …`);
    },
  };
}

/** The deadline of a start in milliseconds, from `--timeout` in seconds. Throws a SettingError. */
export function readTimeoutMs(text: string | undefined): number {
  if (text === undefined) return 60_000;
  const seconds = /^\d{1,4}$/.test(text) ? Number(text) : 0;
  if (seconds < 1 || seconds > 3_600)
    throw new SettingError(`--timeout takes whole seconds from 1 to 3600, not "${text}".`);
  return seconds * 1_000;
}
