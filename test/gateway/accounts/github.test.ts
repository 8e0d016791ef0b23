// The login through GitHub (OAuth without OpenID), against a fake GitHub that follows GitHub's documentation.
import { createHash } from 'node:crypto';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { findSecrets } from '../stored-text.ts';
import { startWorld, type World } from './world.ts';
import { listen } from '../../support/local-server.ts';

interface GithubDouble {
  user: Record<string, unknown>;
  emails: unknown;
  /** An error that the token endpoint answers, with status 200 as GitHub does. */
  refusal: object | undefined;
  /** Answers the request for the user with this text instead of `user`. */
  userText: string | undefined;
  /** The form of the last token exchange. */
  tokenForm: Record<string, string>;
  /** The code challenge of each code. */
  challenges: Map<string, string>;
}

const accessToken = 'gho_CANARYaccesstoken';
const clientSecret = 'CANARY-github-secret';
let world: World;
let server: Server;
const github: GithubDouble = {
  user: {},
  emails: [],
  refusal: undefined,
  userText: undefined,
  tokenForm: {},
  challenges: new Map(),
};

async function bodyOf(request: IncomingMessage): Promise<string> {
  let text = '';
  for await (const chunk of request.setEncoding('utf8')) text += String(chunk);
  return text;
}

/** Answers as GitHub: the token endpoint, the user and the user's addresses. */
async function answerAsGithub(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const answer = (status: number, body: unknown) =>
    void response
      .writeHead(status, { 'content-type': 'application/json; charset=utf-8' })
      .end(JSON.stringify(body));
  const url = new URL(request.url ?? '/', 'http://double');
  if (url.pathname === '/login/oauth/access_token') return answer(200, exchangeCode(await bodyOf(request)));
  if (request.headers.authorization !== `Bearer ${accessToken}`)
    return answer(401, { message: 'Bad credentials' });
  if (url.pathname === '/api/user' && github.userText !== undefined)
    return void response.writeHead(200, { 'content-type': 'text/html' }).end(github.userText);
  if (url.pathname === '/api/user') return answer(200, github.user);
  if (url.pathname === '/api/user/emails') return answer(200, github.emails);
  return answer(404, {});
}

function exchangeCode(form: string): object {
  github.tokenForm = Object.fromEntries(new URLSearchParams(form));
  const { code = '', code_verifier: verifier = '' } = github.tokenForm;
  const isProven = github.challenges.get(code) === createHash('sha256').update(verifier).digest('base64url');
  github.challenges.delete(code);
  if (github.refusal) return github.refusal;
  if (isProven) return { access_token: accessToken, scope: 'read:user,user:email', token_type: 'bearer' };
  return {
    error: 'bad_verification_code',
    error_description: 'The code passed is incorrect or expired.',
  };
}

beforeAll(async () => {
  world = await startWorld({ accounts: { providerDeadlineMs: 15_000 } });
  server = createServer((request, response) => void answerAsGithub(request, response));
  const { url: base } = await listen(server);
  Object.assign(world.env, {
    GITHUB_CLIENT_ID: 'townhall',
    GITHUB_CLIENT_SECRET: clientSecret,
    GITHUB_BASE_URL: base,
    GITHUB_API_BASE_URL: `${base}/api/`,
  });
});
beforeEach(() => {
  github.refusal = undefined;
  github.userText = undefined;
  github.user = { id: 1815, login: 'ada', name: 'Ada', avatar_url: 'https://avatars.example/1815' };
  github.emails = [
    { email: 'old@example.com', primary: false, verified: true },
    { email: 'ada@example.com', primary: true, verified: true },
  ];
});
afterAll(async () => {
  server?.closeAllConnections();
  await new Promise((resolve) => server?.close(resolve));
  await world?.close();
});

