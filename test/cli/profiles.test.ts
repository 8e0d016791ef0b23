// Profiles of the command line: their file, which server and credential they choose, and what takes
// precedence over them.
import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { createServer, type IncomingMessage } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { listen } from '../support/local-server.ts';
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
  ({ url } = await listen(server));
  await writeFile(join(folder, 'user.token'), 'user-of-file\n');
  await writeFile(join(folder, 'admin.token'), 'admin-of-file\n');
});
afterAll(async () => {
  server.close();
  await rm(folder, { recursive: true });
});
beforeEach(async () => {
  requests.length = 0;
  await rm(join(folder, 'townhall'), { recursive: true, force: true });
});

const run = (words: string[], env: Record<string, string> = {}): Promise<CommandResult> =>
  runInProcess(words, { XDG_CONFIG_HOME: folder, ...env });
const setShop = () =>
  run(['profile', 'set', 'shop', '--url', url, '--admin-token-file', join(folder, 'admin.token')]);
/** The credentials of all requests since the start of the test. */
const readAuthorizations = () => requests.map(({ headers }) => headers.authorization);

describe('a profile', () => {
  test('names the server and the credential of a command', async () => {
    await setShop();
    expect((await run(['users', 'list'])).code).toBe(0);
    expect(readAuthorizations()).toEqual(['Bearer admin-of-file']);
  });

  test('stores the path of a credential instead of the credential', async () => {
    await setShop();
    const text = await readFile(join(folder, 'townhall/profiles.json'), 'utf8');
    expect(text).toContain(join(folder, 'admin.token'));
    expect(text).not.toContain('admin-of-file');
  });

  test('is stored in a file that only its owner can read', async () => {
    await setShop();
    expect((await stat(join(folder, 'townhall/profiles.json'))).mode & 0o777).toBe(0o600);
  });

  test('sends its own credential instead of one in the environment', async () => {
    await setShop();
    await run(['users', 'list'], { TOWNHALL_ADMIN_TOKEN: 'of-another-server' });
    expect(readAuthorizations()).toEqual(['Bearer admin-of-file']);
  });

  test.each([
    ['--url', () => run(['keys', 'list', '--url', url])],
    ['TOWNHALL_URL', () => run(['keys', 'list'], { TOWNHALL_URL: url })],
  ])('sends no credential to a server that %s names', async (_source, listKeys) => {
    const tokenFile = join(folder, 'user.token');
    await run(['profile', 'set', 'shop', '--url', 'http://127.0.0.1:9', '--token-file', tokenFile]);
    await listKeys();
    expect(readAuthorizations()).toEqual([undefined]);
  });

  test('is in use after it was set', async () => {
    await setShop();
    await run(['profile', 'set', 'down', '--url', 'http://127.0.0.1:9']);
    await expect(run(['users', 'list'])).rejects.toThrow(/http:\/\/127\.0\.0\.1:9 does not answer/);
  });

  test('is used when TOWNHALL_PROFILE names it, instead of the current profile', async () => {
    await setShop();
    await run(['profile', 'set', 'down', '--url', 'http://127.0.0.1:9']);
    expect((await run(['users', 'list'], { TOWNHALL_PROFILE: 'shop' })).code).toBe(0);
    expect(readAuthorizations()).toEqual(['Bearer admin-of-file']);
  });

  test('must exist when TOWNHALL_PROFILE names it', async () => {
    await setShop();
    await expect(run(['users', 'list'], { TOWNHALL_PROFILE: 'none' })).rejects.toThrow(/no profile "none"/);
  });
});

describe('townhall profile', () => {
  const setOther = () => run(['profile', 'set', 'other', '--agent-url', 'http://127.0.0.1:5314']);

  test('lists profiles and marks the one in use', async () => {
    await setShop();
    await setOther();
    expect((await run(['profile', 'list'])).output).toEqual([
      `   shop   ${url}  -`,
      `*  other  ${'-'.padEnd(url.length)}  http://127.0.0.1:5314`,
    ]);
  });

  test('uses another profile', async () => {
    await setShop();
    await setOther();
    await run(['profile', 'use', 'shop']);
    const { output } = await run(['profile', 'list', '--json']);
    expect(JSON.parse(output.join(''))).toMatchObject({ current: 'shop' });
  });

  test('removes the profile in use', async () => {
    await setOther();
    await setShop();
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
