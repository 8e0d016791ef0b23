// A generation is one version of the City under the supervisor: its gateway process, which is restarted with
// exponential backoff after a crash, and the listening socket from which the process accepts connections.
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '../../kernel/clock.ts';
import type { Log } from '../../kernel/log.ts';
import type { CityFolder } from './city-folder.ts';
import { checkHealth } from './health.ts';
import { startGatewayProcess, type GatewayProcess, type Runner } from './gateway-process.ts';
import { localUrl, type ListeningSocket } from '../../kernel/http/listening-socket.ts';
import type { CityRecord } from './messages.ts';

export interface GenerationSpec {
  version: string;
  runner: Runner;
  /** The complete environment of the gateway. */
  env: Readonly<Record<string, string>>;
}

export interface Generation extends GenerationSpec {
  readonly socket: ListeningSocket;
  readonly restarts: number;
  readonly pid: number | undefined;
  /** Whether the process accepts connections now. */
  readonly isServing: boolean;
  /** Starts the process and waits until it is healthy and ready; it accepts no connections yet. */
  start(): Promise<void>;
  /** Starts the process without opening the data, which another generation still holds. */
  warm(): void;
  /** Starts and stops the version once on temporary data. Rejects when the version does not start. */
  rehearse(): Promise<void>;
  /** Accepts connections from the listening socket. From then on, the process is restarted when it exits. */
  adopt(): Promise<void>;
  record(city: CityRecord): Promise<void>;
  /**
   * Shuts the generation down for good. Resolves when it accepts no more connections; `ended` resolves when
   * its process has finished its requests and exited.
   */
  leave(options: { lingerMs: number }): Promise<{ ended: Promise<unknown> }>;
  /** Starts the process in the background, as after a crash, and retries until it is ready. */
  revive(): void;
}

export interface GenerationOptions {
  folder: CityFolder;
  socket: ListeningSocket;
  number: number;
  clock: Clock;
  log: Log;
  write(chunk: Buffer): void;
  /** The time limit of a start. */
  startMs: number;
}

type GenerationState =
  | { phase: 'new'; gateway?: undefined }
  /** The process runs, but accepts no connections. */
  | { phase: 'started'; gateway: GatewayProcess }
  | { phase: 'serving'; gateway: GatewayProcess }
  | { phase: 'reviving'; gateway?: GatewayProcess }
  | { phase: 'left'; gateway: GatewayProcess | undefined };

const firstPauseMs = 500;
const longestPauseMs = 30_000;
// After a minute of service, a crash counts as the first one again, so the restart has a short pause.
const stableAfterMs = 60_000;
const healthIntervalMs = 100;
const answerTimeoutMs = 10_000;

/** The data of a generation. The functions below change `state` and `restarts`. */
interface GenerationData {
  readonly spec: GenerationSpec;
  readonly options: GenerationOptions;
  /** Aborted by `leave`: the process accepts no more connections and is not restarted; a rehearsal ends. */
  readonly shutdown: AbortSignal;
  state: GenerationState;
  restarts: number;
}

export function createGeneration(spec: GenerationSpec, options: GenerationOptions): Generation {
  const shutdown = new AbortController();
  const generation: GenerationData = {
    spec,
    options,
    shutdown: shutdown.signal,
    state: { phase: 'new' },
    restarts: 0,
  };
  return {
    ...spec,
    socket: options.socket,
    get restarts() {
      return generation.restarts;
    },
    get pid() {
      return generation.state.gateway?.pid;
    },
    get isServing() {
      const { state } = generation;
      return state.phase === 'serving' && !state.gateway.isOver();
    },
    revive: () => revive(generation),
    warm: () => void ensureGateway(generation),
    start: () => startOrKill(ensureGateway(generation), spec, options),
    adopt: () => serveWith(generation, requireGateway(generation)),
    record: (city) => requireGateway(generation).ask({ kind: 'record', input: city }, answerTimeoutMs),
    rehearse: () => rehearse(generation),
    async leave(leaveOptions) {
      const { gateway } = generation.state;
      generation.state = { phase: 'left', gateway };
      shutdown.abort(new Error(`The version ${spec.version} was stopped.`));
      const departure = await gateway?.leave(leaveOptions);
      const gatewaySocket = options.folder.gatewaySocket(options.number);
      return { ended: Promise.resolve(departure?.ended).then(() => rm(gatewaySocket, { force: true })) };
    },
  };
}

/** The process of the generation. The first call spawns it. */
function ensureGateway(generation: GenerationData): GatewayProcess {
  const { spec, options, state } = generation;
  const gateway = state.gateway ?? spawnGateway(spec, spec.env, options);
  if (state.phase === 'new') generation.state = { phase: 'started', gateway };
  return gateway;
}

function requireGateway({ state }: GenerationData): GatewayProcess {
  if (state.gateway === undefined) throw new Error('The gateway has not been started yet.');
  return state.gateway;
}

