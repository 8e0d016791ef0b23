// `townhall agent token …` and `townhall agent call`, beside a running agent and without one.
import { mkdtemp, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { connect } from '../../../src/kernel/data/database.ts';
import { parseToken } from '../../../src/kernel/secrets/secret.ts';
import { runInProcess } from '../../cli/in-process.ts';
import { startAgent, type TestAgent } from '../../support/agent.ts';
import { databaseFlags, silentLog, testDatabase, type TestDatabase } from '../../support/databases.ts';
import { scriptedGateway, type ScriptedGateway } from '../../support/scripted-gateway.ts';

async function run(...words: string[]): Promise<{ out: string[]; err: string[] }> {
  const { code, output, errors } = await runInProcess(['agent', ...words]);
  expect(code).toBe(0);
  return { out: output, err: errors };
}

const json = async (...args: string[]) =>
  JSON.parse((await run(...args, '--json')).out[0] ?? '') as Record<string, never>;

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

  test('has a control socket for its owner alone', async () => {
    expect((await stat(join(agent.dataDir, 'control.sock'))).mode & 0o777).toBe(0o600);
  });

  test('creates, lists and revokes a token of a running agent', async () => {
    const { out, err } = await run('token', 'create', 'laptop', ...flags);
    const token = out[0] ?? '';
    expect([parseToken(token), await statusOf(agent, token)]).toEqual(['agt', 200]);
    const tokenId = /Its id is (tok_\w+)/.exec(err[0] ?? '')?.[1] ?? '';
    const listing = (await json('token', 'list', ...flags)) as unknown as {
      items: Record<string, unknown>[];
    };
    expect(listing.items.find((item) => item['tokenId'] === tokenId)).toMatchObject({
      name: 'laptop',
      state: 'live',
      expiresAt: null,
      last4: token.slice(-4),
    });
    expect(JSON.stringify(listing)).not.toContain(token);
    expect(listing.items).toHaveLength(2);
    expect(await json('token', 'revoke', tokenId, ...flags)).toEqual({ tokenId, revoked: true });
    // The contract allows one second; a busy machine needs more.
    await expect.poll(() => statusOf(agent, token), { timeout: 5_000, interval: 20 }).toBe(401);
    expect(await json('token', 'revoke', tokenId, ...flags)).toEqual({ tokenId, revoked: false });
    expect(await statusOf(agent, agent.token)).toBe(200);
  });

  test('creates a token that expires', async () => {
    const token = (await json('token', 'create', 'short', '--ttl', '4s', ...flags)) as unknown as {
      token: string;
      expiresAt: string;
    };
    expect(await statusOf(agent, token.token)).toBe(200);
    expect(Date.parse(token.expiresAt)).toBeGreaterThan(0);
    await expect.poll(() => statusOf(agent, token.token), { interval: 50 }).toBe(401);
  });

  test.each([
    [['token'], /say "townhall agent token/],
    [['token', 'create', 'a b'], /`name` must be/],
    [['token', 'create', 'a', '--ttl', 'soon'], /--ttl takes/],
    [['token', 'list', '--ttl', '1d'], /--ttl belongs/],
    [['token', 'revoke'], /say "townhall agent token/],
    [['token', 'revoke', 'tok_nobody'], /no token with this id/],
    [['tokens'], /"tokens" is not part of this command/],
    [['call', 'files'], /say "townhall agent call/],
    [['call', 'files', 'list', '{'], /is JSON/],
    [['call', 'files', 'list', '[]'], /is an object/],
    [['call', 'nobody', 'list'], /no plugin/],
  ])('refuses %j with a message', async (args, sentence) => {
    await expect(run(...args, ...flags)).rejects.toThrow(sentence);
  });

  test('calls an action that its plugin exposes to commands', async () => {
    const { out } = await run('call', 'files', 'write', '{"path":"a.txt","content":"hello"}', ...flags);
    expect(JSON.parse(out.join('\n'))).toEqual({ path: 'a.txt', bytes: 5, created: true });
    expect((await run('call', 'files', 'search', '{"text":"ell"}', ...flags)).out.join('\n')).toContain(
      'a.txt',
    );
  });
});

describe('townhall agent token without a running agent', () => {
  let folder: string;
  let world: TestDatabase | undefined;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'townhall-tokens-'));
  });
  afterAll(async () => {
    await world?.close();
    await rm(folder, { recursive: true, force: true });
  });

  test('opens the database and leaves it to the next start', async () => {
    const probe = await testDatabase({ isEmpty: true });
    const isEmbedded = probe.engine === 'embedded';
    if (isEmbedded) await probe.close();
    else world = probe;
    const openDatabase = () =>
      connect(isEmbedded ? { path: join(folder, 'agent.db') } : probe.options, { log: silentLog });
    const flags = ['--data-dir', folder, ...databaseFlags(probe.options)];
    if (isEmbedded) {
      await expect(run('token', 'list', ...flags)).rejects.toThrow(/There is no agent's data/);
    }
    const firstDatabase = await openDatabase();
    const agent = await startAgent({ gatewayUrl: gateway.url, dataDir: folder, database: firstDatabase });
    await agent.close();
    await firstDatabase.close();

    await expect(run('token', 'list', '--name', 'nobody', ...flags)).rejects.toThrow(
      /There is no agent "nobody"/,
    );
    const token = (await json('token', 'create', 'later', ...flags)) as unknown as {
      token: string;
      tokenId: string;
    };
    const secondDatabase = await openDatabase();
    const restartedAgent = await startAgent({
      gatewayUrl: gateway.url,
      dataDir: folder,
      database: secondDatabase,
    });
    try {
      expect(await statusOf(restartedAgent, token.token)).toBe(200);
      if (!isEmbedded) {
        // Another process changes the database; the running agent rereads it within a second.
        await run('token', 'revoke', token.tokenId, ...flags);
        await expect
          .poll(() => statusOf(restartedAgent, token.token), { timeout: 5_000, interval: 20 })
          .toBe(401);
      }
    } finally {
      await restartedAgent.close();
      await secondDatabase.close();
    }
  });
});
