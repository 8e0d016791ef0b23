// The graceful end of a server: no more connections, then no more work, what runs goes on for a while and is aborted
// after it. It keeps a connection from being closed in the moment in which it brings a request.
import type { Server as HttpServer } from 'node:http';
import { Server as Door, type Socket } from 'node:net';
import { Problem } from '../problem.ts';
import type { HttpRequest } from './request.ts';

export interface CloseOptions {
  /** What runs may go on for so long; 25 seconds when absent. */
  drainMs?: number;
  /**
   * For so long connections are still taken and requests answered, so that whoever distributes callers over several
   * servers has seen by then that this one is not ready. None by default.
   */
  noticeMs?: number;
  /**
   * After that, for so long requests that are already on their way, over connections that are open, are still answered, and told
   * that their connection ends. None by default. Whoever takes over the address has it meanwhile. A connection whose
   * answer ends later, and which had been promised to be kept open, gets the same for another 0.4 seconds.
   */
  lingerMs?: number;
}

export interface Drain {
  /** From the first moment of the end: each answer closes its connection. */
  leaving(): boolean;
  /** For a request that arrives: throws when all that may go on has gone on long enough. */
  refuseLate(): void;
  /** To be told of each answer that has ended or was given up. */
  answerEnded(): void;
  /** Resolves when the last connection is closed; a second call waits for the same end. */
  close(options?: CloseOptions): Promise<void>;
}

export interface DrainOptions {
  http: HttpServer;
  /** Where connections come in. */
  doors: readonly Door[];
  /** What has not got its whole answer yet. */
  visits: ReadonlySet<HttpRequest>;
  /** Connections that never sent a request: they count as busy in Node's eyes and would hold up the end. */
  fresh: ReadonlySet<Socket>;
  /** Between the abort of what still runs and the destruction of its connection. */
  lastWordsMs: number;
}

// Longer than any answer is on its way to a client and the client's next request back.
const longestGraceMs = 400;

export function createDrain({ http, doors, visits, fresh, lastWordsMs }: DrainOptions): Drain {
  let leaving = false;
  let closesIdle = false;
  let refusing = false;
  // Answers that ended a moment ago. Their connections may have been promised to stay open, and one that is closed in
  // this very moment takes a request with it that is on its way.
  let resting = 0;
  let graceMs = 0;
  let closing: Promise<void> | undefined;

  function closeIdle(): void {
    if (closesIdle && resting === 0) http.closeIdleConnections();
  }

  function refuse(): void {
    refusing = true;
    graceMs = 0;
  }

  async function close({ drainMs = 25_000, noticeMs = 0, lingerMs = 0 }: CloseOptions): Promise<void> {
    leaving = true;
    graceMs = Math.min(lingerMs, longestGraceMs);
    if (noticeMs > 0) await new Promise((resolve) => setTimeout(resolve, noticeMs));
    // Not http's own close, which would cut connections that are idle at this moment and may bring a request in the next.
    const closed = Promise.all(
      doors.map((door) => new Promise<void>((resolve) => Door.prototype.close.call(door, () => resolve()))),
    );
    const abort = setTimeout(() => {
      refuse();
      for (const visit of visits) visit.abort(draining());
    }, drainMs);
    const destroy = setTimeout(() => http.closeAllConnections(), drainMs + lastWordsMs);
    let lingering: NodeJS.Timeout | undefined;
    const lingered = new Promise<void>(
      (resolve) => (lingering = setTimeout(resolve, Math.min(lingerMs, drainMs))),
    );
    if (lingerMs > 0) await Promise.race([closed, lingered.then(onceRead)]);
    clearTimeout(lingering);
    if (lingerMs === 0) refuse();
    closesIdle = true;
    for (const socket of fresh) socket.destroy();
    closeIdle();
    await closed;
    // All that is left of it is what watches deadlines.
    http.close();
    clearTimeout(abort);
    clearTimeout(destroy);
  }

  return {
    leaving: () => leaving,
    refuseLate() {
      if (refusing) throw draining();
    },
    answerEnded() {
      if (!leaving) return;
      resting += 1;
      const rested = (): void => {
        resting -= 1;
        closeIdle();
      };
      setTimeout(() => void onceRead().then(rested), graceMs);
    },
    close: (options = {}) => (closing ??= close(options)),
  };
}

/** Resolves once what lies in the sockets was read; after a pause of the process its timers come before that. */
function onceRead(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

function draining(): Problem {
  return new Problem('unavailable', 'draining', 'The server is going down; try again in a moment.', {
    headers: { 'retry-after': '1' },
  });
}
