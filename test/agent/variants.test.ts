// One suite for both variants: each entry of the client package against an agent of its variant. It
// calls every operation of the entry and validates each answer by the variant's contract.
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createAgentClient } from '@townhall/agent';
import { createAgentClient as createClassicClient } from '@townhall/agent/classic';
import { startAgent, type TestAgent } from '../support/agent.ts';
import { calls, says, scriptedGateway, type ScriptedGateway } from '../support/scripted-gateway.ts';
import { collect, holdAnswer } from '../support/session-world.ts';

type Client = ReturnType<typeof createAgentClient>;
type Classic = ReturnType<typeof createClassicClient>;

let gateway: ScriptedGateway;
let folder: string;
beforeAll(async () => {
  gateway = await scriptedGateway();
  folder = await mkdtemp(join(tmpdir(), 'townhall-variants-'));
  await writeFile(
    join(folder, 'plugins.json'),
    JSON.stringify({ services: { clock: { command: ['/bin/sh', '-c', 'echo tick; exec sleep 300'] } } }),
  );
});
afterAll(async () => {
  await gateway.close();
  await rm(folder, { recursive: true, force: true });
});

/** Wraps the client and records the name of each called operation. */
function recordCalls<Services extends object>(
  client: Services,
): { client: Services; called: Set<string>; all: string[] } {
  const calledOperations = new Set<string>();
  const all: string[] = [];
  const services = Object.entries(
    client as Record<string, Record<string, (...parameters: unknown[]) => unknown>>,
  ).map(([service, operations]) => {
    const methods = Object.entries(operations).map(([name, method]) => {
      all.push(`${service}.${name}`);
      return [
        name,
        (...args: unknown[]) => (calledOperations.add(`${service}.${name}`), method(...args)),
      ] as const;
    });
    return [service, Object.fromEntries(methods)] as const;
  });
  return { client: Object.fromEntries(services) as unknown as Services, called: calledOperations, all };
}

