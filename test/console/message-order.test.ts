// The order of messages, derived from logs that leave it open: prompts are logged when accepted,
// answers when completed.
import { describe, expect, test } from 'vitest';
import { orderMessages } from '../../src/console/pages/conversation/message-order.ts';
import type { Message } from '../../src/console/pages/conversation/thread-state.ts';

const message = (role: Message['role'], runId: string | null, id: string, isOpen = false): Message => ({
  id,
  role,
  runId,
  parts: [],
  metadata: {},
  isOpen,
});
const prompt = (run: string | null, id = `Q-${run}`) => message('user', run, id);
const answer = (run: string | null, id = `A-${run}`, isOpen = false) => message('assistant', run, id, isOpen);
const order = (messages: Message[], queue: string[] = [], activeRunId: string | null = null) =>
  orderMessages({
    messages,
    queue: queue.map((runId, queuePosition) => ({ runId, queuePosition })),
    activeRunId,
  }).map(({ id }) => id);

describe('orderMessages', () => {
  test('puts each prompt above its answer', () => {
    expect(order([prompt('1'), prompt('2'), prompt('3'), answer('1'), answer('2'), answer('3')])).toEqual([
      'Q-1',
      'A-1',
      'Q-2',
      'A-2',
      'Q-3',
      'A-3',
    ]);
  });

  test('follows the order of the answers if a prompt was urgent', () => {
    expect(order([prompt('1'), prompt('2'), prompt('3'), answer('1'), answer('3'), answer('2')])).toEqual([
      'Q-1',
      'A-1',
      'Q-3',
      'A-3',
      'Q-2',
      'A-2',
    ]);
  });

  test('puts the running prompt before the queue in its order', () => {
    expect(order([prompt('1'), prompt('2'), prompt('3'), prompt('4'), answer('1')], ['4', '3'], '2')).toEqual(
      ['Q-1', 'A-1', 'Q-2', 'Q-4', 'Q-3'],
    );
  });

  test('keeps a removed prompt after the preceding prompt', () => {
    expect(order([prompt('1'), prompt('2'), prompt('3'), answer('1'), answer('3')])).toEqual([
      'Q-1',
      'A-1',
      'Q-2',
      'Q-3',
      'A-3',
    ]);
    expect(order([prompt('1'), prompt('2'), prompt('3'), answer('2')], ['3'])).toEqual([
      'Q-1',
      'Q-2',
      'A-2',
      'Q-3',
    ]);
  });

  test('puts a prompt that steered a run between its messages', () => {
    expect(order([prompt('1'), prompt('s'), answer('1', 'A-1a'), answer('1', 'A-1b')])).toEqual([
      'Q-1',
      'A-1a',
      'Q-s',
      'A-1b',
    ]);
    expect(
      order([prompt('1'), prompt('s'), answer('1', 'A-1a'), answer('1', 'A-1b', true)], [], '1'),
    ).toEqual(['Q-1', 'A-1a', 'Q-s', 'A-1b']);
  });

  test('leaves messages without a run at their place in the log', () => {
    expect(order([prompt(null, 'a'), answer(null, 'b'), prompt(null, 'c'), answer(null, 'd')])).toEqual([
      'a',
      'b',
      'c',
      'd',
    ]);
  });

  test('neither loses nor repeats a message of a long log', () => {
    const runs = Array.from({ length: 2_000 }, (_, index) => String(index));
    const messages = [
      ...runs.map((run) => prompt(run)),
      ...runs.filter((_, index) => index % 3 > 0).map((run) => answer(run)),
    ];
    expect(order(messages, ['3', '6']).toSorted()).toEqual(messages.map(({ id }) => id).toSorted());
  });
});
