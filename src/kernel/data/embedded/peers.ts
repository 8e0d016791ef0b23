// The streams between the server's thread and the engine's thread, each of which carries the PostgreSQL
// protocol.
import { Duplex } from 'node:stream';
import type { FromWorker, ToWorker } from './worker.ts';

// How long a statement of a disconnected caller may keep the engine busy. A wasm engine cannot
// cancel a statement, but it can be killed and restarted, since all commits are on disk.
const stuckMs = 5_000;

interface Peer {
  stream: Duplex;
  isPatient: boolean;
  /** Number of batches without an answer yet. */
  unanswered: number;
}

export interface Peers {
  dial(isPatient: boolean): Duplex;
  receive(message: Extract<FromWorker, { peer: number }>): void;
  destroyStreams(reason?: Error): void;
  /** Destroys all streams; the owner calls it when the thread has ended. */
  end(reason: Error): void;
}

/**
 * Manages the streams to one engine, by number. Calls `kill` when the statement of a closed stream keeps
 * the engine busy for too long.
 */
export function createPeers(send: (message: ToWorker) => void, kill: (reason: Error) => void): Peers {
  const peers = new Map<number, Peer>();
  const stuckTimers = createStuckTimers({
    hasPatientStatement: () =>
      [...peers.values()].some(({ isPatient, unanswered }) => isPatient && unanswered > 0),
    kill,
  });
  let nextPeer = 1;
  let hasEnded = false;

  function leave(number: number, { unanswered }: Peer): void {
    peers.delete(number);
    send({ kind: 'leave', peer: number });
    if (unanswered > 0 && !hasEnded) stuckTimers.start(number);
  }

  function destroyStreams(reason?: Error): void {
    for (const { stream } of peers.values()) stream.destroy(reason);
  }

  function notifyOthers(sender: number, bytes: Uint8Array): void {
    for (const [number, { stream }] of peers) if (number !== sender) stream.push(bytes);
  }

  return {
    dial(isPatient) {
      const number = nextPeer++;
      const stream = protocolStream({
        send(bytes) {
          peer.unanswered += 1;
          send({ kind: 'query', peer: number, bytes });
        },
        leave: () => leave(number, peer),
      });
      const peer: Peer = { stream, isPatient, unanswered: 0 };
      peers.set(number, peer);
      return stream;
    },
    receive(message) {
      if (message.kind === 'left') return stuckTimers.stop(message.peer);
      if (message.kind === 'notify') return notifyOthers(message.peer, message.bytes);
      const peer = peers.get(message.peer);
      if (peer === undefined) return undefined;
      if (message.kind === 'expelled') return endWithError(peer.stream, message.bytes);
      peer.unanswered -= 1;
      if (message.bytes.length > 0) peer.stream.push(message.bytes);
      return undefined;
    },
    destroyStreams,
    end(reason) {
      hasEnded = true;
      stuckTimers.stopAll();
      destroyStreams(reason);
    },
  };
}

/** Sends the engine's error as the last answer. */
function endWithError(stream: Duplex, error: Uint8Array): void {
  stream.push(error);
  stream.push(null);
  stream.end();
}

/** The timers of streams that closed during a statement, by the number of the peer. */
function createStuckTimers({
  hasPatientStatement,
  kill,
}: {
  hasPatientStatement(): boolean;
  kill(reason: Error): void;
}) {
  const timers = new Map<number, NodeJS.Timeout>();

  function start(peer: number): void {
    timers.set(peer, setTimeout(killOrWait, stuckMs, peer));
  }

  function killOrWait(peer: number): void {
    // The engine may be busy with a patient statement instead of the peer's statement.
    if (hasPatientStatement()) start(peer);
    else
      kill(
        new Error(
          'The engine was stopped because a statement kept running after its caller had disconnected.',
        ),
      );
  }

  return {
    start,
    stop(peer: number): void {
      clearTimeout(timers.get(peer));
      timers.delete(peer);
    },
    stopAll(): void {
      for (const timer of timers.values()) clearTimeout(timer);
    },
  };
}

// AuthenticationOk, BackendKeyData and ReadyForQuery: our own worker needs no login.
const startupAnswer = Buffer.from([
  0x52, 0, 0, 0, 8, 0, 0, 0, 0, 0x4b, 0, 0, 0, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0x5a, 0, 0, 0, 5, 0x49,
]);

/**
 * The client's side: forwards protocol messages in batches that end where the client waits for an
 * answer (Sync, Flush, Query).
 */
function protocolStream({ send, leave }: { send: (batch: Uint8Array) => void; leave: () => void }): Duplex {
  let receivedBytes: Buffer = Buffer.alloc(0);
  let hasStarted = false;
  const stream = new Duplex({
    read() {
      // Answers are pushed as they arrive; a client has one answer in flight at a time.
    },
    write(chunk: Buffer, _encoding, done) {
      receivedBytes = receivedBytes.length > 0 ? Buffer.concat([receivedBytes, chunk]) : chunk;
      if (!hasStarted && receivedBytes.length >= 4 && receivedBytes.length >= receivedBytes.readUInt32BE(0)) {
        hasStarted = true;
        receivedBytes = receivedBytes.subarray(receivedBytes.readUInt32BE(0));
        // Answer after the write has returned: postgres.js drops what it writes while it handles an answer.
        setImmediate(() => stream.push(startupAnswer));
      }
      if (hasStarted) sendBatches();
      done();
    },
    final(done) {
      stream.push(null);
      done();
    },
    destroy(error, done) {
      leave();
      done(error);
    },
  });
  function sendBatches(): void {
    let end = 0;
    for (let offset = 0; offset + 5 <= receivedBytes.length;) {
      const next = offset + 1 + receivedBytes.readUInt32BE(offset + 1);
      if (next > receivedBytes.length) break;
      if (endsBatch.has(receivedBytes[offset] ?? 0)) end = next;
      offset = next;
    }
    if (end === 0) return;
    // A copy, because the buffer is transferred to the worker.
    send(new Uint8Array(receivedBytes.subarray(0, end)));
    receivedBytes = receivedBytes.subarray(end);
  }
  // postgres.js sends Terminate only to a stream whose readyState is open.
  Object.defineProperty(stream, 'readyState', { get: () => (stream.destroyed ? 'closed' : 'open') });
  return stream;
}

const endsBatch = new Set([...'SHQ'].map((letter) => letter.charCodeAt(0)));
