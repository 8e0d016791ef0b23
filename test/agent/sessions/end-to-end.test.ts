// End to end: an agent, a real gateway, and the model `local/echo`, which follows directives in its prompt.
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startAgent, type TestAgent } from '../../support/agent.ts';
import { startGateway, type GatewayWorld } from '../../support/gateway.ts';

describe.each(['current', 'classic'] as const)('sessions.execute through the gateway, %s', (variant) => {
  let gateway: GatewayWorld;
  let agent: TestAgent;
  beforeAll(async () => {
    gateway = await startGateway();
    agent = await startAgent({
      gatewayUrl: gateway.url,
      gatewayToken: gateway.userToken,
      model: 'local/echo',
      variant,
    });
  });
  afterAll(async () => {
    await agent.close();
    await gateway.close();
  });

  test('answers with the result of an executed tool call', async () => {
    const input = { path: 'letters/first.txt', content: 'Good morning' };
    const result = await agent.client.sessions.execute({
      instructions: `@tool files_write ${JSON.stringify(input)}\nWrite the letter.`,
    });
    expect(result).toMatchObject({ success: true, finishReason: 'stop', message: { role: 'assistant' } });
    expect('text' in result && result.text).toContain('letters/first.txt');
    expect('usage' in result && result.usage.outputTokens).toBeGreaterThan(0);
    expect(await readFile(join(agent.workspace, 'letters/first.txt'), 'utf8')).toBe('Good morning');
  });

  test('answers both tool calls of one step', async () => {
    await writeFile(join(agent.workspace, 'second.txt'), 'Good evening');
    const result = await agent.client.sessions.execute({
      instructions: '@tool files_list {}\n@tool files_read {"path":"second.txt"}\nLook.',
    });
    const tools =
      'message' in result ? result.message.parts.filter((part) => part.type === 'dynamic-tool') : [];
    expect(tools).toMatchObject([
      { toolName: 'files_list', state: 'output-available' },
      { toolName: 'files_read', state: 'output-available', output: { content: 'Good evening' } },
    ]);
  });

  test('answers 404 for an unknown model', async () => {
    await expect(
      agent.client.sessions.execute({ instructions: 'Speak.', model: 'acme/none' }),
    ).rejects.toMatchObject({ status: 404, code: 'model_not_found' });
  });

  test('answers 502 for a model that fails', async () => {
    await expect(
      agent.client.sessions.execute({ instructions: '@fail-after\nSpeak.' }),
    ).rejects.toMatchObject({ status: 502 });
  });

  test('answers 502 when the gateway refuses the agent’s token', async () => {
    const refusedAgent = await startAgent({
      gatewayUrl: gateway.url,
      gatewayToken: 'th_usr_unknown',
      model: 'local/echo',
      variant,
      database: agent.database,
      name: 'refused',
    });
    try {
      await expect(refusedAgent.client.sessions.execute({ instructions: 'Speak.' })).rejects.toMatchObject({
        status: 502,
        code: 'provider_credentials',
      });
    } finally {
      await refusedAgent.close();
    }
  });
});
