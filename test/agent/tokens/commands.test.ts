// `townhall agent token …` and `townhall agent call`, beside a running agent and without one.
import { mkdtemp, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { connect } from '../../../src/kernel/data/database.ts';
import { parseToken } from '../../../src/kernel/secrets/secret.ts';
import { runInProcess } from '../../cli/in-process.ts';
import { startAgent, type TestAgent } from '../../support/agent.ts';
import { databaseFlags, silentLog, testDatabase, type TestDatabase } from '../../support/databases.ts';
import { scriptedGateway, type ScriptedGateway } from '../../support/scripted-gateway.ts';

async function run(...args: string[]): Promise<{ output: string[]; errors: string[] }> {
  const { code, ...lines } = await runInProcess(['agent', ...args]);
  expect(code).toBe(0);
  return lines;
}

async function runForJson<Result>(...args: string[]): Promise<Result> {
  return JSON.parse((await run(...args, '--json')).output[0] ?? '') as Result;
}

let gateway: ScriptedGateway;
beforeAll(async () => {
  gateway = await scriptedGateway();
});
afterAll(() => gateway.close());

const statusOf = async (agent: TestAgent, token: string) =>
  (await agent.fetch('/api/status', { headers: { authorization: `Bearer ${token}` } })).status;

describe('townhall agent token with a running agent', () => {
  let agent: TestAgent;
  let flags: string[];
  beforeAll(async () => {
    agent = await startAgent({ gatewayUrl: gateway.url });
    flags = ['--data-dir', agent.dataDir];
  });
  afterAll(() => agent.close());

  test('has a control socket that only its owner may use', async () => {
    expect((await stat(join(agent.dataDir, 'control.sock'))).mode & 0o777).toBe(0o600);
  });

  async function createToken(name: string): Promise<{ token: string; tokenId: string }> {
    const { output, errors } = await run('token', 'create', name, ...flags);
    const tokenId = /Its id is (tok_\w+)/.exec(errors[0] ?? '')?.[1] ?? '';
    return { token: output[0] ?? '', tokenId };
  }

  test('creates a token that the agent accepts at once', async () => {
    const { token } = await createToken('laptop');
    expect([parseToken(token), await statusOf(agent, token)]).toEqual(['agt', 200]);
  });

  test('lists tokens without showing them', async () => {
    const { token, tokenId } = await createToken('laptop');
    const listing = await runForJson<{ items: Record<string, unknown>[] }>('token', 'list', ...flags);
    expect(listing.items.find((item) => item['tokenId'] === tokenId)).toMatchObject({
      name: 'laptop',
      state: 'live',
      expiresAt: null,
      last4: token.slice(-4),
    });
    expect(JSON.stringify(listing)).not.toContain(token);
  });

  test('revokes one token', async () => {
    const { token, tokenId } = await createToken('laptop');
    expect(await runForJson('token', 'revoke', tokenId, ...flags)).toEqual({ tokenId, revoked: true });
    await expect.poll(() => statusOf(agent, token), { interval: 20 }).toBe(401);
    expect(await runForJson('token', 'revoke', tokenId, ...flags)).toEqual({ tokenId, revoked: false });
    expect(await statusOf(agent, agent.token)).toBe(200);
  });

  test('creates a token that expires', async () => {
    const startedMs = Date.now();
    const args = ['token', 'create', 'short', '--ttl', '4s', ...flags];
    const { token, expiresAt } = await runForJson<{ token: string; expiresAt: string }>(...args);
    expect(await statusOf(agent, token)).toBe(200);
    expect(Date.parse(expiresAt)).toBeGreaterThanOrEqual(startedMs + 4_000);
    await expect.poll(() => statusOf(agent, token), { interval: 50 }).toBe(401);
  });

  test.each([
    [['token'], /use "townhall agent token/],
    [['token', 'create', 'a b'], /`name` must be/],
    [['token', 'create', 'a', '--ttl', 'soon'], /--ttl takes/],
    [['token', 'list', '--ttl', '1d'], /--ttl belongs/],
    [['token', 'revoke'], /use "townhall agent token/],
    [['token', 'revoke', 'tok_unknown'], /no token with this id/],
    [['tokens'], /"tokens" is not part of this command/],
    [['call', 'files'], /use "townhall agent call/],
    [['call', 'files', 'list', '{'], /is JSON/],
    [['call', 'files', 'list', '[]'], /must be an object/],
    [['call', 'unknown', 'list'], /no plugin/],
  ])('refuses %j with a message', async (args, message) => {
    await expect(run(...args, ...flags)).rejects.toThrow(message);
  });

  test('calls an action that its plugin exposes to commands', async () => {
    const { output } = await run('call', 'files', 'write', '{"path":"a.txt","content":"hello"}', ...flags);
    expect(JSON.parse(output.join('\n'))).toEqual({ path: 'a.txt', bytes: 5, created: true });
  });
});

describe('townhall agent token without a running agent', () => {
  let folder: string;
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'townhall-tokens-'));
  });
  afterEach(() => rm(folder, { recursive: true, force: true }));

  /** Runs the work with an agent on the embedded database of the folder, and closes both. */
  async function withAgent(work: (agent: TestAgent) => Promise<void> = async () => {}): Promise<void> {
    const database = await connect({ path: join(folder, 'agent.db') }, { log: silentLog });
    const agent = await startAgent({ gatewayUrl: gateway.url, dataDir: folder, database });
    try {
      await work(agent);
    } finally {
      await agent.close();
      await database.close();
    }
  }

  test('creates a token for the next start', async () => {
    await withAgent();
    const args = ['token', 'create', 'later', '--data-dir', folder];
    const { token } = await runForJson<{ token: string }>(...args);
    await withAgent(async (agent) => expect(await statusOf(agent, token)).toBe(200));
  });

  test('refuses the name of an unknown agent', async () => {
    await withAgent();
    const call = run('token', 'list', '--name', 'unknown', '--data-dir', folder);
    await expect(call).rejects.toThrow(/There is no agent "unknown"/);
  });

  test('refuses a folder without data', async () => {
    await expect(run('token', 'list', '--data-dir', folder)).rejects.toThrow(/There is no agent's data/);
  });
});

// The command opens the database itself; the running agent rereads it within a second.
describe('townhall agent token with --database-url', () => {
  let world: TestDatabase;
  let agent: TestAgent;
  let flags: string[];
  beforeAll(async () => {
    world = await testDatabase();
    agent = await startAgent({ gatewayUrl: gateway.url, database: world.database });
    flags = ['--data-dir', agent.dataDir, ...databaseFlags(world.options)];
  });
  afterAll(async () => {
    await agent.close();
    await world.close();
  });

  test('creates and revokes a token of a running agent', async () => {
    const args = ['token', 'create', 'laptop', ...flags];
    const { token, tokenId } = await runForJson<{ token: string; tokenId: string }>(...args);
    expect(await statusOf(agent, token)).toBe(200);
    await run('token', 'revoke', tokenId, ...flags);
    await expect.poll(() => statusOf(agent, token), { interval: 20 }).toBe(401);
  });
});
