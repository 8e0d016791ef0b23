// `townhall login` and `townhall logout` against a scripted gateway: what they show, store and
// remove.
import { mkdir, mkdtemp, readFile, readdir, rm, stat } from 'node:fs/promises';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { listen } from '../support/local-server.ts';
import { runInProcess, type CommandResult } from './in-process.ts';
import { runTownhall, townhall, type RunResult } from './townhall.ts';

let folder: string;
let url: string;
let expiresInSeconds = 600;
/** The answers of the poll, in order; the last one repeats. */
let polls: { status: number; body: object }[] = [];
let requests: { path: string; authorization: string | undefined; body: string }[] = [];

const refusal = (status: number, code: string) => ({
  status,
  body: {
    error: { type: 'invalid_request_error', code, message: `It is ${code}.`, param: null, request_id: 'r' },
  },
});
const credential = {
  status: 200,
  body: { user_token: 'th_usr_first', token_id: 't', kind: 'user', expires_at: '2026-12-23T09:00:00.000Z' },
};
const answers: Record<string, () => { status: number; body: object }> = {
  '/v1/accounts/providers': () => ({ status: 200, body: { items: [] } }),
  '/v1/accounts/device/start': () => ({
    status: 200,
    body: {
      device_code: 'secret of the device',
      user_code: 'WDJB-MJHT',
      verification_uri: `${url}/device`,
      verification_uri_complete: `${url}/device#WDJB-MJHT`,
      expires_in: expiresInSeconds,
      interval: 0,
    },
  }),
  '/v1/accounts/device/result': () => (polls.length > 1 ? polls.shift() : polls[0]) ?? credential,
  '/v1/accounts/me': () => ({ status: 200, body: { user: { user_id: 'usr_1', email: 'ada@example.com' } } }),
  '/v1/accounts/logout': () => ({ status: 200, body: { revoked: true } }),
  '/v1/admin/login': () => ({
    status: 200,
    body: { session_token: 'th_adm_first', expires_at: '2026-12-23T09:00:00.000Z' },
  }),
  '/v1/admin/logout': () => ({ status: 200, body: { revoked: true } }),
};
const server = createServer((request, response) => {
  let body = '';
  request.on('data', (chunk: Buffer) => (body += chunk.toString()));
  request.on('end', () => {
    const path = (request.url ?? '').split('?')[0] ?? '';
    requests.push({ path, authorization: request.headers.authorization, body });
    const answer = answers[path]?.() ?? refusal(404, 'route_not_found');
    response
      .writeHead(answer.status, { 'content-type': 'application/json' })
      .end(JSON.stringify(answer.body));
  });
});

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'townhall-login-'));
  ({ url } = await listen(server));
});
afterAll(async () => {
  server.close();
  await rm(folder, { recursive: true });
});
beforeEach(async () => {
  polls = [];
  expiresInSeconds = 600;
  requests = [];
  await rm(join(folder, 'townhall'), { recursive: true, force: true });
});

const run = (...words: string[]): Promise<CommandResult> => runInProcess(words, { XDG_CONFIG_HOME: folder });
const login = () => run('login', '--url', url, '--profile', 'shop', '--no-browser');
const tokenFile = () => join(folder, 'townhall/tokens/shop.user.token');
const profiles = async () =>
  JSON.parse(await readFile(join(folder, 'townhall/profiles.json'), 'utf8')) as object;

