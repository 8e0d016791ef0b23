// Approvals: who decides them, when they expire, and that no tool runs without one.
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import type { AgentClient } from '@townhall/agent';
import { definePlugin } from '../../../src/agent/plugins/index.ts';
import { calls, says } from '../../support/scripted-gateway.ts';
import { collect, openWorld, type World } from '../../support/session-world.ts';

describe('sessions.decideApproval', () => {
  let world: World;
  let actInputs: string[] = [];
  const approvalPlugin = definePlugin<{ act: { what: string } }>({
    name: 'careful',
    title: 'Careful',
    description: 'Acts.',
    actions: {
      act: {
        description: 'Acts.',
        input: {
          type: 'object',
          required: ['what'],
          properties: { what: { type: 'string' } },
          additionalProperties: false,
        },
        needsApproval: true,
        run: async ({ what }) => void actInputs.push(what),
      },
    },
  });
  beforeAll(async () => {
    world = await openWorld();
  });
  afterEach(async () => {
    actInputs = [];
    await world.reset();
  });
  afterAll(() => world.close());

  const start = async (settings: object = {}) => {
    world.gateway.answer((_, index) =>
      index === 0 ? calls({ name: 'careful_act', input: { what: 'it' } }) : says('Done.'),
    );
    return world.start({ createOptions: { plugins: [approvalPlugin] }, settings });
  };

  test.each([
    ['approve', ['it'], 'approved'],
    ['deny', [], 'denied'],
  ] as const)('waits for a person who may %s', async (decision, expectedInputs, status) => {
    const { client } = await start();
    await client.sessions.create({ id: 's', attended: true });
    await client.sessions.prompt({ sessionId: 's', text: 'Act.' });
    const events = await collect(
      client.sessions.follow({ sessionId: 's' }),
      (event) => event.type === 'status.changed' && event.status === 'requires_action',
    );
    expect(
      events.some((event) => event.type === 'approval.requested' && event.toolName === 'careful_act'),
    ).toBe(true);
    expect(await client.sessions.get({ sessionId: 's' })).toMatchObject({ status: 'requires_action' });
    const { items } = await client.sessions.listApprovals({ sessionId: 's', status: 'pending' });
    expect(items).toMatchObject([{ status: 'pending', input: { what: 'it' } }]);
    expect(actInputs).toEqual([]);
    const approvalId = items[0]?.approvalId ?? '';
    expect(await client.sessions.decideApproval({ sessionId: 's', approvalId, decision })).toMatchObject({
      status,
      decidedBy: expect.stringMatching(/^tok_/),
    });
    await collect(client.sessions.follow({ sessionId: 's', until: 'idle' }));
    expect(actInputs).toEqual(expectedInputs);
  });

  /** The id of the approval that the session `s` waits for. */
  async function requestApproval(client: AgentClient): Promise<string> {
    await client.sessions.create({ id: 's', attended: true });
    await client.sessions.prompt({ sessionId: 's', text: 'Act.' });
    await collect(client.sessions.follow({ sessionId: 's' }), ({ type }) => type === 'approval.requested');
    const { items } = await client.sessions.listApprovals({ sessionId: 's', status: 'pending' });
    return items[0]?.approvalId ?? '';
  }

  test('keeps the wait for a decision out of the duration of the tool', async () => {
    const { client } = await start();
    const approvalId = await requestApproval(client);
    await new Promise((resolve) => setTimeout(resolve, 1_500));
    const decidedMs = performance.now();
    await client.sessions.decideApproval({ sessionId: 's', approvalId, decision: 'approve' });
    const events = await collect(client.sessions.follow({ sessionId: 's', until: 'idle' }));
    const output = events.find((event) => event.type === 'tool.output');
    expect(output?.durationMs).toBeLessThanOrEqual(Math.ceil(performance.now() - decidedMs));
  });

  test('shows the model the reason of a denial', async () => {
    const { client } = await start();
    const approvalId = await requestApproval(client);
    const denial = { sessionId: 's', approvalId, decision: 'deny', reason: 'Because.' } as const;
    await client.sessions.decideApproval(denial);
    await collect(client.sessions.follow({ sessionId: 's', until: 'idle' }));
    expect(JSON.stringify(world.gateway.requests[1]?.prompt)).toContain('Because.');
  });

  test.each([
    ['approve', 'deny', 'approved'],
    ['deny', 'approve', 'denied'],
  ] as const)('repeats %s and refuses %s afterwards', async (decision, otherDecision, status) => {
    const { client } = await start();
    const approval = { sessionId: 's', approvalId: await requestApproval(client) };
    await client.sessions.decideApproval({ ...approval, decision });
    expect(await client.sessions.decideApproval({ ...approval, decision })).toMatchObject({ status });
    await expect(
      client.sessions.decideApproval({ ...approval, decision: otherDecision }),
    ).rejects.toMatchObject({ status: 409, code: 'approval_settled' });
  });

  test('denies an approval without a decision in time', async () => {
    const { client } = await start({ approvalTtlMs: 50 });
    await client.sessions.create({ id: 's', attended: true });
    expect(
      await client.sessions.prompt({ sessionId: 's', text: 'Act.' }, { headers: { prefer: 'wait=20' } }),
    ).toMatchObject({ status: 'completed' });
    expect((await client.sessions.listApprovals({ sessionId: 's' })).items).toMatchObject([
      { status: 'denied', decidedBy: 'expiry' },
    ]);
    expect(actInputs).toEqual([]);
  });

  test.each([
    ['deny', 'denied', []],
    ['approve', 'approved', ['it']],
  ] as const)(
    'lets the policy %s decide at once where no person attends',
    async (unattendedApprovals, status, expectedInputs) => {
      const { client } = await start({ unattendedApprovals });
      const { sessionId } = await client.sessions.execute({ instructions: 'Act.' });
      expect((await client.sessions.listApprovals({ sessionId })).items).toMatchObject([
        { status, decidedBy: 'policy', expiresAt: null },
      ]);
      expect(actInputs).toEqual(expectedInputs);
    },
  );

  test('denies the approval of a cancelled run', async () => {
    const { client } = await start();
    await requestApproval(client);
    await client.sessions.cancel({ sessionId: 's' });
    expect((await client.sessions.listApprovals({ sessionId: 's' })).items).toMatchObject([
      { status: 'denied', decidedBy: 'run' },
    ]);
    expect(await client.sessions.get({ sessionId: 's' })).toMatchObject({ status: 'idle' });
    expect(actInputs).toEqual([]);
  });
});
