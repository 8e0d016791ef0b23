// Shares the only session of the embedded database between the peers, which take turns. A peer within a
// transaction keeps its turn until the transaction ends, or until it has sent nothing for too long.
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

/** The peers take turns in the order of their messages. */
export class Turns {
  readonly #options: TurnOptions;
  readonly #waitingMessages: PeerMessages[] = [];
  /** The peer within a transaction. */
  #holder: number | null = null;
  #idleTimer: NodeJS.Timeout | undefined = undefined;

  constructor(options: TurnOptions) {
    this.#options = options;
  }

  /** Executes the messages once it is their peer's turn. */
  add(message: PeerMessages): void {
    this.#waitingMessages.push(message);
    this.#serveWaiting();
  }

  /** Drops the waiting messages of a disconnected peer and rolls its transaction back. */
  leave(peer: number): void {
    this.#forget(peer);
    this.#options.send({ kind: 'left', peer });
    this.#serveWaiting();
  }

  /** Whether no transaction is open. */
  isFree(): boolean {
    return this.#holder === null;
  }

  /** Rolls an open transaction back. */
  stop(): void {
    if (this.#holder !== null) this.#forget(this.#holder);
  }

  #serveWaiting(): void {
    const { run, send, onStatement, idleInTransactionMs } = this.#options;
    let hasServed = false;
    for (let next = this.#takeNext(); next !== undefined; next = this.#takeNext()) {
      hasServed = true;
      onStatement();
      const bytes = run(next.bytes);
      this.#holder = isIdle(bytes) ? null : next.peer;
      // NotificationResponse is for every peer, since all share one session.
      for (const notification of findMessages(bytes, 'A'))
        send({ kind: 'notify', peer: next.peer, bytes: notification });
      send({ kind: 'answer', peer: next.peer, bytes });
    }
    // Messages that only wait for the holder do not extend its time.
    if (!hasServed) return;
    clearTimeout(this.#idleTimer);
    if (this.#holder !== null) this.#idleTimer = setTimeout(() => this.#expelHolder(), idleInTransactionMs);
  }

  #takeNext(): PeerMessages | undefined {
    const holder = this.#holder;
    const index = holder === null ? 0 : this.#waitingMessages.findIndex(({ peer }) => peer === holder);
    return index < 0 ? undefined : this.#waitingMessages.splice(index, 1)[0];
  }

  #forget(peer: number): void {
    const messages = this.#waitingMessages;
    for (let index = messages.length - 1; index >= 0; index--) {
      if (messages[index]?.peer === peer) messages.splice(index, 1);
    }
    if (this.#holder !== peer) return;
    this.#holder = null;
    clearTimeout(this.#idleTimer);
    const { run } = this.#options;
    if (!isIdle(run(sync))) run(simpleQuery('rollback'));
  }

  #expelHolder(): void {
    const peer = this.#holder;
    if (peer === null) return;
    this.#forget(peer);
    const text = 'terminating connection due to idle-in-transaction timeout';
    this.#options.send({ kind: 'expelled', peer, bytes: fatalError('25P03', text) });
    this.#serveWaiting();
  }
}
