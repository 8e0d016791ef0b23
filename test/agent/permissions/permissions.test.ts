// Permission rules in an agent: from the configuration, from the API, and from the answer to an approval.
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
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

/** Prompts an attended session for a command, and decides its approval. */
async function decideOnce(agent: TestAgent, sessionId: string, input: object, answer: object): Promise<void> {
  world.gateway.answer((request) =>
    request.prompt.at(-1)?.role === 'tool' ? says('Done.') : calls({ name: 'shell_run', input }),
  );
  await agent.client.sessions.prompt({ sessionId, text: 'Do it.' });
  await expect
    .poll(async () => (await agent.client.sessions.get({ sessionId })).status)
    .toBe('requires_action');
  const { items } = await agent.client.sessions.listApprovals({ sessionId, status: 'pending' });
  const approvalId = items[0]?.approvalId ?? '';
  await agent.client.sessions.decideApproval({ sessionId, approvalId, ...answer } as never);
  await collect(agent.client.sessions.follow({ sessionId, until: 'idle' }));
}

describe('rules of the configuration', () => {
  test('allow matching commands and request approval for others', async () => {
    const agent = await startConfigured([{ tool: 'shell', pattern: 'echo yes*', effect: 'allow' }]);
    await agent.client.sessions.create({ id: 's' });
    expect(await run(agent, 's', 'echo yes && echo yes too')).toContain('yes too');
    expect(await run(agent, 's', 'echo yes; echo no')).toContain('needs an approval');
    expect(await run(agent, 's', 'echo yes $(echo no)')).toContain('needs an approval');
  });

  test('allow a command in its own folder and without standard input only', async () => {
    const agent = await startConfigured([{ tool: 'shell', pattern: 'sh', effect: 'allow' }]);
    await mkdir(join(agent.workspace, 'web'));
    await agent.client.sessions.create({ id: 's' });
    const runIn = (more: object) => callTool(agent, 's', 'shell_run', { command: 'sh', ...more });
    expect(await runIn({ folder: './' })).toContain('exitCode');
    expect(await runIn({ input: '' })).toContain('exitCode');
    expect(await runIn({ folder: 'web' })).toContain('needs an approval');
    expect(await runIn({ input: 'echo evil' })).toContain('needs an approval');
    await agent.client.permissions.create({ tool: 'shell.folder', pattern: 'web', effect: 'allow' });
    expect(await runIn({ folder: 'web' })).toContain('exitCode');
    expect(await runIn({ folder: 'web', input: 'echo evil' })).toContain('needs an approval');
    await agent.client.permissions.create({ tool: 'shell.input', pattern: 's*', effect: 'allow' });
    expect(await runIn({ folder: 'web', input: 'echo yes' })).toContain('yes');
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

  test('end at their time', async () => {
    const agent = await startConfigured([{ tool: 'shell', effect: 'allow', expiresAt: '2020-01-01' }]);
    await agent.client.sessions.create({ id: 's' });
    expect(await run(agent, 's', 'echo yes')).toContain('needs an approval');
    expect(await agent.client.permissions.list()).toEqual({ items: [] });
  });

  test('are listed and cannot be removed', async () => {
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
    const created = await agent.client.permissions.create(rule);
    expect(created).toMatchObject({ ...rule, scope: 'session', source: 'grant', expiresAt: null });
    expect(await run(agent, 'one', 'echo yes')).toContain('yes');
    expect(await run(agent, 'two', 'echo yes')).toContain('needs an approval');
    expect((await agent.client.permissions.list({ sessionId: 'two' })).items).toEqual([]);
    await agent.client.sessions.remove({ sessionId: 'one' });
    expect((await agent.client.permissions.list()).items).toEqual([]);
  });

  test('updates the expiry of an equal rule', async () => {
    const agent = await world.start();
    const first = await agent.client.permissions.create({ tool: 'files.write', effect: 'deny' });
    const second = await agent.client.permissions.create({
      tool: 'files.write',
      effect: 'deny',
      expiresInMs: 60_000,
    });
    expect(second.permissionId).toBe(first.permissionId);
    expect(second.expiresAt).not.toBeNull();
  });

  test('expires a rule after its time', async () => {
    const agent = await world.start();
    await agent.client.sessions.create({ id: 's' });
    await agent.client.permissions.create({ tool: 'shell', effect: 'allow', expiresInMs: 1_000 });
    await expect.poll(async () => (await agent.client.permissions.list()).items).toEqual([]);
    expect(await run(agent, 's', 'echo yes')).toContain('needs an approval');
  });

  test('refuses an unknown session and an impossible tool name', async () => {
    const agent = await world.start();
    await expect(
      agent.client.permissions.create({ tool: 'shell', effect: 'allow', sessionId: 'absent' }),
    ).rejects.toMatchObject({ status: 404, code: 'session_not_found' });
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
    await decideOnce(agent, 's', { command: 'echo a; echo b*' }, { decision: 'approve', scope: 'session' });
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
    await decideOnce(
      agent,
      's',
      { command: 'echo a' },
      { decision: 'approve', scope: 'project', pattern: 'echo *' },
    );
    expect(await run(agent, 'other', 'echo b')).toContain('b');
    expect(await run(agent, 'other', 'pwd')).toContain('needs an approval');
  });

  test.each([{ folder: 'web' }, { input: 'echo a' }])(
    'grants nothing for a command with %j',
    async (more) => {
      const agent = await world.start();
      await mkdir(join(agent.workspace, 'web'));
      await agent.client.sessions.create({ id: 's', attended: true });
      await decideOnce(agent, 's', { command: 'sh', ...more }, { decision: 'approve', scope: 'session' });
      expect((await agent.client.permissions.list()).items).toEqual([]);
    },
  );

  test('turns a denial into a rule too', async () => {
    const agent = await world.start();
    await agent.client.sessions.create({ id: 's', attended: true });
    await decideOnce(agent, 's', { command: 'echo a' }, { decision: 'deny', scope: 'session' });
    expect(await run(agent, 's', 'echo a')).toContain('refuses the call');
  });

  test('grants nothing for a single call', async () => {
    const agent = await world.start();
    await agent.client.sessions.create({ id: 's', attended: true });
    await decideOnce(agent, 's', { command: 'echo a' }, { decision: 'approve' });
    expect((await agent.client.permissions.list()).items).toEqual([]);
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

  test('lets the model read its notes, its schedules and outputs that were removed', async () => {
    const agent = await world.start();
    await agent.client.sessions.create({ id: 's', mode: 'plan' });
    expect(await callTool(agent, 's', 'memory_list', {})).toContain('notes');
    expect(await callTool(agent, 's', 'schedule_list', {})).toContain('schedules');
    expect(await callTool(agent, 's', 'context_read', { seq: 1 })).toContain('There is no output');
  });

  test('allows them again after a change to work', async () => {
    const agent = await startConfigured([{ tool: 'shell', effect: 'allow' }]);
    await agent.client.sessions.create({ id: 's', mode: 'plan' });
    expect(await agent.client.sessions.update({ sessionId: 's', mode: 'work' })).toMatchObject({
      mode: 'work',
    });
    expect(await run(agent, 's', 'echo yes')).toContain('yes');
  });
});
