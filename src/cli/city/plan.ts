// What the commands about a City share: the plan of a project, made with the entry run in a process of its own, and the
// lines that a deployment shows while it works.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { makePlan } from '../../deploy/index.ts';
import type { DeployNeeds, InspectedService, Plan } from '../../deploy/index.ts';
import { systemClock } from '../../kernel/clock.ts';
import { createLog } from '../../kernel/log.ts';
import { createRedactor } from '../../kernel/secrets/secret.ts';
import { SettingError } from '../../kernel/settings.ts';
import type { CommandInput } from '../command-line/command.ts';
import { ownRunner, passesOn } from './environment.ts';

// An entry that does not come to an end would hold up the deployment for ever.
const inspectMs = 30_000;

/** The plan of a project, or of a copy of it that the City in `cityDirectory` keeps. */
export function planOf(
  directory: string,
  { env }: Pick<CommandInput, 'env'>,
  { cityDirectory }: { cityDirectory?: string } = {},
): Promise<Plan> {
  return makePlan({ directory, cityDirectory, env, passesOn, inspect, log: quietLog() });
}

/** Runs the entry in a process of its own, which a faulty one may end or hold up as it likes. */
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
  let said = '';
  let complaints = '';
  child.stdout.on('data', (piece: Buffer) => (said += piece.toString('utf8')));
  child.stderr.on('data', (piece: Buffer) => (complaints += piece.toString('utf8')));
  const timer = setTimeout(() => child.kill('SIGKILL'), inspectMs);
  const [code, signal] = (await once(child, 'close')) as [number | null, string | null];
  clearTimeout(timer);
  if (signal === 'SIGKILL')
    throw new Error(
      `The entry did not come to an end within ${inspectMs / 1_000} seconds; it must export its services and wait for nothing.`,
    );
  // Whatever the entry itself writes comes before the one line that is ours.
  const last = said.trimEnd().split('\n').at(-1) ?? '';
  if (code === 0 && last.startsWith('[')) return JSON.parse(last) as InspectedService[];
  throw new Error(
    complaints.trim().replace(/^townhall city: /, '') ||
      `The entry ended the process (${signal ?? `code ${code}`}).`,
  );
}

/** What the pipeline needs of this process, which Ctrl-C ends in order; `tell` takes the lines for whoever waits. */
export function deployNeeds(tell: (line: string) => void, startMs: number): DeployNeeds {
  let isStopped = false;
  // Between two steps it can be taken back. A second Ctrl-C ends the command at once, and the supervisor does it later.
  process.once('SIGINT', () => {
    isStopped = true;
    tell('  stopping before the next step …');
  });
  return {
    runner: ownRunner(),
    clock: systemClock,
    log: quietLog(),
    startMs,
    progress(_step, what) {
      if (isStopped) throw new Error('It was stopped.');
      tell(`  ${what} …`);
    },
  };
}

/** The deadline of a start, from `--timeout` in seconds. */
export function readTimeout(text: string | undefined): number {
  if (text === undefined) return 60_000;
  const seconds = /^\d{1,4}$/.test(text) ? Number(text) : 0;
  if (seconds < 1 || seconds > 3_600)
    throw new SettingError(`--timeout takes whole seconds from 1 to 3600, not "${text}".`);
  return seconds * 1_000;
}

/** Errors are thrown and shown; the log is for what has no other way to be seen. */
function quietLog(): ReturnType<typeof createLog> {
  return createLog({
    level: 'warn',
    redactor: createRedactor(),
    write: (line) => void process.stderr.write(line),
  });
}
