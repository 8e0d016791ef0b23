// The service `chat` in both variants: it queues messages while it runs and refuses them while it
// is stopped.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startAgent, type TestAgent } from '../../support/agent.ts';
import { says, scriptedGateway, type ScriptedGateway } from '../../support/scripted-gateway.ts';

describe.each(['current', 'classic'] as const)('the service chat of the %s variant', (variant) => {
  let gateway: ScriptedGateway;
  let agent: TestAgent;
  beforeAll(async () => {
    gateway = await scriptedGateway();
    gateway.answer(() => says('Soup.'));
    agent = await startAgent({ gatewayUrl: gateway.url, variant });
  });
  afterAll(async () => {
    await agent.close();
    await gateway.close();
  });

  test('queues the messages of a chat in one session', async () => {
    const firstAnswer = await agent.client.chat.sendMessage({
      chatId: 'family',
      text: 'What is for dinner?',
      attachments: [
        { type: 'document', fileName: 'a.md', contentType: 'text/markdown', content: '# Larder' },
      ],
    });
    expect(firstAnswer).toMatchObject({
      success: true,
      serviceName: 'chat',
      queued: true,
      queuePosition: 0,
      queueItemId: expect.stringMatching(/^(qit|run)_/),
    });
    const secondAnswer = await agent.client.chat.sendMessage({ chatId: 'family', text: 'And tomorrow?' });
    expect(secondAnswer.sessionId).toBe(firstAnswer.sessionId);
    expect(secondAnswer.seq).toBeGreaterThan(firstAnswer.seq);
    await expect.poll(() => gateway.requests.length).toBe(2);
    expect(JSON.stringify(gateway.requests[1]?.prompt)).toContain('What is for dinner?');
  });

  test('refuses messages only while it is stopped', async () => {
    await agent.client.services.controlService({ serviceName: 'chat', action: 'stop' });
    const requestCount = gateway.requests.length;
    await expect(agent.client.chat.sendMessage({ chatId: 'family', text: 'Hello?' })).rejects.toMatchObject({
      status: 503,
      code: 'service_stopped',
    });
    await agent.client.services.controlService({ serviceName: 'chat', action: 'start' });
    expect(gateway.requests.length).toBe(requestCount);
    expect(await agent.client.chat.sendMessage({ chatId: 'other', text: 'Hello!' })).toMatchObject({
      queued: true,
      queuePosition: 0,
    });
  });

  test.each([
    {},
    { chatId: 'a' },
    { chatId: 'a b', text: 'x' },
    { chatId: 'a', text: '' },
    { chatId: 'a', text: 'x', more: 1 },
  ])('refuses %j', async (message) => {
    await expect(agent.client.chat.sendMessage(message as never)).rejects.toMatchObject({ status: 400 });
  });
});
