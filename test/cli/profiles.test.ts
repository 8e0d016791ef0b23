// Profiles of the command line: their file, which server and credential they choose, and what outranks them.
import { once } from 'node:events';
import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { runInProcess, type CommandResult } from './in-process.ts';

let folder: string;
let url: string;
const requests: IncomingMessage[] = [];
const server = createServer((request, response) => {
  requests.push(request);
  response.writeHead(200, { 'content-type': 'application/json' }).end('{"items": [], "next_cursor": null}');
});

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'townhall-profiles-'));
  await once(server.listen(0, '127.0.0.1'), 'listening');
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  await writeFile(join(folder, 'user.token'), 'user-of-file\n');
  await writeFile(join(folder, 'admin.token'), 'admin-of-file\n');
});
afterAll(async () => {
  server.close();
  await rm(folder, { recursive: true });
});
beforeEach(() => rm(join(folder, 'townhall'), { recursive: true, force: true }));

const run = (words: string[], env: Record<string, string> = {}): Promise<CommandResult> =>
  runInProcess(words, { XDG_CONFIG_HOME: folder, ...env });
const setShop = () =>
  run(['profile', 'set', 'shop', '--url', url, '--admin-token-file', join(folder, 'admin.token')]);
const sentToken = () => requests.at(-1)?.headers.authorization;

describe('a profile', () => {
  test('names the server and the credential of a command', async () => {
    await setShop();
    expect((await run(['users', 'list'])).code).toBe(0);
    expect(sentToken()).toBe('Bearer admin-of-file');
  });

  test('keeps paths of credentials in a file of its owner alone', async () => {
    await setShop();
    const file = join(folder, 'townhall/profiles.json');
    expect(await readFile(file, 'utf8')).not.toContain('admin-of-file');
    expect((await stat(file)).mode & 0o777).toBe(0o600);
  });

  test('sends its own credential before one of the environment', async () => {
    await setShop();
    await run(['users', 'list'], { TOWNHALL_ADMIN_TOKEN: 'of-another-server' });
    expect(sentToken()).toBe('Bearer admin-of-file');
  });

  test('sends nothing to a server that --url or TOWNHALL_URL names', async () => {
    await run([
      'profile',
      'set',
      'shop',
      '--url',
      'http://127.0.0.1:9',
      '--token-file',
      join(folder, 'user.token'),
    ]);
    await run(['keys', 'list', '--url', url]);
    expect(sentToken()).toBeUndefined();
    await run(['keys', 'list'], { TOWNHALL_URL: url });
    expect(sentToken()).toBeUndefined();
  });

  test('is chosen by TOWNHALL_PROFILE before the one in use', async () => {
    await setShop();
    await run(['profile', 'set', 'down', '--url', 'http://127.0.0.1:9']);
    expect((await run(['users', 'list'], { TOWNHALL_PROFILE: 'shop' })).code).toBe(0);
    await expect(run(['users', 'list'])).rejects.toThrow(/http:\/\/127\.0\.0\.1:9 does not answer/);
    await expect(run(['users', 'list'], { TOWNHALL_PROFILE: 'none' })).rejects.toThrow(/no profile "none"/);
  });
});

describe('townhall profile', () => {
  test('lists, uses and removes profiles', async () => {
    await setShop();
    await run(['profile', 'set', 'other', '--agent-url', 'http://127.0.0.1:5314']);
    expect((await run(['profile', 'list'])).output).toEqual([
      `   shop   ${url}  -`,
      `*  other  ${'-'.padEnd(url.length)}  http://127.0.0.1:5314`,
    ]);
    await run(['profile', 'use', 'shop']);
    await run(['profile', 'remove', 'shop']);
    const { output } = await run(['profile', 'list', '--json']);
    expect(JSON.parse(output.join(''))).toEqual({
      current: null,
      profiles: { other: { agent_url: 'http://127.0.0.1:5314' } },
    });
  });

  test('changes only the members of its options', async () => {
    await setShop();
    await run(['profile', 'set', 'shop', '--agent-url', 'http://127.0.0.1:5314']);
    const { output } = await run(['profile', 'list', '--json']);
    expect(JSON.parse(output.join(''))).toMatchObject({
      profiles: {
        shop: { url, agent_url: 'http://127.0.0.1:5314', admin_token_file: join(folder, 'admin.token') },
      },
    });
  });

  test.each([
    [['set', 'a b', '--url', 'http://x'], /letters, digits/],
    [['set', '__proto__', '--url', 'http://x'], /letters, digits/],
    [['set', 'shop', '--url', 'localhost'], /"localhost" is not an address/],
    [['use', 'toString'], /no profile "toString"/],
    [['remove', 'none'], /no profile "none"/],
  ])('refuses %j', async (words, message) => {
    await expect(run(['profile', ...words])).rejects.toThrow(message);
  });

  test('names a file that holds no profiles', async () => {
    await setShop();
    await writeFile(join(folder, 'townhall/profiles.json'), '{"profiles": []}');
    await expect(run(['profile', 'list'])).rejects.toThrow(/profiles\.json is not a list of profiles/);
  });
});
