// `townhall city run`: the supervisor of a City, in the foreground for a service
// manager or detached for a deployment.
import { cityFolder, openLogFile, startSupervisor, supervisorClient } from '../../deploy/index.ts';
import { systemClock } from '../../kernel/clock.ts';
import { closeOnFailure } from '../../kernel/closers.ts';
import { createLog } from '../../kernel/log.ts';
import { createRedactor } from '../../kernel/secrets/secret.ts';
import { ownRunner } from './environment.ts';
import { planOf } from './plan.ts';

export interface RunSupervisorOptions {
  directory: string;
  env: Readonly<Record<string, string | undefined>>;
  /** Writes its log into the City's folder instead of standard output. */
  isDetached: boolean;
  /** Serves nothing until a deployment names a version. */
  isForDeployment: boolean;
}

/** Returns the exit code once the supervisor has stopped. */
export async function runSupervisor({
  directory,
  env,
  isDetached,
  isForDeployment,
}: RunSupervisorOptions): Promise<number> {
  const folder = cityFolder(directory);
  const state = isForDeployment ? null : await folder.readState();
  if (state === null && !isForDeployment)
    throw new Error('Nothing has been deployed from here yet; run: townhall deploy');
  if ((await supervisorClient(folder).status()) !== null)
    throw new Error('A supervisor of this City is already running; stop it with: townhall city stop');
  // Plan first: if the version can no longer run, this throws the reason before a file or socket is
  // opened.
  const plan =
    state === null
      ? undefined
      : await planOf(folder.versionPath(state.version), { env }, { cityDirectory: directory });
  await folder.make();
  const logFile = isDetached ? openLogFile(folder.logFile) : undefined;
  const write = (chunk: Buffer | string): void =>
    logFile === undefined ? void process.stdout.write(chunk) : logFile.write(chunk);
  const log = createLog({ level: 'info', redactor: createRedactor(), write });
  const supervisor = await startSupervisor({ folder, clock: systemClock, log, write, pid: process.pid });
  stopOnSignals(() => supervisor.stop());
  if (state !== null && plan !== undefined) {
    const spec = { version: state.version, runner: ownRunner(), env: plan.gatewayEnv };
    // If the address is in use, the open control socket would keep this process alive.
    await closeOnFailure(supervisor.resume(spec, state), () => supervisor.stop());
  }
  await supervisor.stopped;
  logFile?.close();
  return 0;
}

function stopOnSignals(stop: () => Promise<void>): void {
  let signals = 0;
  for (const signal of ['SIGTERM', 'SIGINT'] as const) {
    process.on(signal, () => {
      signals += 1;
      if (signals > 1) process.exit(1);
      void stop();
    });
  }
  // Closing the terminal that started the supervisor must not stop the City.
  process.on('SIGHUP', () => {});
}
