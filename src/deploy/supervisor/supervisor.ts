// The long-running process of a City. It owns the listening socket, starts the gateways that accept
// connections from it, and carries out requests of `townhall deploy`, which arrive on its control socket.
import { rm, writeFile } from 'node:fs/promises';
import type { Clock } from '../../kernel/clock.ts';
import { serveControl, type Control, type ControlHandler } from '../../kernel/control.ts';
import { errorText } from '../../kernel/error-text.ts';
import type { Log } from '../../kernel/log.ts';
import { Problem } from '../../kernel/problem.ts';
import type { CityFolder, CityState } from './city-folder.ts';
import { createGeneration, type GenerationSpec } from './generation.ts';
import { localUrl, openListeningSocket } from '../../kernel/http/listening-socket.ts';
import type { CityRecord } from './messages.ts';
import {
  abandon,
  candidateOf,
  confirm,
  currentOf,
  exclusiveLingerMs,
  requireCandidate,
  restartMs,
  switchOver,
  tryVersion,
  type SupervisorData,
  type TrialRequest,
} from './transitions.ts';

export interface SupervisorStatus {
  pid: number;
  url: string | null;
  version: string | null;
  gatewayPid: number | null;
  /** Whether the running version's gateway accepts connections now. */
  isServing: boolean;
  restarts: number;
  /** The version that is being deployed. */
  candidate: string | null;
  step: string | null;
}

export interface SupervisorOptions {
  folder: CityFolder;
  clock: Clock;
  log: Log;
  /** Receives the gateways' output. */
  write(chunk: Buffer): void;
  pid: number;
  /** A deployment that sends no request for this long is abandoned. */
  silenceMs?: number;
}

export interface Supervisor {
  /** Starts the last deployed version and retries until it is ready. Does nothing after a stop. */
  resume(spec: GenerationSpec, state: CityState): Promise<void>;
  /** Stops the running version, then everything else. */
  stop(): Promise<void>;
  /** Resolves when the supervisor has stopped, whether by `stop` or by a control request. */
  readonly stopped: Promise<void>;
}

export async function startSupervisor(options: SupervisorOptions): Promise<Supervisor> {
  const { folder, log, pid } = options;
  const supervisor = createSupervisorData(options);
  const stopCompletion = Promise.withResolvers<void>();
  let pendingStop: Promise<void> | undefined;
  const stopOnce = (): Promise<void> => (pendingStop ??= stop());
  const steps = createDeploymentSteps(supervisor, {
    silenceMs: options.silenceMs ?? 120_000,
    isStopping: () => pendingStop !== undefined,
    stop: () => void stopOnce(),
  });

  async function stop(): Promise<void> {
    steps.silence.clear();
    await endGenerations(supervisor);
    // Do not await the close: the control socket must still answer the request that called this function.
    // A `stop` may arrive before `opening` resolves; the pid file is removed after it has been written.
    // If `opening` rejects, `startSupervisor` throws.
    void opening.then(
      async (control) => {
        await control.close();
        await rm(folder.pidFile, { force: true });
        stopCompletion.resolve();
      },
      () => undefined,
    );
  }

  const opening = openControl(folder, pid, log, controlHandlers(supervisor, pid, { steps, stop: stopOnce }));
  await opening;
  // The deployment that started this supervisor may have died before its first request.
  if (pendingStop === undefined) steps.silence.restart();

  return {
    stopped: stopCompletion.promise,
    async resume(spec, state) {
      // A `stop` may have arrived during the start.
      if (pendingStop !== undefined) return;
      steps.silence.clear();
      await resumeVersion(supervisor, spec, state);
    },
    async stop() {
      await stopOnce();
      await stopCompletion.promise;
    },
  };
}

function controlHandlers(
  supervisor: SupervisorData,
  pid: number,
  { steps, stop }: { steps: DeploymentSteps; stop(): Promise<void> },
): Readonly<Record<string, ControlHandler>> {
  return {
    status: async () => statusOf(supervisor, pid),
    trial: (input) => steps.run(() => tryVersion(supervisor, input as TrialRequest)),
    switch: () => steps.run(() => switchOver(supervisor)),
    record: (input) => steps.run(() => requireCandidate(supervisor).record(input as CityRecord)),
    confirm: (input) => steps.run(() => confirm(supervisor, input as CityState)),
    abandon: steps.abandon,
    stop,
  };
}

/** Serves the control socket, then writes the pid file. */
async function openControl(
  folder: CityFolder,
  pid: number,
  log: Log,
  handlers: Readonly<Record<string, ControlHandler>>,
): Promise<Control> {
  const control = await serveControl(folder.socket, handlers, { log });
  try {
    await writeFile(folder.pidFile, `${pid}\n`, { mode: 0o600 });
  } catch (error) {
    await control.close();
    throw error;
  }
  return control;
}

