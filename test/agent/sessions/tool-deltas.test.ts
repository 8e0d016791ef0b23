// Pieces of tool calls: their input while the model writes it, and their output while they run.
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import type { AgentClient, SessionEvent } from '@townhall/agent';
import { outputDecoder } from '../../../src/agent/processes/index.ts';
import { createToolDeltas } from '../../../src/agent/sessions/model-loop/tool-deltas.ts';
import type { ToolDelta } from '../../../src/agent/sessions/event-log/live-feed.ts';
import { systemClock } from '../../../src/kernel/clock.ts';
import { finish, says } from '../../support/scripted-gateway.ts';
import { collect, openWorld, type World } from '../../support/session-world.ts';

let world: World;
beforeAll(async () => {
  world = await openWorld();
});
afterEach(() => world.reset());
afterAll(() => world.close());

type Delta = Extract<SessionEvent, { type: 'tool.input.delta' | 'tool.output.delta' }>;

const deltasOf = (events: readonly SessionEvent[], type: Delta['type']) =>
  events.filter((event): event is Delta => event.type === type);

/** The text of deltas that follow each other without a gap. */
function joinDeltas(deltas: readonly Pick<ToolDelta, 'offset' | 'delta'>[]): string {
  let text = '';
  for (const { offset, delta } of deltas) {
    expect(offset).toBe(text.length);
    text += delta;
  }
  return text;
}

describe('sessions.follow', () => {
  /** The live events of a run with one call of the shell, whose input arrives in two deltas. */
  async function followCall(): Promise<{ client: AgentClient; input: string; liveEvents: SessionEvent[] }> {
    const agent = await world.start({ settings: { unattendedApprovals: 'approve' } });
    const { client } = agent;
    const input = JSON.stringify({ command: 'echo one; echo two' });
    world.gateway.answer((_, index) =>
      index > 0
        ? says('Done.')
        : {
            parts: [
              { type: 'tool-input-start', id: 'call', toolName: 'shell_run' },
              { type: 'tool-input-delta', id: 'call', delta: input.slice(0, 5) },
              { type: 'tool-input-delta', id: 'call', delta: input.slice(5) },
              { type: 'tool-input-end', id: 'call' },
              { type: 'tool-call', toolCallId: 'call', toolName: 'shell_run', input },
              finish('tool-calls'),
            ],
          },
    );
    await client.sessions.create({ id: 's' });
    const ready = Promise.withResolvers<void>();
    const events = collect(client.sessions.follow({ sessionId: 's' }), (event) => {
      if (event.type === 'stream.ready') ready.resolve();
      return event.type === 'run.settled';
    });
    await ready.promise;
    await client.sessions.prompt({ sessionId: 's', text: 'Go.' });
    return { client, input, liveEvents: await events };
  }

  test('shows the input of a call before it starts', async () => {
    const { input, liveEvents } = await followCall();
    const start = liveEvents.find((event) => event.type === 'tool.started');
    const inputs = deltasOf(liveEvents, 'tool.input.delta');
    expect(joinDeltas(inputs)).toBe(input);
    expect(inputs[0]).toMatchObject({
      toolName: 'shell_run',
      toolCallId: 'call',
      messageId: start?.messageId,
      runId: start?.runId,
    });
    expect(liveEvents.indexOf(inputs.at(-1) as SessionEvent)).toBeLessThan(
      liveEvents.indexOf(start as SessionEvent),
    );
  });

  test('shows the output of a call before it ends', async () => {
    const { liveEvents } = await followCall();
    const outputs = deltasOf(liveEvents, 'tool.output.delta');
    expect(joinDeltas(outputs)).toBe('one\ntwo\n');
    const outputIndex = liveEvents.findIndex(({ type }) => type === 'tool.output');
    expect(liveEvents.indexOf(outputs.at(-1) as SessionEvent)).toBeLessThan(outputIndex);
  });

  test('leaves the deltas out of the log', async () => {
    const { client } = await followCall();
    const storedEvents = await collect(client.sessions.follow({ sessionId: 's', until: 'idle' }));
    expect(storedEvents.filter(({ type }) => type.endsWith('.delta'))).toEqual([]);
  });
});

describe('createToolDeltas', () => {
  function open() {
    const pieces: Omit<ToolDelta, 'runId' | 'messageId'>[] = [];
    return {
      pieces,
      deltas: createToolDeltas({ publish: (delta) => pieces.push(delta), clock: systemClock }),
    };
  }
  const call = { toolCallId: 'c', toolName: 't' };

  test('joins pieces at the end of the call', () => {
    const { pieces, deltas } = open();
    for (const text of ['a', 'b', 'c']) deltas.add('output', call, text);
    expect(pieces).toEqual([]);
    deltas.end('output', 'c');
    expect(pieces).toMatchObject([{ type: 'tool.output.delta', offset: 0, delta: 'abc' }]);
    deltas.close();
  });

  test('publishes a piece while the call goes on', async () => {
    const { pieces, deltas } = open();
    deltas.add('input', call, 'a');
    await expect.poll(() => pieces.length, { interval: 5 }).toBe(1);
    deltas.add('input', call, 'b');
    deltas.end('input', 'c');
    expect(joinDeltas(pieces)).toBe('ab');
    deltas.close();
  });

  test('publishes at most 65,536 characters of a call', () => {
    const { pieces, deltas } = open();
    for (let index = 0; index < 100; index += 1) deltas.add('output', call, 'x'.repeat(1_000));
    deltas.end('output', 'c');
    expect(joinDeltas(pieces)).toHaveLength(65_536);
    deltas.close();
  });

  test('starts an input again after its stream broke', () => {
    const { pieces, deltas } = open();
    deltas.add('input', call, 'lost');
    deltas.dropInputs();
    deltas.add('input', call, 'again');
    deltas.end('input', 'c');
    expect(pieces).toMatchObject([{ offset: 0, delta: 'again' }]);
    deltas.close();
  });
});

describe('outputDecoder', () => {
  test.each([1, 2, 3, 7])('decodes pieces of %i bytes without control characters', (size) => {
    const bytes = Buffer.from('\u001b[1;31mé😀\u001b[0m\u0007end\n');
    const decode = outputDecoder();
    let text = '';
    for (let offset = 0; offset < bytes.length; offset += size)
      text += decode(bytes.subarray(offset, offset + size));
    expect(text).toBe('é😀\ufffdend\n');
  });
});
