// The messages between `townhall gateway --workers N` and its worker processes, over their IPC
// channels.

/**
 * The listening socket's file descriptor in a worker: stdin, stdout, stderr and the
 * IPC channel come before it.
 */
export const listeningFd = 4;

/** The environment variable that makes a process a worker: a WorkerStart as JSON. */
export const workerVariable = 'TOWNHALL_WORKER';

export interface WorkerStart {
  index: number;
  /** The address of the server for callers on this machine. */
  url: string;
  /** Connections to PostgreSQL. */
  maxConnections: number;
}

/**
 * A circuit breaker that has opened or closed in a worker; the primary process passes it on to the others.
 */
export interface BreakerMessage {
  kind: 'breaker';
  breaker: string;
  isOpen: boolean;
}

export type PrimaryMessage = { kind: 'stop' } | { kind: 'read_metrics'; id: number } | BreakerMessage;

export type WorkerMessage =
  | { kind: 'listening' }
  | { kind: 'metrics'; id: number; text: string }
  | BreakerMessage;

/** Null when this process is not a worker. */
export function readWorkerStart(env: Readonly<Record<string, string | undefined>>): WorkerStart | null {
  const text = env[workerVariable];
  return text === undefined ? null : (JSON.parse(text) as WorkerStart);
}