describe('townhall login', () => {
  test('shows the address and the code', async () => {
    const { errors } = await login();
    expect(errors.join('\n')).toContain(`${url}/device`);
    expect(errors.join('\n')).toContain('WDJB-MJHT');
  });

  test('polls until a person decides', async () => {
    polls = [refusal(400, 'authorization_pending'), refusal(400, 'authorization_pending'), credential];
    expect((await login()).code).toBe(0);
    expect(requests.filter(({ path }) => path.endsWith('/result'))).toHaveLength(3);
  });

  test('stores the token in a file that only its owner can read', async () => {
    const { output } = await login();
    expect(output.join('\n')).toContain('ada@example.com');
    expect(output.join('\n')).not.toContain('th_usr_first');
    expect(await readFile(tokenFile(), 'utf8')).toBe('th_usr_first\n');
    expect((await stat(tokenFile())).mode & 0o777).toBe(0o600);
    expect(await profiles()).toEqual({
      current: 'shop',
      profiles: { shop: { url, token_file: tokenFile() } },
    });
  });

  test("keeps the profile's other credentials", async () => {
    await run('profile', 'set', 'shop', '--url', url, '--admin-token-file', '/admin.token');
    await login();
    expect(await profiles()).toMatchObject({
      profiles: { shop: { admin_token_file: '/admin.token', token_file: tokenFile() } },
    });
  });

  test('drops the credentials of another gateway from the profile', async () => {
    const otherUrl = 'https://models.example.com';
    await run('profile', 'set', 'shop', '--url', otherUrl, '--admin-token-file', '/admin.token');
    await run('profile', 'set', 'shop', '--agent-token-file', '/agent.token');
    await login();
    expect(await profiles()).toEqual({
      current: 'shop',
      profiles: { shop: { url, token_file: tokenFile(), agent_token_file: '/agent.token' } },
    });
  });

  test('changes nothing when the person refuses', async () => {
    polls = [refusal(403, 'login_denied')];
    await expect(login()).rejects.toMatchObject({ code: 'login_denied' });
    await expect(readdir(join(folder, 'townhall'))).rejects.toMatchObject({ code: 'ENOENT' });
  });

  test.each([refusal(503, 'unavailable'), refusal(400, 'authorization_pending')])(
    'fails when the code expires: $body.error.code',
    async (poll) => {
      polls = [poll];
      expiresInSeconds = 0;
      await expect(login()).rejects.toThrow(/expired without a confirmation/);
    },
  );

  test('prints JSON without the token', async () => {
    const { output } = await run('login', '--url', url, '--no-browser', '--json');
    expect(JSON.parse(output.join(''))).toEqual({
      url,
      profile: 'local',
      user: 'ada@example.com',
      expires_at: '2026-12-23T09:00:00.000Z',
    });
  });

  test('refuses an address that would send the token unencrypted', async () => {
    await expect(run('login', '--url', 'http://models.example.com')).rejects.toThrow(/https/);
  });

  test('stores nothing after Ctrl-C', async () => {
    polls = [refusal(400, 'authorization_pending')];
    const command = townhall(['login', '--url', url, '--no-browser'], { cwd: folder });
    await command.waitFor(/Waiting/);
    command.process.kill('SIGINT');
    expect(await command.ended).toBe(1);
    expect(command.screen()).toContain('cancelled; nothing was changed.');
    await expect(stat(join(folder, '.config'))).rejects.toMatchObject({ code: 'ENOENT' });
  });
});

describe('townhall login --admin', () => {
  const loginAsAdmin = (): Promise<RunResult> =>
    runTownhall(
      ['login', '--admin', '--url', url, '--profile', 'shop', '--admin-id', 'ada', '--password-stdin'],
      { cwd: folder, env: { XDG_CONFIG_HOME: folder }, input: 'correct horse battery\n' },
    );
  const adminFile = (): string => join(folder, 'townhall/tokens/shop.admin.token');

  test('stores the session beside the user token', async () => {
    await login();
    const { code, screen } = await loginAsAdmin();
    expect(code).toBe(0);
    expect(screen).toContain('as the administrator ada, until 2026-12-23 09:00 UTC');
    expect(JSON.parse(requests.at(-1)?.body ?? '')).toEqual({
      admin_id: 'ada',
      password: 'correct horse battery',
    });
    expect(await readFile(adminFile(), 'utf8')).toBe('th_adm_first\n');
    expect((await stat(adminFile())).mode & 0o777).toBe(0o600);
    expect(await profiles()).toEqual({
      current: 'shop',
      profiles: { shop: { url, token_file: tokenFile(), admin_token_file: adminFile() } },
    });
  });

  test('provides the session for commands of administrators', async () => {
    await loginAsAdmin();
    await run('users', 'list');
    expect(requests.at(-1)).toMatchObject({
      path: '/v1/accounts/users',
      authorization: 'Bearer th_adm_first',
    });
  });

  test('ends with logout --admin', async () => {
    await login();
    await loginAsAdmin();
    expect((await run('logout', '--admin')).output).toEqual([`You are logged out at ${url}.`]);
    expect(requests.at(-1)).toMatchObject({ path: '/v1/admin/logout', authorization: 'Bearer th_adm_first' });
    expect(await profiles()).toEqual({
      current: 'shop',
      profiles: { shop: { url, token_file: tokenFile() } },
    });
    await expect(run('logout', '--admin')).rejects.toThrow('"townhall login --admin" creates one.');
  });

  test('refuses the options of --admin without it', async () => {
    await expect(run('login', '--url', url, '--admin-id', 'ada')).rejects.toThrow('belong to --admin');
  });
});

describe('townhall logout', () => {
  test('ends the token at the gateway and removes its file', async () => {
    await login();
    const { code } = await run('logout');
    expect(code).toBe(0);
    expect(requests.at(-1)).toMatchObject({
      path: '/v1/accounts/logout',
      authorization: 'Bearer th_usr_first',
    });
    await expect(stat(tokenFile())).rejects.toMatchObject({ code: 'ENOENT' });
    expect(await profiles()).toEqual({ current: 'shop', profiles: { shop: { url } } });
  });

  test('keeps the profile when the file of its token cannot be read', async () => {
    await login();
    await rm(tokenFile());
    await mkdir(tokenFile());
    await expect(run('logout')).rejects.toThrow('EISDIR');
    expect(await profiles()).toMatchObject({ profiles: { shop: { token_file: tokenFile() } } });
  });

  test('names the command that logs in when there is no token', async () => {
    await expect(run('logout')).rejects.toThrow(/townhall login/);
  });
});
