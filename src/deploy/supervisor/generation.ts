// A generation is one version of the City under the supervisor: its process, started again with growing pauses when it
// ends by itself, and the listening socket that it accepts from. Whether two may run at once is for their database to say.
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '../../kernel/clock.ts';
import type { Log } from '../../kernel/log.ts';
import type { CityFolder } from '../city-folder.ts';
import { askHealth } from '../health.ts';
import { startGatewayProcess, type GatewayProcess, type Runner } from './gateway-process.ts';
import { localUrl, type ListeningSocket } from './listening-socket.ts';
import type { CityRecord } from './messages.ts';

export interface GenerationSpec {
  version: string;
  runner: Runner;
  /** The whole environment of the gateway. */
  env: Readonly<Record<string, string>>;
}

export interface Generation extends GenerationSpec {
  readonly socket: ListeningSocket;
  readonly restarts: number;
  readonly pid: number | undefined;
  /** Whether its process takes callers at this moment. */
  readonly isServing: boolean;
  /** Starts the process and waits until it is healthy and ready; it takes no callers yet. */
  start(): Promise<void>;
  /** Starts the process as far as it can come while another holds its data. */
  warm(): void;
  /** Runs the version on data that are thrown away, and ends it again. */
  rehearse(): Promise<void>;
  /** Takes callers from the listening socket. From now on the process is started again when it ends. */
  adopt(): Promise<void>;
  record(city: CityRecord): Promise<void>;
  /** Resolves when it takes no more callers; `ended` when it has finished what it did. Nothing is started again. */
  leave(options: { lingerMs: number }): Promise<{ ended: Promise<unknown> }>;
  /** Keeps trying until it serves, as after a crash. */
  revive(): void;
}

export interface GenerationNeeds {
  folder: CityFolder;
  socket: ListeningSocket;
  number: number;
  clock: Clock;
  log: Log;
  write(piece: Buffer): void;
  /** How long a start may take. */
  startMs: number;
}

const firstPauseMs = 500;
const longestPauseMs = 30_000;
// Whoever served for so long has earned a quick restart again.
const wellAfterMs = 60_000;
const healthEveryMs = 100;
const answerMs = 10_000;

export function createGeneration(spec: GenerationSpec, needs: GenerationNeeds): Generation {
  const { folder, socket, number, clock, log } = needs;
  const gatewaySocket = folder.gatewaySocket(number);
  const url = localUrl(socket.host, socket.port);
  const stopping = new AbortController();
  let gateway: GatewayProcess | undefined;
  let restarts = 0;
  let isWanted = false;
  let adopted: GatewayProcess | undefined;

  function spawn(env: Readonly<Record<string, string>>): GatewayProcess {
    return startGatewayProcess({
      runner: spec.runner,
      env,
      cwd: folder.versionPath(spec.version),
      fd: socket.fd,
      write: needs.write,
    });
  }

  async function startIn(process: GatewayProcess): Promise<void> {
    await rm(gatewaySocket, { force: true });
    await process.ask(
      {
        kind: 'start',
        input: {
          project: folder.versionPath(spec.version),
          stateDirectory: folder.root,
          socket: gatewaySocket,
          url,
        },
      },
      needs.startMs,
    );
    const lateMs = clock.monotonicMs() + needs.startMs;
    for (;;) {
      const health = await askHealth({ socketPath: gatewaySocket });
      if (health.ready) return;
      if (process.isOver()) throw new Error('The gateway ended while it was starting.');
      if (clock.monotonicMs() > lateMs)
        throw new Error(
          `The gateway was not ready after ${Math.round(needs.startMs / 1_000)} seconds: ${health.problem ?? 'no answer'}.`,
        );
      await clock.sleep(healthEveryMs);
    }
  }

  async function startOrEnd(process: GatewayProcess): Promise<void> {
    try {
      await startIn(process);
    } catch (error) {
      await process.kill();
      throw error;
    }
  }

  function watch(process: GatewayProcess): void {
    const sinceMs = clock.monotonicMs();
    void process.ended.then((how) => {
      if (process !== gateway || stopping.signal.aborted || !isWanted) return;
      log.error({ version: spec.version, how }, 'the gateway ended and is started again');
      if (clock.monotonicMs() - sinceMs > wellAfterMs) restarts = 0;
      revive();
    });
  }

  function revive(): void {
    isWanted = true;
    void reviveUntilItServes().catch((error: unknown) =>
      log.error({ err: error }, 'the gateway could not be started again'),
    );
  }

  async function reviveUntilItServes(): Promise<void> {
    while (!stopping.signal.aborted) {
      const pauseMs = Math.min(firstPauseMs * 2 ** restarts, longestPauseMs);
      restarts += 1;
      await clock.sleep(pauseMs, stopping.signal).catch(() => undefined);
      if (stopping.signal.aborted) return;
      try {
        gateway = spawn(spec.env);
        await startOrEnd(gateway);
        await gateway.ask({ kind: 'adopt', input: { url } }, answerMs);
        adopted = gateway;
        watch(gateway);
        log.info({ version: spec.version, restarts }, 'the gateway serves again');
        return;
      } catch (error) {
        await gateway?.kill();
        log.error({ err: error, version: spec.version, restarts }, 'the gateway could not be started');
      }
    }
  }

  return {
    ...spec,
    socket,
    get restarts() {
      return restarts;
    },
    get pid() {
      return gateway?.pid;
    },
    get isServing() {
      return adopted !== undefined && adopted === gateway && !adopted.isOver();
    },
    warm() {
      gateway ??= spawn(spec.env);
    },
    async start() {
      gateway ??= spawn(spec.env);
      await startOrEnd(gateway);
    },
    async rehearse() {
      await rm(folder.trialPath, { recursive: true, force: true });
      const process = spawn({
        ...spec.env,
        DATABASE_PATH: folder.trialPath,
        STORAGE_PATH: join(folder.trialPath, 'media'),
        METRICS_PORT: '',
      });
      try {
        await startOrEnd(process);
        await (
          await process.leave({ lingerMs: 0 })
        ).ended;
      } finally {
        await process.kill();
        await rm(folder.trialPath, { recursive: true, force: true });
      }
    },
    async adopt() {
      if (gateway === undefined) throw new Error('There is no gateway to take the callers.');
      await gateway.ask({ kind: 'adopt', input: { url } }, answerMs);
      isWanted = true;
      adopted = gateway;
      watch(gateway);
    },
    async record(city) {
      if (gateway === undefined) throw new Error('There is no gateway to record the City.');
      await gateway.ask({ kind: 'record', input: city }, answerMs);
    },
    async leave(options) {
      isWanted = false;
      stopping.abort();
      const left = await gateway?.leave(options);
      return { ended: Promise.resolve(left?.ended).then(() => rm(gatewaySocket, { force: true })) };
    },
    revive,
  };
}
