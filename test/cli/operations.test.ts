// Commands for machine credentials and the audit log, with a running server and without.
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { connect } from '../../src/kernel/data/database.ts';
import { databaseEnv, makeDatabase, silentLog, type DatabasePlace } from '../support/databases.ts';
import { startGateway, testMasterKey, type GatewayWorld } from '../support/gateway.ts';
import { runCommandLine } from './in-process.ts';
import { jsonResult } from './townhall.ts';

vi.setConfig({ testTimeout: 120_000 });
let folder: string;
let place: DatabasePlace;
let env: Record<string, string>;
let world: GatewayWorld;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'townhall-operations-'));
  place = await makeDatabase();
  env = { ...databaseEnv(place.options), TOWNHALL_MASTER_KEY: testMasterKey };
  world = await startGateway({ withAdmin: true, place });
});
afterAll(async () => {
  await place?.remove();
  await rm(folder, { recursive: true, force: true });
});

const run = (...words: string[]) => runCommandLine(words, { cwd: folder, env });

describe('townhall admin token', () => {
  test('creates, lists and revokes a credential that works at once', async () => {
    const creation = await run(
      'admin',
      'token',
      'create',
      '--scope',
      'tokens.issue,bureaus.current',
      '--bureau',
      'local',
      '--ttl',
      '90d',
      '--json',
    );
    expect(creation.code).toBe(0);
    const credential = jsonResult(creation.screen) as {
      token: string;
      credential_id: string;
      expires_at: string;
    };
    expect(credential).toMatchObject({
      token: expect.stringMatching(/^th_adm_/),
      bureau_id: 'local',
      scopes: ['tokens.issue', 'bureaus.current'],
    });
    expect(Date.parse(credential.expires_at) - Date.now()).toBeGreaterThan(89 * 86_400_000);
    const current = () =>
      world
        .as(credential.token)
        .bureaus.getCurrentBureau(undefined, { headers: { 'x-user-token': world.userToken } });
    await expect(current()).resolves.toMatchObject({ bureau: { bureau_id: 'local' } });

    const tokenList = await run('admin', 'token', 'list');
    expect(tokenList.screen).toContain(credential.credential_id);
    expect(tokenList.screen).not.toContain(credential.token.slice(0, 30));

    expect(await run('admin', 'token', 'revoke', credential.credential_id)).toMatchObject({ code: 0 });
    await expect(current()).rejects.toMatchObject({ status: 401 });
  });

  test.each([
    [['create', '--bureau', 'local'], 2, '--scope'],
    [['create', '--scope', 'tokens.issue'], 2, '--bureau'],
    [['create', '--scope', 'tokens.issue', '--bureau', 'local', '--ttl', 'soon'], 2, '--ttl'],
    [['create', '--scope', 'everything', '--bureau', 'local'], 1, 'everything'],
    [['create', '--scope', 'tokens.issue', '--bureau', 'nobody'], 1, 'no such Bureau'],
    [['revoke'], 2, 'revoke ID'],
    [['revoke', 'adm_nobody'], 1, 'no such machine credential'],
    [['renew'], 2, 'admin token create'],
  ])('exits for %j with %i', async (words, code, sentence) => {
    const result = await run('admin', 'token', ...words);
    expect(result).toMatchObject({ code });
    expect(result.screen).toContain(sentence);
  });
});

describe('townhall audit verify', () => {
  test('passes an intact log with and without a running server', async () => {
    await world.admin.bureaus.pauseBureau({ bureau_id: 'local' });
    await world.admin.bureaus.activateBureau({ bureau_id: 'local' });
    expect(await run('audit', 'verify')).toMatchObject({
      code: 0,
      screen: expect.stringContaining('is intact'),
    });
    // From here on the command opens the database itself.
    await world.close();
    const result = await run('audit', 'verify', '--json');
    expect(result.code).toBe(0);
    const verdict = JSON.parse(result.screen) as { ok: boolean; entries: number; head: string };
    expect(verdict).toMatchObject({ ok: true, pending: 0, faults: [] });
    // Two for the Bureau, and those of earlier changes.
    expect(verdict.entries).toBeGreaterThan(2);
    expect(await run('audit', 'verify', '--head', verdict.head)).toMatchObject({ code: 0 });
    expect(await run('audit', 'verify', '--head', 'f'.repeat(64))).toMatchObject({ code: 1 });
    expect(await run('audit', 'verify', '--head', 'short')).toMatchObject({ code: 2 });
  });

  test('names an altered entry and exits with 1', async () => {
    const database = await connect(place.options, { log: silentLog });
    const [entry] = await database.sql<
      { entryId: string }[]
    >`select entry_id as "entryId" from gateway.audit_entries where action = 'bureaus.pauseBureau' limit 1`;
    await database.sql.unsafe('alter table gateway.audit_entries disable trigger user');
    await database.sql`
      update gateway.audit_entries set actor_id = 'nobody' where action = 'bureaus.pauseBureau'`;
    await database.sql.unsafe('alter table gateway.audit_entries enable trigger user');
    await database.close();
    const result = await run('audit', 'verify');
    expect(result.code).toBe(1);
    expect(result.screen).toContain(`Entry ${entry?.entryId} of batch`);
    const asJson = JSON.parse((await run('audit', 'verify', '--json')).screen) as { faults: object[] };
    expect(asJson.faults).toEqual([
      { fault: 'entry_altered', batch: expect.any(String), entry_id: entry?.entryId },
    ]);
  });
});
