// The thread that runs the embedded PostgreSQL. PGlite has one session and answers synchronously,
// so it does not run on the server's event loop. A commit is on disk before its answer leaves this file.
import { type MessagePort, parentPort, receiveMessageOnPort, workerData } from 'node:worker_threads';
import { type ClusterOptions, type ClusterThread, openCluster } from './cluster.ts';
import { findMessages, rowsOf, simpleQuery } from './protocol.ts';
import { Turns } from './turns.ts';
import { createVacuum } from './vacuum.ts';

/** The start options of the thread. */
export interface EmbeddedStart extends ClusterOptions {
  idleInTransactionMs: number;
  /** Interval for checking the size of the WAL since the last checkpoint. */
  checkpointEveryMs: number;
  /** Interval for checking for deleted rows. */
  vacuumEveryMs: number;
}

/** The `workerData` of the thread. */
export type EmbeddedThread = EmbeddedStart & ClusterThread;

/** `query` carries whole protocol messages up to a Sync, Flush or simple Query; each gets one `answer`. */
export type ToWorker =
  | { kind: 'query'; peer: number; bytes: Uint8Array }
  | { kind: 'leave'; peer: number }
  | { kind: 'dump' }
  | { kind: 'stop' };

export type FromWorker =
  | { kind: 'ready' }
  | { kind: 'answer'; peer: number; bytes: Uint8Array }
  | { kind: 'notify'; peer: number; bytes: Uint8Array }
  | { kind: 'left'; peer: number }
  | { kind: 'expelled'; peer: number; bytes: Uint8Array }
  | { kind: 'dumped'; bytes: Uint8Array }
  | { kind: 'stopped' };

// In single-user mode PostgreSQL makes no checkpoints by itself: the WAL would grow without bound,
// and recovery would read all of it. The check runs only outside of transactions.
const checkpointAboveBytes = 32 * 1024 * 1024;
const checkpointDueQuery = `
  select from pg_control_checkpoint()
  where pg_current_wal_insert_lsn() - redo_lsn > ${checkpointAboveBytes}`;

// A statement that arrives during a vacuum waits this long at most.
const maxVacuumWaitMs = 500;
// With more statements than this in the last second the database is busy, and no vacuum starts.
const quietStatements = 20;

if (parentPort) void serve(parentPort, workerData as EmbeddedThread);

async function serve(port: MessagePort, start: EmbeddedThread): Promise<void> {
  const cluster = await openCluster(start);
  const run = runOrExit(cluster);
  const send = (message: FromWorker): void => post(port, message);
  let isDumping = false;

  const turns = new Turns({
    run,
    send,
    onStatement: () => vacuum.countStatement(),
    idleInTransactionMs: start.idleInTransactionMs,
  });
  const vacuum = startVacuum({
    port,
    receive,
    query: (statement, isInterrupted) =>
      cluster.interruptible(isInterrupted, () => run(simpleQuery(statement))),
    isFree: () => turns.isFree() && !isDumping,
    everyMs: start.vacuumEveryMs,
  });
  const checkpointTimer = setInterval(() => {
    if (turns.isFree()) checkpointWhenDue(run);
  }, start.checkpointEveryMs);

  function receive(message: ToWorker): void {
    if (message.kind === 'query') turns.add(message);
    else if (message.kind === 'leave') turns.leave(message.peer);
    else if (message.kind === 'dump') void dump();
    else void stop();
  }

  async function dump(): Promise<void> {
    isDumping = true;
    run(simpleQuery('checkpoint'));
    // PGlite reads all files in this turn of the event loop, so no statement runs between two of them.
    send({ kind: 'dumped', bytes: await cluster.dump() });
    isDumping = false;
  }

  async function stop(): Promise<void> {
    clearInterval(checkpointTimer);
    vacuum.stop();
    turns.stop();
    await cluster.close();
    send({ kind: 'stopped' });
    port.close();
  }

  port.on('message', receive);
  send({ kind: 'ready' });
}

/** Transfers the bytes of the message. */
function post(port: MessagePort, message: FromWorker): void {
  const bytes = 'bytes' in message ? message.bytes : undefined;
  port.postMessage(message, bytes?.buffer instanceof ArrayBuffer ? [bytes.buffer] : []);
}

type Run = (bytes: Uint8Array) => Uint8Array;

/**
 * Ends the thread after a PANIC. The supervisor starts another one, which recovers from the WAL; no
 * answer was sent for an uncommitted change.
 */
function runOrExit({ run, hasPanicked }: { run: Run; hasPanicked: () => boolean }): Run {
  return (bytes) => {
    const answer = run(bytes);
    if (hasPanicked()) process.exit(1);
    return answer;
  };
}

function checkpointWhenDue(run: Run): void {
  const isDue = findMessages(run(simpleQuery(checkpointDueQuery)), 'D').length > 0;
  if (isDue) run(simpleQuery('checkpoint'));
}

interface IdleVacuumOptions {
  port: MessagePort;
  receive(message: ToWorker): void;
  query(statement: string, isInterrupted: () => boolean): Uint8Array;
  /** Whether no transaction is open and no dump is being made. */
  isFree(): boolean;
  everyMs: number;
}

interface IdleVacuum {
  /** Must be called for each statement of a peer. */
  countStatement(): void;
  stop(): void;
}

/** Vacuums while there is little work; a message that arrives during a vacuum waits at most 500 ms. */
function startVacuum({ port, receive, query, isFree, everyMs }: IdleVacuumOptions): IdleVacuum {
  let statements = 0;
  /** Messages that arrived during a vacuum; they are handled after it. */
  const inbox: ToWorker[] = [];

  function runUntilInterrupted(statement: string): (string | null)[][] | null {
    if (inbox.length > 0) return null;
    const deadlineMs = performance.now() + maxVacuumWaitMs;
    const answer = query(statement, () => {
      if (performance.now() > deadlineMs) moveMessages(port, inbox);
      return inbox.length > 0;
    });
    return findMessages(answer, 'E').length > 0 ? null : rowsOf(answer);
  }

  const vacuum = createVacuum({ query: runUntilInterrupted, nowMs: () => performance.now() }, { everyMs });
  const timer = setInterval(
    () => {
      const isQuiet = statements <= quietStatements;
      statements = 0;
      if (isQuiet && isFree()) vacuum.step();
      inbox.splice(0).forEach(receive);
    },
    Math.min(1_000, everyMs),
  );
  return { countStatement: () => void (statements += 1), stop: () => clearInterval(timer) };
}

/** Takes all messages from the port without the event loop, which a running statement blocks. */
function moveMessages(port: MessagePort, inbox: ToWorker[]): void {
  for (let next = receiveMessageOnPort(port); next !== undefined; next = receiveMessageOnPort(port))
    inbox.push((next as { message: ToWorker }).message);
}
