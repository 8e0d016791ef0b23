// `townhall env rewrap`, with a running server and without one.
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createGatewayClient } from '@townhall/gateway';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { newMasterKey } from '../../src/kernel/secrets/vault.ts';
import { databaseEnv, makeDatabase, type DatabasePlace } from '../support/databases.ts';
import { testAdministrator } from '../support/gateway.ts';
import { listKeys } from './env-keys.ts';
import { runTownhall, townhall } from './townhall.ts';

// A test starts up to four processes one after the other; the limit allows for a busy machine.
vi.setConfig({ testTimeout: 180_000 });

const keys = [newMasterKey(), newMasterKey(), newMasterKey()] as const;

let folder: string;
let place: DatabasePlace;
let databaseSettings: Record<string, string>;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'townhall-cli-env-'));
  place = await makeDatabase();
  databaseSettings = databaseEnv(place.options);
});
afterAll(async () => {
  await place?.remove();
  await rm(folder, { recursive: true, force: true });
});

const rewrap = async (env: Record<string, string>): Promise<{ rewrapped: number; kid: string }> => {
  const options = { cwd: folder, env: { ...databaseSettings, ...env } };
  const { code, screen } = await runTownhall(['env', 'rewrap', '--json'], options);
  expect(code, screen).toBe(0);
  return JSON.parse(screen) as { rewrapped: number; kid: string };
};

describe('townhall env rewrap', () => {
  test('moves stored values to the new key with and without a server', async () => {
    const bothKeys = { TOWNHALL_MASTER_KEY: keys[1], TOWNHALL_MASTER_KEY_PREVIOUS: keys[0] };
    const firstRewrap = await rewrap({ TOWNHALL_MASTER_KEY: keys[0] });
    const server = townhall(['gateway', '--port', '0', '--host', '127.0.0.1'], {
      cwd: folder,
      env: {
        ...databaseSettings,
        ...bothKeys,
        ADMIN_ID: testAdministrator.adminId,
        ADMIN_PASSWORD: testAdministrator.password,
      },
    });
    const url = (await server.waitFor(/"url":"(http:\/\/127\.0\.0\.1:\d+)"/))[1] ?? '';
    const { session_token: token } = await createGatewayClient({ baseUrl: url }).admin.login({
      admin_id: testAdministrator.adminId,
      password: testAdministrator.password,
    });
    const admin = createGatewayClient({ baseUrl: url, token });
    await admin.env.importVariables({ content: 'ONE=CANARY-first-value\nTWO=CANARY-second-value' });
    const secondRewrap = await rewrap(bothKeys);
    expect(secondRewrap).toEqual({ rewrapped: 2, kid: expect.stringMatching(/^[0-9a-f]{12}$/) });
    expect(secondRewrap.kid).not.toBe(firstRewrap.kid);
    const { items } = await admin.env.listVariables({ reveal: true });
    expect(items.find(({ key }) => key === 'TWO')).toMatchObject({
      value: 'CANARY-second-value',
      readable: true,
    });
    server.process.kill('SIGTERM');
    expect(await server.ended).toBe(0);
    expect(server.screen()).not.toContain('CANARY');
    const thirdRewrap = await rewrap({ TOWNHALL_MASTER_KEY: keys[2], TOWNHALL_MASTER_KEY_PREVIOUS: keys[1] });
    expect(thirdRewrap.rewrapped).toBe(2);
  });

  test('reports that nothing was changed without the key', async () => {
    const { code, screen } = await runTownhall(['env', 'rewrap'], {
      cwd: folder,
      env: { ...databaseSettings, TOWNHALL_MASTER_KEY: keys[0] },
    });
    expect(code).toBe(2);
    expect(screen).toContain('Nothing was changed');
  });

  test.each([[['env']], [['env', 'list']], [['env', 'rewrap', '--nonsense']]])(
    'refuses %j',
    async (words) => {
      expect((await runTownhall(words, { cwd: folder })).code).toBe(2);
    },
  );
});

describe('townhall env keys', () => {
  test('counts the values of each key without having a key', async () => {
    const list = await listKeys(folder, databaseSettings);
    expect(list.keys).toEqual([
      { kid: expect.stringMatching(/^[0-9a-f]{12}$/), values: 2, current: true, setting: null },
    ]);
    expect(list).toMatchObject({ server: null, damaged: 0 });
  });
});
