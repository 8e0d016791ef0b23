// Addresses of MCP servers in the plugin file.
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { mcp, readPluginFile, type ProgramRunner } from '../../../src/agent/plugins/index.ts';
import { systemClock } from '../../../src/kernel/clock.ts';
import { SettingError } from '../../../src/kernel/settings.ts';
import { silentLog } from '../../support/databases.ts';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'townhall-plugin-file-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

async function read(url: string): ReturnType<typeof readPluginFile> {
  const path = join(folder, 'plugins.json');
  await writeFile(path, JSON.stringify({ mcpServers: { docs: { url } } }));
  return readPluginFile(path);
}

test.each(['https://', 'http://[bad/mcp'])('names the server with the address %s', async (url) => {
  const failure = await read(url).catch((error: unknown) => error);
  expect(failure).toBeInstanceOf(SettingError);
  expect((failure as Error).message).toContain(`mcpServers.docs.url is "${url}"`);
});

test('hides a password with a malformed percent encoding', async () => {
  const { mcpServers: servers } = await read('http://user:pass%zz@localhost/mcp');
  const secrets: string[] = [];
  mcp({
    servers,
    workspace: folder,
    programs: {} as ProgramRunner,
    redactor: { hold: (secret) => (secrets.push(secret), () => {}) },
    fetch,
    clock: systemClock,
    log: silentLog,
  });
  expect(secrets).toEqual(['pass%zz']);
});
