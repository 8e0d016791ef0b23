// `townhall env rewrap` while a server holds the embedded database: the command has the server do it.
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { newMasterKey } from '../../src/kernel/secrets/vault.ts';
import { listKeys } from './env-keys.ts';
import { runTownhall, townhall } from './townhall.ts';

const keys = [newMasterKey(), newMasterKey()] as const;

test('refuses a rewrap with a key that the server lacks', { timeout: 180_000 }, async () => {
  const cwd = await mkdtemp(join(tmpdir(), 'townhall-cli-env-'));
  onTestFinished(() => rm(cwd, { recursive: true, force: true }));
  const server = townhall(['gateway', '--port', '0', '--host', '127.0.0.1'], {
    cwd,
    env: { TOWNHALL_MASTER_KEY: keys[0] },
  });
  onTestFinished(async () => {
    server.process.kill('SIGKILL');
    await server.ended;
  });
  await server.waitFor(/"msg":"listening"/);
  const bothKeys = { TOWNHALL_MASTER_KEY: keys[1], TOWNHALL_MASTER_KEY_PREVIOUS: keys[0] };
  const rewrap = await runTownhall(['env', 'rewrap'], { cwd, env: bothKeys });
  expect(rewrap.code).toBe(1);
  const list = await listKeys(cwd, bothKeys);
  const serverKid = list.server ?? '';
  expect(rewrap.screen).toContain(`The running server uses the master key ${serverKid}`);
  expect(rewrap.screen).not.toContain('all are under');
  expect(list.keys.find(({ kid }) => kid === serverKid)).toMatchObject({
    current: true,
    setting: 'TOWNHALL_MASTER_KEY_PREVIOUS',
  });
  expect(list.keys.find(({ setting }) => setting === 'TOWNHALL_MASTER_KEY')).toMatchObject({
    values: 0,
    current: false,
  });
  const rewrapWithoutKey = await runTownhall(['env', 'rewrap'], { cwd });
  expect(rewrapWithoutKey.code).toBe(1);
  expect(rewrapWithoutKey.screen).toContain('this command has no master key');
  server.process.kill('SIGTERM');
  expect(await server.ended).toBe(0);
});
