// Approvals: who decides them, when they expire, and that no tool runs without one.
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { definePlugin } from '../../../src/agent/plugins/index.ts';
import { calls, says } from '../../support/scripted-gateway.ts';
import { collect, openWorld, type World } from '../../support/session-world.ts';

describe('sessions.decideApproval', () => {
  let world: World;
  let calledWith: string[] = [];
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
        run: async ({ what }) => void calledWith.push(what),
      },
    },
  });
  beforeAll(async () => {
    world = await openWorld();
  });
  afterEach(async () => {
    calledWith = [];
    await world.reset();
  });
  afterAll(() => world.close());

  const start = async (settings: object = {}) => {
    world.gateway.answer((_, index) =>
      index === 0 ? calls({ name: 'careful_act', input: { what: 'it' } }) : says('So be it.'),
    );
    return world.start({ createOptions: { plugins: [approvalPlugin] }, settings });
  };

  test.each([
    ['approve', ['it'], 'approved'],
    ['deny', [], 'denied'],
  ] as const)('waits for a person who may %s', async (decision, expected, status) => {
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
    expect(calledWith).toEqual([]);
    const approvalId = items[0]?.approvalId as string;
    const approval = await client.sessions.decideApproval({
      sessionId: 's',
      approvalId,
      decision,
      reason: 'Because.',
    });
    expect(approval).toMatchObject({ status, decidedBy: expect.stringMatching(/^tok_/) });
    expect(await client.sessions.decideApproval({ sessionId: 's', approvalId, decision })).toMatchObject({
      status,
    });
    await expect(
      client.sessions.decideApproval({
        sessionId: 's',
        approvalId,
        decision: decision === 'deny' ? 'approve' : 'deny',
      }),
    ).rejects.toMatchObject({ status: 409, code: 'approval_settled' });
    await collect(client.sessions.follow({ sessionId: 's', until: 'idle' }));
    expect(calledWith).toEqual(expected);
    if (decision === 'deny') expect(JSON.stringify(world.gateway.requests[1]?.prompt)).toContain('Because.');
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
    expect(calledWith).toEqual([]);
  });

  test.each([
    ['deny', 'denied', []],
    ['approve', 'approved', ['it']],
  ] as const)(
    'lets the policy %s decide at once where no person attends',
    async (unattendedApprovals, status, expected) => {
      const { client } = await start({ unattendedApprovals });
      const { sessionId } = await client.sessions.execute({ instructions: 'Act.' });
      expect((await client.sessions.listApprovals({ sessionId })).items).toMatchObject([
        { status, decidedBy: 'policy', expiresAt: null },
      ]);
      expect(calledWith).toEqual(expected);
    },
  );

  test('denies the approval of a cancelled run', async () => {
    const { client } = await start();
    await client.sessions.create({ id: 's', attended: true });
    await client.sessions.prompt({ sessionId: 's', text: 'Act.' });
    await collect(client.sessions.follow({ sessionId: 's' }), (event) => event.type === 'approval.requested');
    await client.sessions.cancel({ sessionId: 's' });
    expect((await client.sessions.listApprovals({ sessionId: 's' })).items).toMatchObject([
      { status: 'denied', decidedBy: 'run' },
    ]);
    expect(await client.sessions.get({ sessionId: 's' })).toMatchObject({ status: 'idle' });
    expect(calledWith).toEqual([]);
  });
});
