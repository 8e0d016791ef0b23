// One suite for both variants: each entry of the client package against an agent of its variant, which
// validates its answers against the contract. The last test requires that every operation was called.
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
): { client: Services; calledOperations: Set<string>; allOperations: string[] } {
  const calledOperations = new Set<string>();
  const allOperations: string[] = [];
  const services = Object.entries(
    client as Record<string, Record<string, (...parameters: unknown[]) => unknown>>,
  ).map(([service, operations]) => {
    const methods = Object.entries(operations).map(([name, method]) => {
      allOperations.push(`${service}.${name}`);
      return [
        name,
        (...args: unknown[]) => (calledOperations.add(`${service}.${name}`), method(...args)),
      ] as const;
    });
    return [service, Object.fromEntries(methods)] as const;
  });
  return { client: Object.fromEntries(services) as unknown as Services, calledOperations, allOperations };
}

describe.each([
  { variant: 'current', entry: '@townhall/agent' },
  { variant: 'classic', entry: '@townhall/agent/classic' },
] as const)('the entry $entry against --variant $variant', ({ variant }) => {
  let agent: TestAgent;
  let calledOperations: Set<string>;
  let allOperations: string[];
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
    ({ calledOperations, allOperations } = recorder);
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

  test('serves the document of its variant', async () => {
    const { info, paths } = await client.status.getDocument();
    expect(info['title']).toBe(variant === 'classic' ? 'Townhall agent, classic variant' : 'Townhall agent');
    expect(Object.hasOwn(paths, '/api/plugins/catalog')).toBe(variant === 'current');
  });

  test('links to its document', async () => {
    const { headers } = await agent.fetch('/health');
    expect(headers.get('link')).toContain('</openapi.json>; rel="service-desc"');
  });

  test('executes instructions in a new session and in a chat', async () => {
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

  test('queues and cancels inputs of a session', async () => {
    const slowAnswer = holdAnswer();
    gateway.answer(() => slowAnswer.answer);
    await client.sessions.create({ id: 'queue' });
    const session = { sessionId: 'queue' };
    const { runId } = await client.sessions.prompt({ ...session, text: 'Wait for me.' });
    await slowAnswer.request;
    const waitingInput = await client.sessions.prompt({ ...session, text: 'Later.' });
    expect((await client.sessions.listQueue(session)).items).toMatchObject([
      { runId: waitingInput.runId, queuePosition: 1 },
    ]);
    await client.sessions.removeQueueItem({ ...session, queueItemId: waitingInput.queueItemId ?? '' });
    expect(await client.sessions.cancel(session)).toMatchObject({ cancelled: [runId] });
    expect(await client.sessions.getRun({ ...session, runId })).toMatchObject({ status: 'cancelled' });
  });

  test('requests and decides approvals', async () => {
    gateway.answer((request) =>
      request.prompt.at(-1)?.role === 'tool'
        ? says('It said yes.')
        : calls({ name: 'shell_run', input: { command: 'echo yes' } }),
    );
    const session = { sessionId: 'approvals' };
    await client.sessions.create({ id: 'approvals', attended: true });
    await client.sessions.prompt({ ...session, text: 'Do it.' });
    const events = await collect(
      client.sessions.follow(session),
      (event) => event.type === 'approval.requested',
    );
    const { items } = await client.sessions.listApprovals({ ...session, status: 'pending' });
    const approvalId = items[0]?.approvalId ?? '';
    expect(events.at(-1)).toMatchObject({ approvalId });
    expect(
      await client.sessions.decideApproval({ ...session, approvalId, decision: 'approve' }),
    ).toMatchObject({ status: 'approved' });
    await collect(client.sessions.follow({ ...session, until: 'idle' }));
    const messages = await client.sessions.listMessages(session);
    expect(messages.items.at(-1)).toMatchObject({ role: 'assistant', metadata: { finishReason: 'stop' } });
  });

  test('regenerates, forks and compacts a conversation', async () => {
    gateway.answer(() => says('Done.'));
    const session = { sessionId: 'conversation' };
    const wait = { headers: { prefer: 'wait=60' } };
    await client.sessions.create({ id: 'conversation' });
    await client.sessions.prompt({ ...session, text: 'Do it.' }, wait);
    expect((await client.sessions.getSystem(session)).tools.map(({ name }) => name)).toContain('files_read');
    const answer = await client.sessions.regenerate(session);
    await collect(
      client.sessions.followAll({ after: 0 }),
      (event) => event.type === 'run.settled' && event.runId === answer.runId,
    );
    const { items } = await client.sessions.listMessages(session);
    const fork = await client.sessions.fork({ ...session, messageId: items[0]?.id ?? '' });
    expect(fork).toMatchObject({ parentSessionId: 'conversation', messageCount: 1 });
    const { runId } = await client.sessions.compact(session);
    await collect(client.sessions.follow({ ...session, until: 'idle' }));
    expect(await client.sessions.getRun({ ...session, runId })).toMatchObject({ status: 'completed' });
  });

  test('archives, lists and removes sessions', async () => {
    const session = { sessionId: 'archive' };
    await client.sessions.create({ id: 'archive', title: 'First' });
    expect(await client.sessions.update({ ...session, title: 'Second', archived: true })).toMatchObject({
      title: 'Second',
      archivedAt: expect.any(String),
    });
    expect((await client.sessions.list({ archived: true })).items.map(({ id }) => id)).toEqual(['archive']);
    await client.sessions.remove(session);
    await expect(client.sessions.get(session)).rejects.toMatchObject({
      status: 404,
      code: 'session_not_found',
    });
  });

  test('answers 404 for an unknown attachment', async () => {
    await client.sessions.create({ id: 'attachments' });
    const attachment = { sessionId: 'attachments', attachmentId: 'att_none' };
    await expect(client.sessions.getAttachment(attachment)).rejects.toMatchObject({
      status: 404,
      code: 'attachment_not_found',
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

  test.runIf(variant === 'classic')('has no catalog of plugins', async () => {
    const current = createAgentClient({ baseUrl: agent.url, token: agent.token });
    await expect(current.plugins.listCatalog()).rejects.toMatchObject({
      status: 404,
      code: 'route_not_found',
    });
  });

  test('refuses the member names of the other variant', async () => {
    const options = { baseUrl: agent.url, token: agent.token };
    await expect(
      variant === 'classic'
        ? createAgentClient(options).plugins.callAction({ plugin_name: 'files', action_name: 'list' })
        : createClassicClient(options).plugins.callAction({ pluginName: 'files', actionName: 'list' }),
    ).rejects.toMatchObject({ status: 400, code: 'invalid_request' });
  });

  test('calls every operation of the entry', () => {
    expect([...calledOperations].toSorted()).toEqual(allOperations.toSorted());
  });
});
