// Access to the agent's HTTP server: in both variants its health check, hosts, paths and bodies, then
// allowed hosts and origins, and the token file. test/agent/tokens/authentication.test.ts checks that
// each route requires a token.
import { chmod, mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { parseToken, createToken } from '../../src/kernel/secrets/secret.ts';
import { startAgent, type TestAgent } from '../support/agent.ts';
import { testDatabase, type TestDatabase } from '../support/databases.ts';
import { says, scriptedGateway, type ScriptedGateway } from '../support/scripted-gateway.ts';
import { rawRequest, sendBytes } from '../support/raw-http.ts';

let testData: TestDatabase;
let gateway: ScriptedGateway;
beforeAll(async () => {
  testData = await testDatabase();
  gateway = await scriptedGateway();
  gateway.answer(() => says('Done.'));
});
afterAll(async () => {
  await gateway.close();
  await testData.close();
});

describe.each(['current', 'classic'] as const)('the %s variant', (variant) => {
  let agent: TestAgent;
  beforeAll(async () => {
    agent = await startAgent({
      gatewayUrl: gateway.url,
      database: testData.database,
      variant,
      name: `mine-${variant}`,
    });
  });
  afterAll(async () => {
    await agent.close();
  });

  const bearer = (token: string) => ({ authorization: `Bearer ${token}` });

  test('answers a health check without a token with only a status and a time', async () => {
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

  test.each(['bearer', 'BEARER'])('accepts the scheme %s', async (scheme) => {
    const { status } = await agent.fetch('/api/status', {
      headers: { authorization: `${scheme} ${agent.token}` },
    });
    expect(status).toBe(200);
  });

  test('refuses HTTP/1.0 without a Host', async () => {
    expect(await sendBytes(Number(new URL(agent.url).port), 'GET /health HTTP/1.0\r\n\r\n')).toMatch(
      /^HTTP\/1\.1 403 /,
    );
  });

  test.each(['127.0.0.1', 'localhost', 'LocalHost', '[::1]'])('answers under the host %s', async (name) => {
    const { port } = new URL(agent.url);
    expect((await rawRequest(agent.url, 'GET', '/health', [['Host', `${name}:${port}`]])).status).toBe(200);
  });

  test('answers its own origin', async () => {
    const { port } = new URL(agent.url);
    const sameOrigin = await rawRequest(agent.url, 'GET', '/health', [
      ['Host', `localhost:${port}`],
      ['Origin', `http://localhost:${port}`],
      ['Sec-Fetch-Site', 'same-origin'],
    ]);
    expect([sameOrigin.status, sameOrigin.headers['access-control-allow-origin']]).toEqual([200, undefined]);
  });

  test('shows the links of / without a token', async () => {
    const response = await agent.fetch('/', { headers: { accept: 'text/html' } });
    const html = await response.text();
    expect([response.status, html.includes('href="/openapi.json"')]).toEqual([200, true]);
    expect(html).not.toContain(agent.token);
    const links = { openapi: '/openapi.json', health: '/health' };
    expect(await (await agent.fetch('/')).json()).toMatchObject({ name: 'Townhall agent', links });
  });

  test('refuses an unknown path', async () => {
    const response = await agent.fetch('/nowhere', { headers: bearer(agent.token) });
    expect([response.status, await response.json()]).toMatchObject([
      404,
      { success: false, error: { code: 'route_not_found' } },
    ]);
  });

  test('names the allowed methods when it refuses one', async () => {
    const response = await agent.fetch('/api/execute', { headers: bearer(agent.token) });
    expect([response.status, response.headers.get('allow'), await response.json()]).toMatchObject([
      405,
      expect.stringContaining('POST'),
      { success: false, error: { code: 'method_not_allowed' } },
    ]);
  });

  test.each([
    ['another media type', '{"instructions":"a"}', 'text/plain', 415],
    ['truncated JSON', '{"instructions":', 'application/json', 400],
    ['a list', '[]', 'application/json', 400],
    ['a member twice', '{"instructions":"a","instructions":"b"}', 'application/json', 400],
    [
      'more than 16 MiB',
      JSON.stringify({ instructions: 'a'.repeat(17 * 1024 * 1024) }),
      'application/json',
      413,
    ],
  ])('refuses a body of %s', async (_form, body, type, status) => {
    const response = await agent.fetch('/api/execute', {
      method: 'POST',
      headers: { ...bearer(agent.token), 'content-type': type },
      body,
    });
    expect(response.status).toBe(status);
  });
});

describe('an agent with an allowed host and origin', () => {
  let agent: TestAgent;
  beforeAll(async () => {
    const settings = { allowHost: ['agent.internal:8443'], allowOrigin: ['http://localhost:3000'] };
    agent = await startAgent({
      gatewayUrl: gateway.url,
      database: testData.database,
      name: 'allowing',
      settings,
    });
  });
  afterAll(() => agent.close());

  const health = (headers: [string, string][]) => rawRequest(agent.url, 'GET', '/health', headers);
  const ownHost = (): [string, string] => ['Host', new URL(agent.url).host];

  test('answers this host only with this port', async () => {
    expect((await health([['Host', 'agent.internal:8443']])).status).toBe(200);
    expect((await health([['Host', 'agent.internal']])).status).toBe(403);
  });

  test('lets a page of this origin read the answer', async () => {
    const { status, headers } = await health([
      ownHost(),
      ['Origin', 'http://localhost:3000'],
      ['Sec-Fetch-Site', 'cross-site'],
    ]);
    expect([status, headers['access-control-allow-origin']]).toEqual([200, 'http://localhost:3000']);
  });

  test('refuses an origin that only begins with the allowed one', async () => {
    expect((await health([ownHost(), ['Origin', 'http://localhost:30000']])).status).toBe(403);
  });
});

describe('the token file', () => {
  let dataDir: string;
  let agents: TestAgent[];
  beforeEach(async () => {
    agents = [];
    dataDir = await mkdtemp(join(tmpdir(), 'townhall-tokens-'));
  });
  afterEach(async () => {
    for (const agent of agents) await agent.close();
    await rm(dataDir, { recursive: true, force: true });
  });

  async function start(name: string): Promise<TestAgent> {
    const agent = await startAgent({ gatewayUrl: gateway.url, database: testData.database, dataDir, name });
    agents.push(agent);
    return agent;
  }

  async function stop(agent: TestAgent): Promise<void> {
    agents.splice(agents.indexOf(agent), 1);
    await agent.close();
  }

  const statusOf = async (agent: TestAgent, token: string) =>
    (await agent.fetch('/api/status', { headers: { authorization: `Bearer ${token}` } })).status;

  test('has an agent token that only its owner can read', async () => {
    const agent = await start('new');
    const text = await readFile(agent.tokenFile, 'utf8');
    expect(text).toBe(`${agent.token}\n`);
    expect(parseToken(agent.token)).toBe('agt');
    expect((await stat(agent.tokenFile)).mode & 0o777).toBe(0o600);
  });

  test('keeps its token across a restart', async () => {
    const firstAgent = await start('restarted');
    await stop(firstAgent);
    const secondAgent = await start('restarted');
    expect(secondAgent.token).toBe(firstAgent.token);
    expect(await statusOf(secondAgent, firstAgent.token)).toBe(200);
  });

  test('has the plain token, while the database has only a digest', async () => {
    const { token } = await start('digested');
    const rows = await testData.database.sql`select * from agent.tokens_tokens`;
    expect(rows.map(({ last4 }) => last4 as string)).toContain(token.slice(-4));
    expect(JSON.stringify(rows)).not.toContain(token);
  });

  test('adds its token to a database without it', async () => {
    const token = createToken('agt');
    const firstAgent = await start('rotated');
    await stop(firstAgent);
    await writeFile(firstAgent.tokenFile, `${token}\n`);
    const agent = await start('rotated');
    expect(await statusOf(agent, token)).toBe(200);
  });

  test('becomes readable only for its owner at a start', async () => {
    const firstAgent = await start('narrowed');
    await stop(firstAgent);
    await chmod(firstAgent.tokenFile, 0o644);
    const agent = await start('narrowed');
    expect((await stat(agent.tokenFile)).mode & 0o777).toBe(0o600);
  });

  test('replaces a revoked token at the next start', async () => {
    const agent = await start('revoked');
    expect(await statusOf(agent, agent.token)).toBe(200);
    await testData.database
      .sql`update agent.tokens_tokens set revoked_at = now() where last4 = ${agent.token.slice(-4)}`;
    await expect.poll(() => statusOf(agent, agent.token), { interval: 50 }).toBe(401);
    await stop(agent);
    const restartedAgent = await start('revoked');
    expect(restartedAgent.token).not.toBe(agent.token);
    expect([
      await statusOf(restartedAgent, restartedAgent.token),
      await statusOf(restartedAgent, agent.token),
    ]).toEqual([200, 401]);
  });

  test('stops the start of another agent', async () => {
    await stop(await start('owner'));
    await expect(start('other')).rejects.toThrow(/belongs to another agent/);
  });

  test('stops the start when its content is not a token', async () => {
    const agent = await start('overwritten');
    await stop(agent);
    await writeFile(agent.tokenFile, 'my shopping list\n');
    await expect(start('overwritten')).rejects.toThrow(/does not contain an agent's token/);
    expect(await readFile(agent.tokenFile, 'utf8')).toBe('my shopping list\n');
  });
});
