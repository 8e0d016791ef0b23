// A worker of `townhall gateway --workers N`: a gateway that accepts from the
// listening socket of its primary process.
import type { CreateGatewayOptions, Gateway } from '../../../gateway/compose.ts';
import type { Log } from '../../../kernel/log.ts';
import { listeningFd, type PrimaryMessage, type WorkerMessage, type WorkerStart } from './messages.ts';

export interface WorkerOptions {
  gateway: Pick<Gateway, 'listen' | 'readMetrics'>;
  start: WorkerStart;
  /** Drains and closes the gateway. */
  stop(): Promise<void>;
  log: Pick<Log, 'error'>;
}

type BreakerChannel = NonNullable<CreateGatewayOptions['breakerChannel']>;

/**
 * Serves until the primary process sends `stop` or exits, or this process gets SIGTERM. Resolves to the
 * exit code.
 */
export async function runWorker({ gateway, start, stop, log }: WorkerOptions): Promise<number> {
  const stopped = Promise.withResolvers<void>();
  // Ctrl-C reaches the whole process group; the primary process sends stop.
  process.on('SIGINT', () => undefined);
  process.on('SIGTERM', () => stopped.resolve());
  process.on('disconnect', () => stopped.resolve());
  process.on('message', (message: PrimaryMessage) => {
    if (message.kind === 'stop') stopped.resolve();
    else if (message.kind === 'read_metrics')
      void readMetrics(gateway, log).then((text) => send({ kind: 'metrics', id: message.id, text }));
  });
  await gateway.listen({ fd: listeningFd, url: start.url });
  send({ kind: 'listening' });
  await stopped.promise;
  await stop();
  // An open channel would keep the process alive.
  if (process.connected) process.disconnect();
  return 0;
}

/** Empty when they cannot be read: the other workers' metrics are served without them. */
async function readMetrics(gateway: Pick<Gateway, 'readMetrics'>, log: Pick<Log, 'error'>): Promise<string> {
  try {
    return await gateway.readMetrics();
  } catch (error) {
    log.error({ err: error }, 'the metrics could not be read');
    return '';
  }
}

/** Shares the circuit breakers of all workers. */
export function workerBreakers(): BreakerChannel {
  return {
    publish: (breaker, isOpen) => send({ kind: 'breaker', breaker, isOpen }),
    onChange: (listener) =>
      void process.on('message', (message: PrimaryMessage) => {
        if (message.kind === 'breaker') listener(message.breaker, message.isOpen);
      }),
  };
}

function send(message: WorkerMessage): void {
  // The primary process may have exited.
  if (process.connected) process.send?.(message, undefined, undefined, () => undefined);
}