/** Starts a login, returns from the double with a code and confirms the page. */
async function logIn() {
  const login = await world.call('POST', '/v1/accounts/login/start', {
    body: { provider: 'github', bureau_id: 'local' },
  });
  const authorization = new URL(login.body.url).searchParams;
  const code = `code-${github.challenges.size}-${Math.random()}`;
  github.challenges.set(code, authorization.get('code_challenge') ?? '');
  const page = await world.call(
    'GET',
    `/v1/accounts/oauth/callback?${new URLSearchParams({ code, state: authorization.get('state') ?? '' })}`,
  );
  const confirmation = /name="confirmation" value="([^"]+)"/.exec(page.text)?.[1];
  if (confirmation !== undefined) {
    await world.call('POST', '/v1/accounts/oauth/confirm', {
      body: new URLSearchParams({ confirmation, decision: 'confirm' }).toString(),
      headers: { 'content-type': 'application/x-www-form-urlencoded' },
    });
  }
  const { body } = await world.call('GET', `/v1/accounts/login/result?login_id=${login.body.login_id}`);
  return { authorization, page, body };
}

describe('the login with GitHub', () => {
  test('identifies the person with PKCE and two scopes', async () => {
    const { authorization, page, body } = await logIn();
    expect(Object.fromEntries(authorization)).toMatchObject({
      client_id: 'townhall',
      scope: 'read:user user:email',
      code_challenge_method: 'S256',
    });
    expect(authorization.has('nonce')).toBe(false);
    expect(page.status).toBe(200);
    expect(github.tokenForm).toMatchObject({
      client_id: 'townhall',
      redirect_uri: `${world.url}/v1/accounts/oauth/callback`,
      grant_type: 'authorization_code',
    });
    expect(body.user).toMatchObject({
      email: 'ada@example.com',
      display_name: 'Ada',
      avatar_url: 'https://avatars.example/1815',
    });
  });

  test('identifies a person by id, not by login name', async () => {
    const firstUserId = (await logIn()).body.user.user_id;
    github.user = { ...github.user, login: 'countess', name: null };
    const renamedUser = (await logIn()).body.user;
    expect(renamedUser.user_id).toBe(firstUserId);
    github.user = { id: 1816, login: 'ada', name: 'Another Ada', avatar_url: 'javascript:alert(1)' };
    const otherUser = (await logIn()).body.user;
    expect(otherUser.user_id).not.toBe(firstUserId);
    expect(otherUser.avatar_url).toBeNull();
  });

  test('uses only a primary and verified address', async () => {
    github.user = { id: 1, login: 'eve' };
    github.emails = [
      { email: 'victim@example.com', primary: true, verified: false },
      { email: 'other@example.com', primary: false, verified: true },
    ];
    expect((await logIn()).body.user.email).toBeNull();
    github.user = { id: 2, login: 'nobody' };
    github.emails = { message: 'no list' };
    expect((await logIn()).body.user.email).toBeNull();
  });

  test.each([
    ['a refused code', () => (github.refusal = { error: 'bad_verification_code' })],
    ['a user without an id', () => (github.user = { login: 'ada' })],
    ['an id that is a string', () => (github.user = { id: '1815', login: 'ada' })],
  ])('creates no user after %s', async (_name, changeAnswer) => {
    const countUsers = async () => (await world.database.sql`select 1 from gateway.accounts_users`).length;
    const countBefore = await countUsers();
    changeAnswer();
    const { page, body } = await logIn();
    expect([page.status, body.status]).toEqual([400, 'failed']);
    expect(await countUsers()).toBe(countBefore);
  });

  test('answers 502 when GitHub does not answer with JSON', async () => {
    github.userText = '<p>Down for maintenance</p>';
    const { page, body } = await logIn();
    expect([page.status, body.status, body.error]).toEqual([502, 'failed', 'upstream_failed']);
  });

  test('stores and logs neither the access token nor the client secret', async () => {
    await logIn();
    const storedText = (await world.dump()) + world.logLines.join('');
    expect(findSecrets(storedText, [accessToken, clientSecret])).toEqual([]);
  });
});