/** Runs the requests of deployments, one at a time, and abandons a deployment that falls silent. */
interface DeploymentSteps {
  run<T>(work: () => Promise<T>): Promise<T>;
  abandon(): Promise<void>;
  /** The timer, which runs while another request of the deployment is expected. */
  silence: SilenceTimer;
}

function createDeploymentSteps(
  supervisor: SupervisorData,
  { silenceMs, isStopping, stop }: { silenceMs: number; isStopping(): boolean; stop(): void },
): DeploymentSteps {
  const { log } = supervisor;
  const runExclusively = exclusiveRunner(supervisor);
  const silence = createSilenceTimer(silenceMs, () => {
    log.warn({}, 'the deployment sent no more requests and is abandoned');
    void runExclusively(abandonOrStop).catch((error: unknown) =>
      log.error({ err: error }, 'a deployment could not be abandoned'),
    );
  });

  async function abandonOrStop(): Promise<void> {
    await abandon(supervisor);
    silence.clear();
    // If no version is running, the supervisor was started only for this deployment.
    if (supervisor.state.phase === 'idle') stop();
  }

  return {
    silence,
    abandon: () => runExclusively(abandonOrStop),
    run: (work) =>
      runExclusively(async () => {
        silence.clear();
        try {
          return await work();
        } finally {
          // While a candidate exists, another request of its deployment is expected.
          if (!isStopping() && candidateOf(supervisor.state) !== undefined) silence.restart();
        }
      }),
  };
}

function createSupervisorData({ folder, clock, log, write }: SupervisorOptions): SupervisorData {
  let generations = 0;
  return {
    folder,
    clock,
    log,
    state: { phase: 'idle' },
    step: null,
    draining: new Set(),
    createGeneration(spec, socket, startMs) {
      generations += 1;
      return createGeneration(spec, { folder, socket, number: generations, clock, log, write, startMs });
    },
  };
}

function statusOf({ state, step }: SupervisorData, pid: number): SupervisorStatus {
  const current = currentOf(state);
  return {
    pid,
    url: current === undefined ? null : localUrl(current.socket.host, current.socket.port),
    version: current?.version ?? null,
    gatewayPid: current?.pid ?? null,
    isServing: current?.isServing ?? false,
    restarts: current?.restarts ?? 0,
    candidate: candidateOf(state)?.version ?? null,
    step,
  };
}

async function resumeVersion(
  supervisor: SupervisorData,
  spec: GenerationSpec,
  { host, port, url }: CityState,
): Promise<void> {
  const current = supervisor.createGeneration(spec, openListeningSocket(host, port), restartMs);
  supervisor.state = { phase: 'serving', current };
  try {
    await current.start();
    await current.adopt();
    supervisor.log.info({ version: spec.version, url }, 'the City serves');
  } catch (error) {
    supervisor.log.error({ err: error, version: spec.version }, 'the City could not be started; retrying');
    current.revive();
  }
}

/** Shuts every gateway down and waits until all have finished their requests and exited. */
async function endGenerations({ state, draining }: SupervisorData): Promise<void> {
  const current = currentOf(state);
  const endings = [candidateOf(state), current].map(
    async (generation) => (await generation?.leave({ lingerMs: exclusiveLingerMs }))?.ended,
  );
  await Promise.all([...endings, ...draining]);
  current?.socket.close();
}

/**
 * Refuses a second transition while one is running. Turns errors into Problems, whose messages reach the
 * deploying command.
 */
function exclusiveRunner(supervisor: SupervisorData): <T>(work: () => Promise<T>) => Promise<T> {
  let isBusy = false;
  return async (work) => {
    if (isBusy) throw new Problem('conflict', 'conflict', 'Another deployment of this City is under way.');
    isBusy = true;
    try {
      return await work();
    } catch (cause) {
      if (cause instanceof Problem) throw cause;
      throw new Problem('unavailable', 'not_ready', errorText(cause), { cause });
    } finally {
      isBusy = false;
      supervisor.step = null;
    }
  };
}

interface SilenceTimer {
  restart(): void;
  clear(): void;
}

function createSilenceTimer(silenceMs: number, onSilence: () => void): SilenceTimer {
  let timer: NodeJS.Timeout | undefined;
  const clear = (): void => clearTimeout(timer);
  return {
    clear,
    restart() {
      clear();
      timer = setTimeout(onSilence, silenceMs);
    },
  };
}
