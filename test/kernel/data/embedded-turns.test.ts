// How the peers of the embedded database share its session, on a scripted engine.
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { type TurnAnswer, Turns } from '../../../src/kernel/data/embedded/turns.ts';

const idleInTransactionMs = 1_000;
const [holder, waiter] = [1, 2];

/** ReadyForQuery, within a transaction (T) or outside of one (I). */
const readyForQuery = (status: 'T' | 'I') => Uint8Array.of(0x5a, 0, 0, 0, 5, status.charCodeAt(0));

function startTurns() {
  const answers: TurnAnswer[] = [];
  let isInTransaction = false;
  const turns = new Turns({
    idleInTransactionMs,
    onStatement() {},
    send: (answer) => answers.push(answer),
    run(bytes) {
      const text = Buffer.from(bytes).toString();
      if (text.includes('begin')) isInTransaction = true;
      if (text.includes('rollback')) isInTransaction = false;
      return readyForQuery(isInTransaction ? 'T' : 'I');
    },
  });
  return {
    add: (peer: number, text: string) => turns.add({ peer, bytes: Buffer.from(text) }),
    leave: (peer: number) => turns.leave(peer),
    /** Kind and peer of each answer since the last call. */
    takeAnswers: () => answers.splice(0).map(({ kind, peer }) => [kind, peer]),
  };
}

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

describe('a peer within a transaction', () => {
  it('is expelled once it is idle, and the next peer is served', () => {
    const { add, takeAnswers } = startTurns();
    add(holder, 'begin');
    add(waiter, 'select');
    expect(takeAnswers()).toEqual([['answer', holder]]);
    vi.advanceTimersByTime(idleInTransactionMs);
    expect(takeAnswers()).toEqual([
      ['expelled', holder],
      ['answer', waiter],
    ]);
  });

  it('is expelled on time while other peers send messages and leave', () => {
    const { add, leave, takeAnswers } = startTurns();
    add(holder, 'begin');
    takeAnswers();
    for (const peer of [waiter, waiter + 1]) {
      vi.advanceTimersByTime(idleInTransactionMs / 2);
      add(peer, 'select');
      leave(peer);
    }
    expect(takeAnswers()).toContainEqual(['expelled', holder]);
  });

  it('keeps its turn while it sends messages', () => {
    const { add, takeAnswers } = startTurns();
    add(holder, 'begin');
    for (let count = 0; count < 3; count += 1) {
      vi.advanceTimersByTime(idleInTransactionMs - 1);
      add(holder, 'select');
    }
    expect(takeAnswers()).toEqual(Array(4).fill(['answer', holder]));
  });
});