describe.each([
  { variant: 'current', entry: '@townhall/agent' },
  { variant: 'classic', entry: '@townhall/agent/classic' },
] as const)('the entry $entry against --variant $variant', ({ variant }) => {
  let agent: TestAgent;
  let calledOperations: Set<string>;
  let all: string[];
  // The part that both entries share; the plugin operations differ and use each entry's own type.
  let client: Client;
  let classic: Classic;

  beforeAll(async () => {
    agent = await startAgent({
      gatewayUrl: gateway.url,
      variant,
      model: 'local/echo',
      settings: { pluginConfig: join(folder, 'plugins.json'), drainMs: 0 },
    });
    const options = { baseUrl: agent.url, token: agent.token };
    const recorder =
      variant === 'classic'
        ? recordCalls(createClassicClient(options))
        : recordCalls(createAgentClient(options));
    ({ called: calledOperations, all } = recorder);
    client = recorder.client as Client;
    classic = recorder.client as Classic;
  });
  afterAll(() => agent.close());

  test('answers health and status', async () => {
    expect(await client.status.getHealth()).toMatchObject({ status: 'ok' });
    expect(await client.status.getStatus()).toMatchObject({
      name: agent.name,
      status: 'running',
      variant,
      version: '0.1.0',
    });
  });

  test('serves the document of its variant and a Link to it', async () => {
    const { info, paths } = await client.status.getDocument();
    expect(info['title']).toBe(variant === 'classic' ? 'Townhall agent, classic variant' : 'Townhall agent');
    expect(Object.hasOwn(paths, '/api/plugins/catalog')).toBe(variant === 'current');
    const { headers } = await agent.fetch('/health');
    expect(headers.get('link')).toContain('</openapi.json>; rel="service-desc"');
  });

  test('executes in a new session, a chat and a dashboard session', async () => {
    gateway.answer(() => says('Done.'));
    expect(await client.sessions.execute({ instructions: 'Do it.' })).toMatchObject({
      success: true,
      queued: false,
      text: 'Done.',
    });
    const receipt = await client.chat.sendMessage({ chatId: 'room', text: 'Hello.' });
    expect(receipt).toMatchObject({ success: true, queued: true, serviceName: 'chat' });
    expect(
      await client.sessions.executeInSession({ sessionId: receipt.sessionId, instructions: 'And this.' }),
    ).toMatchObject({ success: true, queued: true });
    await collect(client.sessions.follow({ sessionId: receipt.sessionId, until: 'idle' }));
  });

  test('serves every operation of a session', async () => {
    const slowAnswer = holdAnswer();
    gateway.answer(() => slowAnswer.answer);
    await client.sessions.create({ id: 's', title: 'First', attended: true });
    const { runId } = await client.sessions.prompt({ sessionId: 's', text: 'Wait for me.' });
    await slowAnswer.request;
    const waitingInput = await client.sessions.prompt({ sessionId: 's', text: 'Later.' });
    expect((await client.sessions.listQueue({ sessionId: 's' })).items).toMatchObject([
      { runId: waitingInput.runId, queuePosition: 1 },
    ]);
    await client.sessions.removeQueueItem({ sessionId: 's', queueItemId: waitingInput.queueItemId ?? '' });
    expect(await client.sessions.cancel({ sessionId: 's' })).toMatchObject({ cancelled: [runId] });
    expect(await client.sessions.getRun({ sessionId: 's', runId })).toMatchObject({ status: 'cancelled' });

    gateway.answer((request) =>
      request.prompt.at(-1)?.role === 'tool'
        ? says('It said yes.')
        : calls({ name: 'shell_run', input: { command: 'echo yes' } }),
    );
    const pendingAnswer = await client.sessions.prompt({ sessionId: 's', text: 'Ask me.' });
    const events = await collect(
      client.sessions.follow({ sessionId: 's', after: pendingAnswer.seq }),
      (event) => event.type === 'approval.requested',
    );
    const { items } = await client.sessions.listApprovals({ sessionId: 's', status: 'pending' });
    expect(events.at(-1)).toMatchObject({ approvalId: items[0]?.approvalId });
    expect(
      await client.sessions.decideApproval({
        sessionId: 's',
        approvalId: items[0]?.approvalId ?? '',
        decision: 'approve',
      }),
    ).toMatchObject({ status: 'approved' });
    await collect(client.sessions.follow({ sessionId: 's', until: 'idle' }));
    const messages = await client.sessions.listMessages({ sessionId: 's' });
    expect(messages.items.at(-1)).toMatchObject({ role: 'assistant', metadata: { finishReason: 'stop' } });
    expect((await client.sessions.getSystem({ sessionId: 's' })).tools.map(({ name }) => name)).toContain(
      'files_read',
    );

    gateway.answer(() => says('Again.'));
    const answer = await client.sessions.regenerate({ sessionId: 's' });
    await collect(
      client.sessions.followAll({ after: 0 }),
      (event) => event.type === 'run.settled' && event.runId === answer.runId,
    );
    await expect(
      client.sessions.getAttachment({ sessionId: 's', attachmentId: 'att_none' }),
    ).rejects.toMatchObject({ status: 404, code: 'attachment_not_found' });

    const fork = await client.sessions.fork({ sessionId: 's', messageId: messages.items[0]?.id ?? '' });
    if (!('id' in fork)) throw new Error('It was not a dry run.');
    expect(fork).toMatchObject({ parentSessionId: 's', messageCount: 1 });
    gateway.answer(() => says('In short: yes.'));
    await client.sessions.compact({ sessionId: 's' });
    await collect(client.sessions.follow({ sessionId: 's', until: 'idle' }));
    expect(await client.sessions.update({ sessionId: 's', title: 'Second', archived: true })).toMatchObject({
      title: 'Second',
      archivedAt: expect.any(String),
    });
    expect((await client.sessions.list({ archived: true })).items.map(({ id }) => id)).toEqual(['s']);
    await client.sessions.remove({ sessionId: fork.id });
    await expect(client.sessions.get({ sessionId: fork.id })).rejects.toMatchObject({
      status: 404,
      code: 'session_not_found',
    });
  });

  test('undoes and redoes the file changes of a run', async () => {
    gateway.answer((request) =>
      request.prompt.at(-1)?.role === 'tool'
        ? says('Written.')
        : calls({ name: 'files_write', input: { path: 'new.txt', content: 'new' } }),
    );
    await client.sessions.create({ id: 'u' });
    const wait = { headers: { prefer: 'wait=60' } };
    const { runId } = await client.sessions.prompt({ sessionId: 'u', text: 'Write.' }, wait);
    const run = { sessionId: 'u', runId };
    expect(await client.sessions.getChanges(run)).toMatchObject({ files: [{ path: 'new.txt' }] });
    expect(await client.sessions.undoRun(run)).toMatchObject({ status: 'undone' });
    expect(await client.sessions.redoRun(run)).toMatchObject({ status: 'applied' });
    await client.sessions.remove({ sessionId: 'u' });
  });

  test('serves the plugin routes under its own member names', async () => {
    const summaries =
      variant === 'classic' ? await classic.plugins.listPlugins() : await client.plugins.listCatalog();
    expect(summaries.plugins).toEqual((await client.ui.listPlugins()).plugins);
    const files = { enabled: true, available: true, reasons: [] };
    if (variant === 'classic') {
      expect(await classic.plugins.checkAvailability({ pluginName: 'files' })).toEqual({
        success: true,
        pluginName: 'files',
        availability: files,
      });
      expect(
        await classic.plugins.callAction({
          pluginName: 'files',
          actionName: 'write',
          payload: { path: 'a.txt', content: 'x' },
        }),
      ).toMatchObject({ success: true, pluginName: 'files', actionName: 'write' });
    } else {
      expect((await client.plugins.listPlugins()).plugins).toContainEqual(
        expect.objectContaining({ name: 'files', state: 'ready' }),
      );
      expect(await client.plugins.checkAvailability({ plugin_name: 'files' })).toEqual({
        success: true,
        plugin_name: 'files',
        availability: files,
      });
      expect(
        await client.plugins.callAction({
          plugin_name: 'files',
          action_name: 'write',
          payload: { path: 'a.txt', content: 'x' },
        }),
      ).toMatchObject({ success: true, plugin_name: 'files', action_name: 'write' });
    }
  });

  test('serves every operation of services', async () => {
    expect((await client.services.listServices()).services.map(({ name }) => name)).toEqual([
      'chat',
      'clock',
    ]);
    await expect
      .poll(
        async () => (await client.services.callCommand({ serviceName: 'clock', command: 'output' })).result,
      )
      .toMatchObject({ text: 'tick\n' });
    expect(await client.services.controlService({ serviceName: 'clock', action: 'stop' })).toMatchObject({
      changed: true,
      service: { state: 'stopped' },
    });
    await expect(
      client.services.callCommand({ serviceName: 'clock', command: 'output' }),
    ).rejects.toMatchObject({ status: 503, code: 'service_stopped' });
    expect(await client.services.controlService({ serviceName: 'clock', action: 'start' })).toMatchObject({
      changed: true,
      service: { state: 'running' },
    });
    await expect(
      client.services.callAction({ serviceName: 'clock', actionName: 'nothing' }),
    ).rejects.toMatchObject({ status: 404, code: 'action_not_found' });
  });

  test('serves every operation of permissions', async () => {
    const rule = { tool: 'shell', pattern: 'npm test', effect: 'allow' as const };
    const { permissionId } = await client.permissions.create(rule);
    expect((await client.permissions.list()).items).toContainEqual(
      expect.objectContaining({ permissionId, ...rule }),
    );
    await client.permissions.remove({ permissionId });
    expect((await client.permissions.list()).items).not.toContainEqual(
      expect.objectContaining({ permissionId }),
    );
  });

  test('refuses the form of the other variant', async () => {
    const options = { baseUrl: agent.url, token: agent.token };
    if (variant === 'classic')
      await expect(createAgentClient(options).plugins.listCatalog()).rejects.toMatchObject({
        status: 404,
        code: 'route_not_found',
      });
    await expect(
      variant === 'classic'
        ? createAgentClient(options).plugins.callAction({ plugin_name: 'files', action_name: 'list' })
        : createClassicClient(options).plugins.callAction({ pluginName: 'files', actionName: 'list' }),
    ).rejects.toMatchObject({ status: 400, code: 'invalid_request' });
  });

  test('calls every operation of the entry', () => {
    expect([...calledOperations].sort()).toEqual(all.sort());
  });
});
