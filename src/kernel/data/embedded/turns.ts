// The turns of the peers at the one session of the embedded database. A peer within a transaction keeps its
// turn until the transaction ends, or until it has sent nothing for too long.
import { fatalError, isIdle, findMessages, simpleQuery, sync } from './protocol.ts';

/** Whole protocol messages of one peer. */
export interface PeerMessages {
  peer: number;
  bytes: Uint8Array;
}

export type TurnAnswer =
  | ({ kind: 'answer' | 'notify' | 'expelled' } & PeerMessages)
  | { kind: 'left'; peer: number };

export interface TurnOptions {
  /** Executes the messages in the session. */
  run(bytes: Uint8Array): Uint8Array;
  send(answer: TurnAnswer): void;
  /** Called before the messages of a peer are executed. */
  onStatement(): void;
  /** A peer that sends nothing for this long within its transaction is expelled. */
  idleInTransactionMs: number;
}

export interface Turns {
  /** Executes the messages once it is the turn of their peer. */
  add(message: PeerMessages): void;
  /** Forgets the peer's waiting messages, and rolls its transaction back. */
  leave(peer: number): void;
  /** Whether no transaction is open. */
  isFree(): boolean;
  /** Rolls an open transaction back. */
  stop(): void;
}

export function createTurns({ run, send, onStatement, idleInTransactionMs }: TurnOptions): Turns {
  const waitingMessages: PeerMessages[] = [];
  let holder: number | null = null;
  let idleTimer: NodeJS.Timeout | undefined;

  function takeNext(): PeerMessages | undefined {
    const index = holder === null ? 0 : waitingMessages.findIndex(({ peer }) => peer === holder);
    return index < 0 ? undefined : waitingMessages.splice(index, 1)[0];
  }

  function serveWaiting(): void {
    for (let next = takeNext(); next !== undefined; next = takeNext()) {
      onStatement();
      const bytes = run(next.bytes);
      holder = isIdle(bytes) ? null : next.peer;
      // NotificationResponse is for every peer, since all share one session.
      for (const notification of findMessages(bytes, 'A'))
        send({ kind: 'notify', peer: next.peer, bytes: notification });
      send({ kind: 'answer', peer: next.peer, bytes });
    }
    clearTimeout(idleTimer);
    if (holder !== null) idleTimer = setTimeout(expelHolder, idleInTransactionMs);
  }

  function forget(peer: number): void {
    for (let index = waitingMessages.length - 1; index >= 0; index--) {
      if (waitingMessages[index]?.peer === peer) waitingMessages.splice(index, 1);
    }
    if (holder !== peer) return;
    holder = null;
    if (!isIdle(run(sync))) run(simpleQuery('rollback'));
  }

  function expelHolder(): void {
    const peer = holder;
    if (peer === null) return;
    forget(peer);
    const text = 'terminating connection due to idle-in-transaction timeout';
    send({ kind: 'expelled', peer, bytes: fatalError('25P03', text) });
    serveWaiting();
  }

  return {
    add(message) {
      waitingMessages.push(message);
      serveWaiting();
    },
    leave(peer) {
      forget(peer);
      send({ kind: 'left', peer });
      serveWaiting();
    },
    isFree: () => holder === null,
    stop() {
      clearTimeout(idleTimer);
      if (holder !== null) forget(holder);
    },
  };
}
