// Permission rules in an agent: from the configuration, from the API, and from the answer to an approval.
import { mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import type { AgentClient, SessionEvent } from '@townhall/agent';
import { definePlugin } from '../../../src/agent/plugins/index.ts';
import type { TestAgent } from '../../support/agent.ts';
import { calls, says, toolResults } from '../../support/scripted-gateway.ts';
import { collect, openWorld, type World } from '../../support/session-world.ts';

let world: World;
let folder: string;
beforeAll(async () => {
  world = await openWorld();
  folder = await mkdtemp(join(tmpdir(), 'townhall-permissions-'));
});
afterEach(() => world.reset());
afterAll(async () => {
  await world.close();
  await rm(folder, { recursive: true, force: true });
});

/** The result that the model gets for one call in a session. */
async function callTool(agent: TestAgent, sessionId: string, name: string, input: object): Promise<string> {
  world.gateway.answer((request) =>
    request.prompt.at(-1)?.role === 'tool' ? says('Done.') : calls({ name, input }),
  );
  await agent.client.sessions.prompt({ sessionId, text: 'Do it.' }, { headers: { prefer: 'wait=30' } });
  const request = world.gateway.requests.at(-1);
  return JSON.stringify(request === undefined ? null : toolResults(request).at(-1)?.output);
}

const run = (agent: TestAgent, sessionId: string, command: string) =>
  callTool(agent, sessionId, 'shell_run', { command });

async function startConfigured(permissions: object[]): Promise<TestAgent> {
  const pluginConfig = join(folder, 'plugins.json');
  await writeFile(pluginConfig, JSON.stringify({ permissions }));
  return world.start({ settings: { pluginConfig } });
}

type Decision = Omit<Parameters<AgentClient['sessions']['decideApproval']>[0], 'sessionId' | 'approvalId'>;

/** Prompts the attended session `s` for a call, decides its approval, and returns all events. */
async function decideCall(
  { client }: TestAgent,
  call: { name: string; input: object },
  decision: Decision,
  beforeDecision: () => Promise<unknown> = async () => {},
): Promise<SessionEvent[]> {
  const sessionId = 's';
  world.gateway.answer((request) => (request.prompt.at(-1)?.role === 'tool' ? says('Done.') : calls(call)));
  await client.sessions.prompt({ sessionId, text: 'Do it.' });
  await expect.poll(async () => (await client.sessions.get({ sessionId })).status).toBe('requires_action');
  const { items } = await client.sessions.listApprovals({ sessionId, status: 'pending' });
  await beforeDecision();
  await client.sessions.decideApproval({ sessionId, approvalId: items[0]?.approvalId ?? '', ...decision });
  return collect(client.sessions.follow({ sessionId, until: 'idle' }));
}

const shellCall = (command: string, members: object = {}) => ({
  name: 'shell_run',
  input: { command, ...members },
});

describe('rules of the configuration', () => {
  test('allow matching commands and request approval for others', async () => {
    const agent = await startConfigured([{ tool: 'shell', pattern: 'echo yes*', effect: 'allow' }]);
    await agent.client.sessions.create({ id: 's' });
    expect(await run(agent, 's', 'echo yes && echo yes too')).toContain('yes too');
    expect(await run(agent, 's', 'echo yes; echo no')).toContain('needs an approval');
    expect(await run(agent, 's', 'echo yes $(echo no)')).toContain('needs an approval');
  });

  describe('for a command with a folder or standard input', () => {
    /** Runs `sh`, which a rule allows, with further members of the input. */
    async function startShell() {
      const agent = await startConfigured([{ tool: 'shell', pattern: 'sh', effect: 'allow' }]);
      await mkdir(join(agent.workspace, 'web'));
      await agent.client.sessions.create({ id: 's' });
      const runWith = (members: object) => callTool(agent, 's', 'shell_run', { command: 'sh', ...members });
      return { permissions: agent.client.permissions, runWith };
    }

    test.each([{ folder: './' }, { input: '' }])('allow it with %j', async (members) => {
      const { runWith } = await startShell();
      expect(await runWith(members)).toContain('exitCode');
    });

    test.each([{ folder: 'web' }, { input: 'echo evil' }])('request approval with %j', async (members) => {
      const { runWith } = await startShell();
      expect(await runWith(members)).toContain('needs an approval');
    });

    test('need a further rule for each', async () => {
      const { permissions, runWith } = await startShell();
      await permissions.create({ tool: 'shell.folder', pattern: 'web', effect: 'allow' });
      expect(await runWith({ folder: 'web' })).toContain('exitCode');
      expect(await runWith({ folder: 'web', input: 'echo yes' })).toContain('needs an approval');
      // The pattern matches the command that reads the input, which is `sh`.
      await permissions.create({ tool: 'shell.input', pattern: 's*', effect: 'allow' });
      expect(await runWith({ folder: 'web', input: 'echo yes' })).toContain('yes');
    });
  });

  test('deny or require approval where the tool itself would not', async () => {
    const agent = await startConfigured([
      { tool: 'files.read', pattern: 'private/**', effect: 'deny' },
      { tool: 'files.write', pattern: 'docs/**', effect: 'ask' },
    ]);
    await agent.client.sessions.create({ id: 's' });
    expect(await callTool(agent, 's', 'files_read', { path: 'private/x' })).toContain('refuses the call');
    expect(await callTool(agent, 's', 'files_write', { path: 'docs/x', content: '' })).toContain(
      'needs an approval',
    );
    expect(await callTool(agent, 's', 'files_write', { path: 'src/x', content: '' })).toContain('created');
  });

  test('keep a search and a listing out of the paths that they forbid', async () => {
    const agent = await startConfigured([{ tool: 'files', pattern: 'private/**', effect: 'deny' }]);
    await mkdir(join(agent.workspace, 'private'));
    await writeFile(join(agent.workspace, 'private', 'x'), 'a secret');
    await agent.client.sessions.create({ id: 's' });
    expect(await callTool(agent, 's', 'files_search', { text: 'a' })).toContain('needs an approval');
    for (const [name, input] of [
      ['files_search', { text: 'a', path: 'private' }],
      ['files_list', { path: 'private' }],
    ] as const)
      expect(await callTool(agent, 's', name, input)).toContain('refuses the call');
  });

  test('expire at their time', async () => {
    const agent = await startConfigured([{ tool: 'shell', effect: 'allow', expiresAt: '2020-01-01' }]);
    await agent.client.sessions.create({ id: 's' });
    expect(await run(agent, 's', 'echo yes')).toContain('needs an approval');
    expect(await agent.client.permissions.list()).toEqual({ items: [] });
  });

  test.each(['2026-02-30', '2026-13-01', '2026-01-01T25:00:00Z', '2026-01-01T::Z'])(
    'refuse the impossible time %s',
    async (expiresAt) => {
      await expect(startConfigured([{ tool: 'shell', effect: 'deny', expiresAt }])).rejects.toThrow(
        `permissions[0].expiresAt is "${expiresAt}"`,
      );
    },
  );

  test.each(['2099-02-28', '2099-12-31T23:59:59.999Z', '2099-01-01T00:00Z'])(
    'accept the time %s',
    async (expiresAt) => {
      const agent = await startConfigured([{ tool: 'shell', effect: 'deny', expiresAt }]);
      expect((await agent.client.permissions.list()).items).toMatchObject([{ effect: 'deny' }]);
    },
  );

  test('are listed but not removable', async () => {
    const agent = await startConfigured([{ tool: 'shell', pattern: 'ls *', effect: 'deny' }]);
    expect((await agent.client.permissions.list()).items).toMatchObject([
      {
        permissionId: 'config-1',
        tool: 'shell',
        pattern: 'ls *',
        effect: 'deny',
        scope: 'project',
        source: 'config',
      },
    ]);
    await expect(agent.client.permissions.remove({ permissionId: 'config-1' })).rejects.toMatchObject({
      status: 409,
      code: 'permission_configured',
    });
  });
});

describe('permissions.create', () => {
  test('adds a rule for one session alone', async () => {
    const agent = await world.start();
    await agent.client.sessions.create({ id: 'one' });
    await agent.client.sessions.create({ id: 'two' });
    const rule = { tool: 'shell', pattern: 'echo *', effect: 'allow', sessionId: 'one' } as const;
    const grantedRule = await agent.client.permissions.create(rule);
    expect(grantedRule).toMatchObject({ ...rule, scope: 'session', source: 'grant', expiresAt: null });
    expect(await run(agent, 'one', 'echo yes')).toContain('yes');
    expect(await run(agent, 'two', 'echo yes')).toContain('needs an approval');
    expect((await agent.client.permissions.list({ sessionId: 'two' })).items).toEqual([]);
    // The rule is removed with its session.
    await agent.client.sessions.remove({ sessionId: 'one' });
    expect((await agent.client.permissions.list()).items).toEqual([]);
  });

  test('updates the expiry of an equal rule', async () => {
    const agent = await world.start();
    const rule = { tool: 'files.write', effect: 'allow' } as const;
    const firstRule = await agent.client.permissions.create(rule);
    const secondRule = await agent.client.permissions.create({ ...rule, expiresInMs: 60_000 });
    expect(secondRule.permissionId).toBe(firstRule.permissionId);
    expect(secondRule.expiresAt).not.toBeNull();
  });

  test('never shortens a rule that denies', async () => {
    const agent = await world.start();
    const rule = { tool: 'files.write', effect: 'deny' } as const;
    const create = async (expiresInMs?: number) => {
      const { expiresAt } = await agent.client.permissions.create({
        ...rule,
        ...(expiresInMs === undefined ? {} : { expiresInMs }),
      });
      return expiresAt;
    };
    const firstExpiry = await create(600_000);
    expect(await create(60_000)).toBe(firstExpiry);
    expect(Date.parse((await create(6_000_000)) ?? '')).toBeGreaterThan(Date.parse(firstExpiry ?? ''));
    expect(await create()).toBeNull();
    expect(await create(60_000)).toBeNull();
  });

  test('deletes expired rules', async () => {
    const agent = await world.start();
    await agent.client.permissions.create({ tool: 'memory', effect: 'deny', expiresInMs: 1_000 });
    await expect.poll(async () => (await agent.client.permissions.list()).items).toEqual([]);
    await agent.client.permissions.create({ tool: 'shell', effect: 'deny' });
    const rows = await agent.sql`select tool from agent.permissions_rules where tool in ('memory', 'shell')
      and agent_id in (select agent_id from agent.tokens_agents where name = ${agent.name})`;
    expect(rows.map((row) => row['tool'] as string)).toEqual(['shell']);
  });

  test('expires a rule at its time', async () => {
    const agent = await world.start();
    await agent.client.sessions.create({ id: 's' });
    await agent.client.permissions.create({ tool: 'shell', effect: 'allow', expiresInMs: 1_000 });
    await expect.poll(async () => (await agent.client.permissions.list()).items).toEqual([]);
    expect(await run(agent, 's', 'echo yes')).toContain('needs an approval');
  });

  test('refuses an unknown session', async () => {
    const agent = await world.start();
    await expect(
      agent.client.permissions.create({ tool: 'shell', effect: 'allow', sessionId: 'absent' }),
    ).rejects.toMatchObject({ status: 404, code: 'session_not_found' });
  });

  test('refuses an impossible tool name', async () => {
    const agent = await world.start();
    await expect(agent.client.permissions.create({ tool: 'Shell!', effect: 'allow' })).rejects.toMatchObject({
      status: 400,
    });
  });
});

describe('permissions.remove', () => {
  test('ends a rule at once', async () => {
    const agent = await world.start();
    await agent.client.sessions.create({ id: 's' });
    const { permissionId } = await agent.client.permissions.create({ tool: 'shell', effect: 'allow' });
    expect(await run(agent, 's', 'echo yes')).toContain('yes');
    await agent.client.permissions.remove({ permissionId });
    expect(await run(agent, 's', 'echo yes')).toContain('needs an approval');
  });

  test('refuses a rule that is removed already', async () => {
    const agent = await world.start();
    const { permissionId } = await agent.client.permissions.create({ tool: 'shell', effect: 'allow' });
    await agent.client.permissions.remove({ permissionId });
    await expect(agent.client.permissions.remove({ permissionId })).rejects.toMatchObject({
      status: 404,
      code: 'permission_not_found',
    });
  });
});

describe('sessions.decideApproval', () => {
  test('allows exactly the same commands for the session', async () => {
    const agent = await world.start();
    await agent.client.sessions.create({ id: 's', attended: true });
    await decideCall(agent, shellCall('echo a; echo b*'), { decision: 'approve', scope: 'session' });
    await agent.client.sessions.update({ sessionId: 's', attended: false });
    expect(await run(agent, 's', 'echo b*')).toContain('b*');
    expect(await run(agent, 's', 'echo a && echo a')).toContain(String.raw`a\na`);
    expect(await run(agent, 's', 'echo bx')).toContain('needs an approval');
    expect((await agent.client.permissions.list({ sessionId: 's' })).items).toMatchObject([
      { tool: 'shell.run', pattern: 'echo a', effect: 'allow', scope: 'session', sessionId: 's' },
      { tool: 'shell.run', pattern: String.raw`echo b\*`, effect: 'allow', scope: 'session', sessionId: 's' },
    ]);
  });

  test('allows a pattern in all sessions of the project', async () => {
    const agent = await world.start();
    await agent.client.sessions.create({ id: 's', attended: true });
    await agent.client.sessions.create({ id: 'other' });
    await decideCall(agent, shellCall('echo a'), {
      decision: 'approve',
      scope: 'project',
      pattern: 'echo *',
    });
    expect(await run(agent, 'other', 'echo printed')).toContain('printed');
    expect(await run(agent, 'other', 'pwd')).toContain('needs an approval');
  });

  test.each([{ folder: 'web' }, { input: 'echo a' }])(
    'grants nothing for a command with %j',
    async (members) => {
      const agent = await world.start();
      await mkdir(join(agent.workspace, 'web'));
      await agent.client.sessions.create({ id: 's', attended: true });
      await decideCall(agent, shellCall('sh', members), { decision: 'approve', scope: 'session' });
      expect((await agent.client.permissions.list()).items).toEqual([]);
    },
  );

  test('turns a denial into a rule too', async () => {
    const agent = await world.start();
    await agent.client.sessions.create({ id: 's', attended: true });
    await decideCall(agent, shellCall('echo a'), { decision: 'deny', scope: 'session' });
    expect(await run(agent, 's', 'echo a')).toContain('refuses the call');
  });

  test('grants nothing for a single call', async () => {
    const agent = await world.start();
    await agent.client.sessions.create({ id: 's', attended: true });
    await decideCall(agent, shellCall('echo a'), { decision: 'approve' });
    expect((await agent.client.permissions.list()).items).toEqual([]);
  });
});

describe('a plugin whose permission function fails', () => {
  const input = { type: 'object', additionalProperties: true };
  const run = async () => 'it ran';
  const brokenPlugin = definePlugin({
    name: 'broken',
    title: 'Broken',
    description: 'Fails.',
    actions: {
      throws: {
        description: 'Throws.',
        input,
        run,
        permissions() {
          throw new Error('a fault');
        },
      },
      rejects: {
        description: 'Rejects.',
        input,
        run,
        permissions: () => Promise.reject(new Error('a fault')),
      },
      hangs: { description: 'Hangs.', input, run, permissions: () => new Promise<never>(() => {}) },
      object: { description: 'Returns no list.', input, run, permissions: () => ({ path: 1 }) as never },
      number: { description: 'Returns no text.', input, run, permissions: () => [{ path: 1 }] as never },
    },
  });

  test.each([
    ['throws', 'throws'],
    ['rejects', 'rejects'],
    ['never resolves', 'hangs'],
    ['returns no list', 'object'],
    ['returns a path that is no text', 'number'],
  ])('requests an approval when it %s', async (_failure, action) => {
    const agent = await world.start({ createOptions: { plugins: [brokenPlugin] } });
    await agent.client.sessions.create({ id: 's' });
    await agent.client.permissions.create({ tool: 'broken', effect: 'allow' });
    expect(await callTool(agent, 's', `broken_${action}`, {})).toContain('needs an approval');
    const events = await collect(agent.client.sessions.follow({ sessionId: 's', until: 'idle' }));
    expect(events.filter(({ type }) => type === 'run.warning')).toMatchObject([
      { code: 'plugin_failed', message: expect.stringContaining('"broken"') as string },
    ]);
    expect(events.find(({ type }) => type === 'run.settled')).toMatchObject({ outcome: 'completed' });
  });

  test('gets no rule when its call is approved for the session', async () => {
    const agent = await world.start({ createOptions: { plugins: [brokenPlugin] } });
    await agent.client.sessions.create({ id: 's', attended: true });
    const call = { name: 'broken_throws', input: {} };
    const events = await decideCall(agent, call, { decision: 'approve', scope: 'session' });
    expect(events.find(({ type }) => type === 'tool.output')).toMatchObject({ output: 'it ran' });
    expect((await agent.client.permissions.list()).items).toEqual([]);
  });

  test('is denied by a rule for the action', async () => {
    const agent = await world.start({ createOptions: { plugins: [brokenPlugin] } });
    await agent.client.sessions.create({ id: 's' });
    await agent.client.permissions.create({ tool: 'broken', effect: 'deny' });
    expect(await callTool(agent, 's', 'broken_throws', {})).toContain('refuses the call');
  });

  test('is not called when its check of the input throws', async () => {
    const check = () => {
      throw new Error('a fault');
    };
    const actions = { act: { description: 'Acts.', input, run, check } };
    const uncheckedPlugin = definePlugin({ name: 'unchecked', title: 'Unchecked', description: '', actions });
    const agent = await world.start({ createOptions: { plugins: [uncheckedPlugin] } });
    await agent.client.sessions.create({ id: 's' });
    expect(await callTool(agent, 's', 'unchecked_act', {})).toContain('could not be checked');
  });

  test('falls under the rules for the action when it names another right', async () => {
    const actions = { act: { description: 'Acts.', input, run, permissions: () => [{ right: 'other' }] } };
    const evadingPlugin = definePlugin({ name: 'evading', title: 'Evading', description: '', actions });
    const agent = await world.start({ createOptions: { plugins: [evadingPlugin] } });
    await agent.client.sessions.create({ id: 's' });
    await agent.client.permissions.create({ tool: 'evading', effect: 'deny' });
    expect(await callTool(agent, 's', 'evading_act', {})).toContain('refuses the call');
  });
});

describe('a session in plan mode', () => {
  test('refuses tools that may write, whatever the rules say', async () => {
    const agent = await startConfigured([{ tool: '*', effect: 'allow' }]);
    await agent.client.sessions.create({ id: 's', mode: 'plan' });
    expect(await run(agent, 's', 'echo yes')).toContain('only plans');
    expect(await callTool(agent, 's', 'files_write', { path: 'x', content: '' })).toContain('only plans');
    expect(await callTool(agent, 's', 'files_list', {})).toContain('entries');
  });

  test('lets the model read notes, schedules and removed outputs', async () => {
    const agent = await world.start();
    await agent.client.sessions.create({ id: 's', mode: 'plan' });
    expect(await callTool(agent, 's', 'memory_list', {})).toContain('notes');
    expect(await callTool(agent, 's', 'schedule_list', {})).toContain('schedules');
    expect(await callTool(agent, 's', 'context_read', { seq: 1 })).toContain('There is no output');
  });

  test('refuses a call that was approved after the mode changed', async () => {
    const agent = await world.start();
    await agent.client.sessions.create({ id: 's', attended: true });
    const events = await decideCall(agent, shellCall('touch new.txt'), { decision: 'approve' }, () =>
      agent.client.sessions.update({ sessionId: 's', mode: 'plan' }),
    );
    expect(events.some((event) => event.type === 'tool.output')).toBe(false);
    expect(events.find((event) => event.type === 'tool.denied')).toMatchObject({
      reason: expect.stringContaining('only plans') as string,
    });
    expect(await readdir(agent.workspace)).toEqual([]);
  });

  test('allows these tools again after a change to work', async () => {
    const agent = await startConfigured([{ tool: 'shell', effect: 'allow' }]);
    await agent.client.sessions.create({ id: 's', mode: 'plan' });
    expect(await agent.client.sessions.update({ sessionId: 's', mode: 'work' })).toMatchObject({
      mode: 'work',
    });
    expect(await run(agent, 's', 'echo yes')).toContain('yes');
  });
});
