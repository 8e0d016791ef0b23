// Access to the agent's HTTP server in both variants: host names, origins, bodies and the token
// file. test/agent/tokens/authentication.test.ts covers every route.
import { chmod, mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { parseToken, createToken } from '../../src/kernel/secrets/secret.ts';
import { startAgent, type TestAgent } from '../support/agent.ts';
import { testDatabase, type TestDatabase } from '../support/databases.ts';
import { says, scriptedGateway, type ScriptedGateway } from '../support/scripted-gateway.ts';
import { rawRequest, sendBytes } from '../support/raw-http.ts';

let world: TestDatabase;
let gateway: ScriptedGateway;
beforeAll(async () => {
  world = await testDatabase();
  gateway = await scriptedGateway();
  gateway.answer(() => says('Done.'));
});
afterAll(async () => {
  await gateway.close();
  await world.close();
});

describe.each(['current', 'classic'] as const)('the %s variant', (variant) => {
  let agent: TestAgent;
  beforeAll(async () => {
    agent = await startAgent({
      gatewayUrl: gateway.url,
      database: world.database,
      variant,
      name: `mine-${variant}`,
    });
  });
  afterAll(async () => {
    await agent.close();
  });

  const bearer = (token: string) => ({ authorization: `Bearer ${token}` });

  test('answers a health check without a token by status and time alone', async () => {
    const response = await agent.fetch('/health');
    const body = (await response.json()) as Record<string, unknown>;
    expect(response.status).toBe(200);
    expect(body).toEqual({
      status: 'ok',
      timestamp: expect.stringMatching(/^\d{4}-\d\d-\d\dT[\d:]+\.\d{3}Z$/),
    });
    expect((await agent.fetch('/health', { headers: bearer('nonsense') })).status).toBe(200);
  });

  test('accepts its own token', async () => {
    expect(await agent.client.status.getStatus()).toMatchObject({
      name: `mine-${variant}`,
      status: 'running',
    });
    expect(await agent.client.sessions.execute({ instructions: 'Speak.' })).toMatchObject({
      success: true,
      text: 'Done.',
    });
  });

  test('accepts the bearer scheme in any letter case', async () => {
    const { status } = await agent.fetch('/api/status', {
      headers: { authorization: `bearer ${agent.token}` },
    });
    expect(status).toBe((await agent.fetch('/api/status', { headers: bearer(agent.token) })).status);
    expect(status).not.toBe(401);
  });

  test('refuses HTTP/1.0 without a Host', async () => {
    expect(await sendBytes(Number(new URL(agent.url).port), 'GET /health HTTP/1.0\r\n\r\n')).toMatch(
      /^HTTP\/1\.1 403 /,
    );
  });

  test('answers under each loopback name and to its own origin', async () => {
    const { port } = new URL(agent.url);
    for (const name of ['127.0.0.1', 'localhost', 'LocalHost', '[::1]']) {
      expect((await rawRequest(agent.url, 'GET', '/health', [['Host', `${name}:${port}`]])).status).toBe(200);
    }
    const sameOrigin = await rawRequest(agent.url, 'GET', '/health', [
      ['Host', `localhost:${port}`],
      ['Origin', `http://localhost:${port}`],
      ['Sec-Fetch-Site', 'same-origin'],
    ]);
    expect([sameOrigin.status, sameOrigin.headers['access-control-allow-origin']]).toEqual([200, undefined]);
  });

  test('shows a guest the links of / and no secret', async () => {
    const response = await agent.fetch('/', { headers: { accept: 'text/html' } });
    const html = await response.text();
    expect([response.status, html.includes('href="/openapi.json"')]).toEqual([200, true]);
    expect(html).not.toContain(agent.token);
    const links = { openapi: '/openapi.json', health: '/health' };
    expect(await (await agent.fetch('/')).json()).toMatchObject({ name: 'Townhall agent', links });
  });

  test('refuses unknown paths and wrong methods', async () => {
    const unknownAnswer = await agent.fetch('/nowhere', { headers: bearer(agent.token) });
    expect([unknownAnswer.status, await unknownAnswer.json()]).toMatchObject([
      404,
      { success: false, error: { code: 'route_not_found' } },
    ]);
    const response = await agent.fetch('/api/execute', { headers: bearer(agent.token) });
    expect([response.status, response.headers.get('allow'), await response.json()]).toMatchObject([
      405,
      expect.stringContaining('POST'),
      { success: false, error: { code: 'method_not_allowed' } },
    ]);
  });

  test('refuses bodies other than one JSON object of the contract', async () => {
    const post = (body: string, type = 'application/json') =>
      agent.fetch('/api/execute', {
        method: 'POST',
        headers: { ...bearer(agent.token), 'content-type': type },
        body,
      });
    expect((await post('{"instructions":"a"}', 'text/plain')).status).toBe(415);
    expect((await post('{"instructions":')).status).toBe(400);
    expect((await post('[]')).status).toBe(400);
    expect((await post('{"instructions":"a","instructions":"b"}')).status).toBe(400);
    expect((await post(JSON.stringify({ instructions: 'a'.repeat(17 * 1024 * 1024) }))).status).toBe(413);
  });
});

test('an agent answers the allowed host and origin only', async () => {
  const settings = { allowHost: ['agent.internal:8443'], allowOrigin: ['http://localhost:3000'] };
  const agent = await startAgent({
    gatewayUrl: gateway.url,
    database: world.database,
    name: 'allowing',
    settings,
  });
  try {
    expect((await rawRequest(agent.url, 'GET', '/health', [['Host', 'agent.internal:8443']])).status).toBe(
      200,
    );
    expect((await rawRequest(agent.url, 'GET', '/health', [['Host', 'agent.internal']])).status).toBe(403);
    const { host } = new URL(agent.url);
    const allowedResponse = await rawRequest(agent.url, 'GET', '/health', [
      ['Host', host],
      ['Origin', 'http://localhost:3000'],
      ['Sec-Fetch-Site', 'cross-site'],
    ]);
    expect([allowedResponse.status, allowedResponse.headers['access-control-allow-origin']]).toEqual([
      200,
      'http://localhost:3000',
    ]);
    expect(
      (
        await rawRequest(agent.url, 'GET', '/health', [
          ['Host', host],
          ['Origin', 'http://localhost:30000'],
        ])
      ).status,
    ).toBe(403);
  } finally {
    await agent.close();
  }
});

describe('the token file', () => {
  let folder: string;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'townhall-tokens-'));
  });
  afterAll(() => rm(folder, { recursive: true, force: true }));
  const start = (dataDir: string, name: string) =>
    startAgent({ gatewayUrl: gateway.url, database: world.database, dataDir: join(folder, dataDir), name });
  const statusOf = async (agent: TestAgent, token: string) =>
    (await agent.fetch('/api/status', { headers: { authorization: `Bearer ${token}` } })).status;

  test('keeps the token for its owner alone across a restart', async () => {
    const firstAgent = await start('a', 'keeper');
    expect((await stat(firstAgent.tokenFile)).mode & 0o777).toBe(0o600);
    const text = await readFile(firstAgent.tokenFile, 'utf8');
    expect([text, parseToken(text.trim())]).toEqual([`${firstAgent.token}\n`, 'agt']);
    await firstAgent.close();
    const secondAgent = await start('a', 'keeper');
    expect(secondAgent.token).toBe(firstAgent.token);
    expect(await statusOf(secondAgent, firstAgent.token)).toBe(200);
    await secondAgent.close();
    const rows = await world.database.sql`select * from agent.tokens_tokens`;
    expect(JSON.stringify(rows)).not.toContain(firstAgent.token);
  });

  test('adds its token to a database without it', async () => {
    const token = createToken('agt');
    const firstAgent = await start('b', 'adopter');
    await firstAgent.close();
    await writeFile(firstAgent.tokenFile, `${token}\n`);
    await chmod(firstAgent.tokenFile, 0o644);
    const agent = await start('b', 'adopter');
    expect(await statusOf(agent, token)).toBe(200);
    expect((await stat(agent.tokenFile)).mode & 0o777).toBe(0o600);
    await agent.close();
  });

  test('replaces a revoked token at the next start', async () => {
    const agent = await start('c', 'revoker');
    expect(await statusOf(agent, agent.token)).toBe(200);
    await world.database
      .sql`update agent.tokens_tokens set revoked_at = now() where last4 = ${agent.token.slice(-4)}`;
    // Other tests share the machine, so the poll gets five seconds.
    await expect.poll(() => statusOf(agent, agent.token), { timeout: 5_000, interval: 50 }).toBe(401);
    await agent.close();
    const restartedAgent = await start('c', 'revoker');
    expect(restartedAgent.token).not.toBe(agent.token);
    expect([
      await statusOf(restartedAgent, restartedAgent.token),
      await statusOf(restartedAgent, agent.token),
    ]).toEqual([200, 401]);
    await restartedAgent.close();
  });

  test('stops the start when its content is no token', async () => {
    const agent = await start('d', 'owner');
    await agent.close();
    await expect(start('d', 'thief')).rejects.toThrow(/belongs to another agent/);
    await writeFile(agent.tokenFile, 'my shopping list\n');
    await expect(start('d', 'owner')).rejects.toThrow(/does not contain an agent's token/);
    expect(await readFile(agent.tokenFile, 'utf8')).toBe('my shopping list\n');
  });
});