/** started or reviving → serving. From then on, the process is restarted when it exits by itself. */
async function serveWith(generation: GenerationData, gateway: GatewayProcess): Promise<void> {
  const { version } = generation.spec;
  const { socket, clock, log } = generation.options;
  const url = localUrl(socket.host, socket.port);
  await gateway.ask({ kind: 'adopt', input: { url } }, answerTimeoutMs);
  if (generation.shutdown.aborted) return;
  generation.state = { phase: 'serving', gateway };
  const sinceMs = clock.monotonicMs();
  void gateway.ended.then((reason) => {
    const { state } = generation;
    if (state.phase !== 'serving' || state.gateway !== gateway) return;
    log.error({ version, how: reason }, 'the gateway exited and is being restarted');
    if (clock.monotonicMs() - sinceMs > stableAfterMs) generation.restarts = 0;
    revive(generation);
  });
}

/** serving → reviving. */
function revive(generation: GenerationData): void {
  generation.state = { phase: 'reviving' };
  void reviveUntilServing(generation).catch((error: unknown) =>
    generation.options.log.error({ err: error }, 'the gateway could not be restarted'),
  );
}

/** reviving → serving. Repeats the start until it succeeds. */
async function reviveUntilServing(generation: GenerationData): Promise<void> {
  const { spec, options, shutdown } = generation;
  const { clock, log } = options;
  const { version } = spec;
  while (generation.state.phase === 'reviving') {
    const pauseMs = Math.min(firstPauseMs * 2 ** generation.restarts, longestPauseMs);
    generation.restarts += 1;
    await clock.sleep(pauseMs, shutdown).catch(() => undefined);
    if (shutdown.aborted) return;
    const gateway = spawnGateway(spec, spec.env, options);
    generation.state = { phase: 'reviving', gateway };
    try {
      await startOrKill(gateway, spec, options);
      await serveWith(generation, gateway);
      log.info({ version, restarts: generation.restarts }, 'the gateway is ready again');
    } catch (error) {
      await gateway.kill();
      log.error({ err: error, version, restarts: generation.restarts }, 'the gateway could not be started');
    }
  }
}

function spawnGateway(
  { runner, version }: GenerationSpec,
  env: Readonly<Record<string, string>>,
  { folder, socket, write }: GenerationOptions,
): GatewayProcess {
  return startGatewayProcess({ runner, env, cwd: folder.versionPath(version), fd: socket.fd, write });
}

/** Resolves when the gateway is ready; otherwise kills it. */
async function startOrKill(
  gateway: GatewayProcess,
  { version }: GenerationSpec,
  options: GenerationOptions,
): Promise<void> {
  const { folder, number, socket, startMs } = options;
  const gatewaySocket = folder.gatewaySocket(number);
  try {
    await rm(gatewaySocket, { force: true });
    const input = {
      project: folder.versionPath(version),
      stateDirectory: folder.root,
      socket: gatewaySocket,
      url: localUrl(socket.host, socket.port),
    };
    await gateway.ask({ kind: 'start', input }, startMs);
    await waitUntilReady(gateway, gatewaySocket, options);
  } catch (error) {
    await gateway.kill();
    throw error;
  }
}

/** Rejects when the generation leaves meanwhile. */
async function rehearse({ spec, options, shutdown }: GenerationData): Promise<void> {
  const { trialPath } = options.folder;
  await rm(trialPath, { recursive: true, force: true });
  shutdown.throwIfAborted();
  const gateway = spawnGateway(spec, trialEnvironment(spec.env, trialPath), options);
  // Its data is temporary, so the process needs no time to close it.
  const killGateway = (): void => void gateway.kill();
  shutdown.addEventListener('abort', killGateway);
  try {
    await startOrKill(gateway, spec, options);
    const { ended } = await gateway.leave({ lingerMs: 0 });
    await ended;
    shutdown.throwIfAborted();
  } catch (error) {
    throw shutdown.aborted ? shutdown.reason : error;
  } finally {
    shutdown.removeEventListener('abort', killGateway);
    await gateway.kill();
    await rm(trialPath, { recursive: true, force: true });
  }
}

/**
 * The same settings on temporary data. The metrics port belongs to the running version. So does the City's
 * journal: a gateway with another ledger would put aside the charges that a crashed gateway left in it.
 */
function trialEnvironment(
  env: Readonly<Record<string, string>>,
  trialPath: string,
): Readonly<Record<string, string>> {
  return {
    ...env,
    DATABASE_PATH: trialPath,
    STORAGE_PATH: join(trialPath, 'media'),
    JOURNAL_PATH: join(trialPath, 'journal'),
    METRICS_PORT: '',
  };
}

async function waitUntilReady(
  gateway: GatewayProcess,
  socketPath: string,
  { clock, startMs }: Pick<GenerationOptions, 'clock' | 'startMs'>,
): Promise<void> {
  const deadlineMs = clock.monotonicMs() + startMs;
  for (;;) {
    const health = await checkHealth({ socketPath });
    if (health.ready) return;
    if (gateway.isOver()) throw new Error('The gateway exited while it was starting.');
    if (clock.monotonicMs() > deadlineMs)
      throw new Error(
        `The gateway was not ready after ${Math.round(startMs / 1_000)} seconds: ${health.problem ?? 'no answer'}.`,
      );
    await clock.sleep(healthIntervalMs);
  }
}
