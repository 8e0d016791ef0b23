// The agent client in both variants.

import { readFileSync } from 'node:fs';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { createAgentClient as createClassicClient } from '../../clients/agent/src/classic.ts';
import { AgentError, createAgentClient } from '../../clients/agent/src/index.ts';
import { GatewayError } from '../../clients/gateway/src/index.ts';
import { problem, type ScriptedServer, sendJson, startScriptedServer } from './scripted-server.ts';

let server: ScriptedServer;
beforeAll(async () => {
  server = await startScriptedServer();
});
afterEach(() => server.requests.splice(0));
afterAll(() => server.close());

describe.each([
  { variant: 'agent', create: createAgentClient },
  { variant: 'agent-classic', create: createClassicClient },
])('the client of $variant', ({ variant, create }) => {
  const connect = () => create({ baseUrl: server.baseUrl, token: () => 'th_agt_x' });

  test('has exactly the operations of its contract', () => {
    const bundle = JSON.parse(
      readFileSync(new URL(`../../src/contract/${variant}/bundle.json`, import.meta.url), 'utf8'),
    ) as { paths: Record<string, Record<string, { operationId?: string }>> };
    const operationIds = Object.values(bundle.paths).flatMap((path) =>
      Object.values(path).flatMap(({ operationId }) => operationId ?? []),
    );
    const methods = Object.entries(connect()).flatMap(([service, operations]) =>
      Object.keys(operations).map((name) => `${service}.${name}`),
    );
    expect(operationIds).toContain('sessions.execute');
    expect(methods.toSorted()).toEqual(operationIds.toSorted());
  });

  test('executes instructions and reads the status with its token', async () => {
    server.script((request, response) =>
      sendJson(
        response,
        200,
        request.url === '/api/status' ? { name: 'ada' } : { success: true, text: 'Done.' },
      ),
    );
    expect(await connect().sessions.execute({ instructions: 'List the files.' })).toMatchObject({
      text: 'Done.',
    });
    expect(await connect().status.getStatus()).toEqual({ name: 'ada' });
    expect(server.requests).toMatchObject([
      {
        method: 'POST',
        url: '/api/execute',
        json: { instructions: 'List the files.' },
        headers: { authorization: 'Bearer th_agt_x' },
      },
      { method: 'GET', url: '/api/status', headers: { authorization: 'Bearer th_agt_x' } },
    ]);
  });

  test('throws an AgentError without a retry', async () => {
    server.script((_request, response) =>
      sendJson(response, 401, {
        success: false,
        ...(problem('authentication_error', 'invalid_token') as object),
      }),
    );
    const error: unknown = await connect()
      .sessions.execute({ instructions: 'x' })
      .catch((cause: unknown) => cause);
    expect(error).toMatchObject({
      name: 'AgentError',
      status: 401,
      code: 'invalid_token',
      type: 'authentication_error',
      requestId: 'req_body',
      retryable: false,
    });
    expect(AgentError.isInstance(error)).toBe(true);
    expect(GatewayError.isInstance(error)).toBe(false);
    expect(server.requests).toHaveLength(1);
  });
});
