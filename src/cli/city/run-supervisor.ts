// `townhall city run`: the supervisor of a City, in the foreground for a service manager, or detached for a deployment.
import { cityFolder, openLogFile, startSupervisor, supervision } from '../../deploy/index.ts';
import { systemClock } from '../../kernel/clock.ts';
import { createLog } from '../../kernel/log.ts';
import { createRedactor } from '../../kernel/secrets/secret.ts';
import { orClosed } from '../servers/addresses.ts';
import { ownRunner } from './environment.ts';
import { planOf } from './plan.ts';

export interface SupervisorOptions {
  directory: string;
  env: Readonly<Record<string, string | undefined>>;
  /** Writes its log into the City's folder and not to standard output. */
  isDetached: boolean;
  /** Serves nothing until a deployment says what. */
  waits: boolean;
}

export async function runSupervisor({
  directory,
  env,
  isDetached,
  waits,
}: SupervisorOptions): Promise<number> {
  const folder = cityFolder(directory);
  const state = await folder.readState();
  if (state === null && !waits) throw new Error('Nothing was deployed from here yet; run: townhall deploy');
  if ((await supervision(folder).status()) !== null)
    throw new Error('A supervisor of this City runs already.');
  // Before anything is held: what cannot be served again ends this process with the reason.
  const resumed =
    state === null || waits
      ? undefined
      : {
          state,
          plan: await planOf(folder.versionPath(state.version), { env }, { cityDirectory: directory }),
        };
  await folder.make();
  const file = isDetached ? openLogFile(folder.logFile) : undefined;
  const write = (piece: Buffer | string): void =>
    file === undefined ? void process.stdout.write(piece) : file.write(piece);
  const log = createLog({ level: 'info', redactor: createRedactor(), write });
  const supervisor = await startSupervisor({ folder, clock: systemClock, log, write, pid: process.pid });
  let signals = 0;
  for (const signal of ['SIGTERM', 'SIGINT'] as const) {
    process.on(signal, () => {
      signals += 1;
      if (signals > 1) process.exit(1);
      void supervisor.stop();
    });
  }
  // Whoever started it may close its terminal.
  process.on('SIGHUP', () => {});
  if (resumed !== undefined) {
    // The address may be taken; the control socket would keep this process alive then.
    await orClosed(
      supervisor.resume(
        { version: resumed.state.version, runner: ownRunner(), env: resumed.plan.gatewayEnv },
        resumed.state,
      ),
      () => supervisor.stop(),
    );
  }
  await supervisor.stopped;
  file?.close();
  return 0;
}
