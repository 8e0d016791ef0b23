// `townhall gateway --workers N`: opens the listening socket, starts N gateway processes that
// accept from it, replaces a process that exits, serves the metrics of all on one port, and stops them
// together.
import { ownRunner } from '../city/environment.ts';
import type { GatewayConfig } from '../../gateway/config.ts';
import type { Clock } from '../../kernel/clock.ts';
import { localUrl, openListeningSocket } from '../../kernel/http/listening-socket.ts';
import type { Log } from '../../kernel/log.ts';
import { listenForMetrics } from '../../kernel/telemetry/metrics-listener.ts';
import { explainListenErrors, gatewayAddresses } from './addresses.ts';
import { announceListening } from './announce.ts';
import { untilStopped } from './until-stopped.ts';
import { divideConnections, readMaxConnections } from './workers/connections.ts';
import { mergeMetrics } from './workers/merge-metrics.ts';
import { startWorkerProcess, type WorkerProcess } from './workers/worker-process.ts';

export interface PrimaryOptions {
  config: GatewayConfig;
  env: Readonly<Record<string, string | undefined>>;
  /** The arguments of this process. */
  words: readonly string[];
  log: Log;
  clock: Pick<Clock, 'monotonicMs' | 'sleep'>;
}

const firstRestartMs = 250;
const longestRestartMs = 10_000;
// A worker that exits after at least this time is restarted after the shortest pause again.
const steadyMs = 60_000;
// Time beyond the drain, for closing the services.
const stopMarginMs = 15_000;

/**
 * Resolves to the exit code once all workers have exited. Throws a SettingError when the database has too
 * few connections.
 */
export async function runPrimary(options: PrimaryOptions): Promise<number> {
  const { config, log } = options;
  const { databaseUrl } = config;
  if (databaseUrl === undefined) throw new Error('Workers need a shared PostgreSQL.');
  const maxConnections = divideConnections({
    workers: config.workers,
    maxConnections: await readMaxConnections(databaseUrl, log),
    hasProject: config.project !== undefined,
  });
  const socket = openListeningSocket(config.host, config.port);
  const url = localUrl(socket.host, socket.port);
  const group = createWorkerGroup({ ...options, fd: socket.fd, url, maxConnections });
  // The first worker applies the migrations and shows whether the settings are valid.
  if (!(await group.start(0))) return 1;
  const workerStarts = Array.from({ length: config.workers - 1 }, (_, index) => group.start(index + 1));
  if ((await Promise.all(workerStarts)).includes(false)) {
    await group.stop();
    return 1;
  }
  const metrics = await serveMetrics(config, group, log).catch(async (error: unknown) => {
    await group.stop();
    throw error;
  });
  try {
    return await untilStopped(
      () => announceListening(url),
      () => group.stop(),
    );
  } finally {
    await metrics?.close();
    socket.close();
  }
}

async function serveMetrics(config: GatewayConfig, group: WorkerGroup, log: Log) {
  const { metricsPort, metricsHost } = config;
  if (metricsPort === undefined) return null;
  const prometheus = {
    contentType: 'text/plain; version=0.0.4; charset=utf-8',
    read: () => group.readMetrics(),
  };
  const listener = await explainListenErrors(
    listenForMetrics({ host: metricsHost, port: metricsPort }, { prometheus, log }),
    gatewayAddresses(config),
  );
  log.info({ url: listener.url }, 'serving metrics');
  return listener;
}

interface WorkerGroup {
  /** Resolves to whether the worker is ready. A worker that exits later is replaced. */
  start(index: number): Promise<boolean>;
  readMetrics(): Promise<string>;
  /** Resolves when all have exited. Kills the workers that exceed their deadlines. */
  stop(): Promise<void>;
}

interface GroupOptions extends PrimaryOptions {
  fd: number;
  url: string;
  maxConnections: number;
}

/** The running workers by index, and the options for starting more. */
interface Workers extends GroupOptions {
  running: Map<number, WorkerProcess>;
  shutdown: AbortSignal;
}

function createWorkerGroup(options: GroupOptions): WorkerGroup {
  const shutdown = new AbortController();
  const workers: Workers = { ...options, running: new Map(), shutdown: shutdown.signal };
  return {
    async start(index) {
      const worker = launch(workers, index);
      if (!(await worker.listening)) {
        workers.running.delete(index);
        return false;
      }
      void keepRunning(workers, worker);
      return true;
    },
    readMetrics: () => readAllMetrics(workers),
    stop() {
      shutdown.abort();
      return stopAll(workers);
    },
  };
}

function launch({ running, words, env, fd, url, maxConnections }: Workers, index: number): WorkerProcess {
  const worker = startWorkerProcess({
    runner: ownRunner(),
    words,
    env,
    start: { index, url, maxConnections },
    fd,
    write: (lines) => void process.stdout.write(lines),
    onBreaker(message) {
      for (const otherWorker of running.values())
        if (otherWorker.index !== index) otherWorker.sendBreaker(message);
    },
  });
  running.set(index, worker);
  return worker;
}

/** Replaces the worker each time it exits, with growing pauses while it exits soon after it starts. */
async function keepRunning(workers: Workers, firstWorker: WorkerProcess): Promise<void> {
  const { running, shutdown, log, clock } = workers;
  const { index } = firstWorker;
  let pauseMs = firstRestartMs;
  for (let worker = firstWorker; ; worker = launch(workers, index)) {
    const startedMs = clock.monotonicMs();
    const reason = await worker.ended;
    running.delete(index);
    if (shutdown.aborted) return;
    log.error({ worker: index, pid: worker.pid, reason }, 'a worker has exited; starting another one');
    if (clock.monotonicMs() - startedMs > steadyMs) pauseMs = firstRestartMs;
    await clock.sleep(pauseMs, shutdown).catch(() => undefined);
    if (shutdown.aborted) return;
    pauseMs = Math.min(pauseMs * 2, longestRestartMs);
  }
}

async function readAllMetrics({ running }: Workers): Promise<string> {
  const texts = await Promise.all(
    [...running.values()].map(async (worker) => ({
      worker: worker.index,
      text: (await worker.readMetrics()) ?? '',
    })),
  );
  return mergeMetrics(texts.toSorted((a, b) => a.worker - b.worker));
}

/** Resolves when all have exited. Kills the workers that exceed the drain and its margin. */
async function stopAll({ running, config }: Workers): Promise<void> {
  const runningWorkers = [...running.values()];
  for (const worker of runningWorkers) worker.stop();
  const timer = setTimeout(() => {
    for (const worker of runningWorkers) worker.kill();
  }, config.drainMs + stopMarginMs);
  await Promise.all(runningWorkers.map(({ ended }) => ended));
  clearTimeout(timer);
}
