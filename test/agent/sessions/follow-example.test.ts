// The example `agent-follow` in three processes: two follow a session and a third
// prompts. One follower is killed in the middle and starts again.
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { kill } from '../../support/processes.ts';
import { holdAnswer, openWorld, type World } from '../../support/session-world.ts';

let world: World;
let children: ChildProcess[];
beforeEach(async () => {
  world = await openWorld();
  children = [];
});
afterEach(async () => {
  for (const child of children) await kill(child);
  await world.reset();
  await world.close();
});

test(
  'the example shows three clients the same conversation across a kill',
  { timeout: 180_000 },
  async () => {
    const agent = await world.start();
    const answer = holdAnswer();
    world.gateway.answer(() => answer.answer);

    function client(...args: string[]) {
      const child = spawn(
        process.execPath,
        [join(import.meta.dirname, '../../../examples/agent-follow.ts'), '--session', 'shown', ...args],
        {
          env: {
            PATH: process.env['PATH'],
            TOWNHALL_AGENT_URL: agent.url,
            TOWNHALL_AGENT_TOKEN: agent.token,
          },
          stdio: ['ignore', 'pipe', 'inherit'],
        },
      );
      children.push(child);
      let output = '';
      child.stdout.on('data', (piece: Buffer) => (output += piece.toString('utf8')));
      return { child, closed: once(child, 'close'), lines: () => output.split('\n').slice(0, -1) };
    }

    const stayingClient = client();
    const killedClient = client();
    const promptingClient = client('Tell me of the hall.');
    await answer.request;
    answer.say('It is ');
    for (const { lines } of [stayingClient, killedClient])
      await expect.poll(() => lines().length, { timeout: 60_000 }).toBe(1);
    await kill(killedClient.child);
    const [lastLine] = killedClient.lines();
    const restartedClient = client('--after', /^\d+/.exec(lastLine ?? '')?.[0] ?? '');
    answer.say('open.');
    answer.end();
    // The client that prompts exits after the answer.
    await promptingClient.closed;
    expect(promptingClient.child.exitCode).toBe(0);
    await expect.poll(() => stayingClient.lines().length, { timeout: 60_000 }).toBe(2);
    await expect.poll(() => restartedClient.lines().length, { timeout: 60_000 }).toBe(1);
    expect([...killedClient.lines(), ...restartedClient.lines()]).toEqual(stayingClient.lines());
    expect(promptingClient.lines()).toEqual(stayingClient.lines());
    expect(stayingClient.lines().map((line) => line.replace(/^\d+ +/, ''))).toEqual([
      'You    Tell me of the hall.',
      'Agent  It is open.',
    ]);
  },
);
