// `townhall call` in a process of its own, beside a running gateway and a running agent.
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest';
import { readOperations } from '../../src/cli/call/operations.ts';
import { startAgent, type TestAgent } from '../support/agent.ts';
import { startGateway, testAdministrator, type GatewayWorld } from '../support/gateway.ts';
import { listen } from '../support/local-server.ts';
import { hasTerminal, spawnOnTerminal } from './script-terminal.ts';
import { runTownhall, type RunResult } from './townhall.ts';

vi.setConfig({ testTimeout: 120_000 });
let folder: string;
let world: GatewayWorld;
let agent: TestAgent;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'townhall-call-'));
  world = await startGateway({ withAdmin: true });
  agent = await startAgent({ gatewayUrl: world.url });
}, 120_000);
afterAll(async () => {
  await agent?.close();
  await world?.close();
  await rm(folder, { recursive: true, force: true });
});

interface CallOptions {
  token?: string;
  input?: string;
}

function call(words: string[], { token, input = '' }: CallOptions = {}): Promise<RunResult> {
  const env: Record<string, string> = token === undefined ? {} : { TOWNHALL_TOKEN: token };
  return runTownhall(['call', ...words], { cwd: folder, env, input });
}

const callGateway = (words: string[], options?: CallOptions) =>
  call(['gateway', ...words, '--url', world.url], options);

/** The answer of the gateway to a call with `--json`. */
async function readAnswer(words: string[], token: string): Promise<unknown> {
  return JSON.parse((await callGateway([...words, '--json'], { token })).screen);
}

/** A server that counts its requests. It stands for a gateway at which each call would cost credits. */
async function startCountingServer(): Promise<{ url: string; requests(): number }> {
  let requests = 0;
  const server = createServer((_request, response) => {
    requests += 1;
    response.writeHead(200, { 'content-type': 'audio/wav' }).end('RIFF');
  });
  onTestFinished(() => void server.close());
  const { url } = await listen(server);
  return { url, requests: () => requests };
}

describe('townhall call', () => {
  test.each(['', '.', '..'])('refuses %j as a path parameter before sending anything', async (value) => {
    const server = await startCountingServer();
    const result = await call(['agent', 'sessions.get', `sessionId=${value}`, '--url', server.url]);
    expect(result).toMatchObject({
      code: 2,
      screen: expect.stringContaining(`sessionId cannot be "${value}"`),
    });
    expect(server.requests()).toBe(0);
  });

  /** Logs in as the administrator; returns the token of the session. */
  async function loginAdmin(): Promise<string> {
    const login = await callGateway(['admin.login', '--body', '-', '--json'], {
      input: JSON.stringify({ admin_id: testAdministrator.adminId, password: testAdministrator.password }),
    });
    expect(login.code).toBe(0);
    return (JSON.parse(login.screen) as { session_token: string }).session_token;
  }

  test('uses the session of a login with a body from standard input', async () => {
    const token = await loginAdmin();
    expect(
      await callGateway(['env.upsertVariable', 'key=ACME_API_KEY', 'value=sk-acme-0123456789-1234'], {
        token,
      }),
    ).toMatchObject({ code: 0, screen: expect.stringContaining('"key": "ACME_API_KEY"') });
    expect(await readAnswer(['env.listVariables'], token)).toMatchObject({
      items: expect.arrayContaining([expect.objectContaining({ key: 'ACME_API_KEY' })]),
    });
  });

  test('sends the members with their JSON types', async () => {
    const token = await loginAdmin();
    const members = ['server_url=https://shop.example/townhall', 'limits={"requests_per_minute": 7}'];
    expect(await readAnswer(['bureaus.createBureau', ...members], token)).toMatchObject({
      server_url: 'https://shop.example/townhall',
      limits: { requests_per_minute: 7 },
    });
    expect(await readAnswer(['bureaus.listBureaus', 'limit=1'], token)).toMatchObject({
      items: [expect.anything()],
      next_cursor: expect.any(String),
    });
  });

  test('indents an answer without --json', async () => {
    const token = world.userToken;
    const answer = await callGateway(['ai.generateText', 'model=local/echo', 'prompt=How do I log in?'], {
      token,
    });
    expect(answer).toMatchObject({ code: 0, screen: expect.stringContaining('\n  "') });
  });

  test('prints the events of a stream', async () => {
    const token = world.userToken;
    const stream = await callGateway(
      [
        'ai.createChatCompletion',
        'model=local/echo',
        'stream=true',
        'messages=[{"role":"user","content":"three words here"}]',
      ],
      { token },
    );
    expect(stream.code).toBe(0);
    expect(stream.screen.trimEnd().split('\n').at(-1)).toBe('data: [DONE]');
  });

  test('takes a path parameter with a slash', async () => {
    expect(await readAnswer(['ai.getModel', 'model_id=local/echo'], world.userToken)).toMatchObject({
      id: 'local/echo',
    });
  });

  const speech = [
    'ai.synthesizeSpeech',
    '--body',
    JSON.stringify({ model: 'local/flite', text: 'A town hall.', format: 'wav' }),
  ];

  test('writes audio into a new file readable by its owner only', async () => {
    const token = world.userToken;
    const file = join(folder, 'speech.wav');
    expect(await callGateway([...speech, '--output', file], { token })).toMatchObject({
      code: 0,
      screen: '',
    });
    expect((await readFile(file)).subarray(0, 4).toString()).toBe('RIFF');
    expect((await stat(file)).mode & 0o777).toBe(0o600);
  });

  test('writes audio into a pipe', async () => {
    const { code, screen } = await callGateway(speech, { token: world.userToken });
    expect(code).toBe(0);
    expect(screen.slice(0, 4)).toBe('RIFF');
  });

  test('removes the file of a call that the server refuses', async () => {
    const file = join(folder, 'refused.wav');
    expect(await callGateway([...speech, '--output', file])).toMatchObject({
      code: 1,
      screen: expect.stringContaining('401'),
    });
    expect(existsSync(file)).toBe(false);
  });

  test('makes no call when the output file exists', async () => {
    const paidServer = await startCountingServer();
    const file = join(folder, 'there.wav');
    await writeFile(file, 'kept');
    expect(await call(['gateway', ...speech, '--url', paidServer.url, '--output', file])).toMatchObject({
      code: 1,
      screen: expect.stringContaining('there.wav: it exists already'),
    });
    expect(paidServer.requests()).toBe(0);
    expect(await readFile(file, 'utf8')).toBe('kept');
  });

  test.skipIf(!hasTerminal)('makes no call for audio on a terminal', async () => {
    const paidServer = await startCountingServer();
    const words = ['call', 'gateway', 'ai.synthesizeSpeech', 'text=hello', '--url', paidServer.url];
    const child = spawnOnTerminal(words, { cwd: folder });
    let screen = '';
    child.stdout.on('data', (piece: Buffer) => (screen += piece.toString('utf8')));
    const [code] = (await once(child, 'close')) as [number];
    expect(screen).toMatch(/audio\/wav.*--output FILE/s);
    expect(code).toBe(2);
    expect(paidServer.requests()).toBe(0);
  });

  test('calls the operations of an agent', async () => {
    const urlFlags = ['--url', agent.url];
    const token = agent.token;
    const { id } = JSON.parse(
      (await call(['agent', 'sessions.create', 'title=By hand', '--json', ...urlFlags], { token })).screen,
    ) as { id: string };
    expect(
      JSON.parse(
        (await call(['agent', 'sessions.get', `sessionId=${id}`, '--json', ...urlFlags], { token })).screen,
      ),
    ).toMatchObject({ id, title: 'By hand' });
    expect(await call(['agent', 'sessions.remove', `sessionId=${id}`, ...urlFlags], { token })).toEqual({
      code: 0,
      screen: '',
    });
    expect(await call(['agent', 'sessions.get', `sessionId=${id}`, ...urlFlags], { token })).toMatchObject({
      code: 1,
      screen: expect.stringContaining('404'),
    });
  });

  test('prints the code, message, member and request id of an error', async () => {
    const refusal = await callGateway(['ai.generateText', 'model=local/nothing', 'prompt=hi'], {
      token: world.userToken,
    });
    expect(refusal.code).toBe(1);
    expect(refusal.screen).toMatch(
      /^townhall call: 404 model_not_found: .+ \(model\) \[req_[0-9a-z]{26}\]\n$/,
    );
  });

  test('prints an error as JSON with --json', async () => {
    const asJson = await callGateway(['ai.generateText', 'model=local/nothing', 'prompt=hi', '--json'], {
      token: world.userToken,
    });
    expect(JSON.parse(asJson.screen)).toMatchObject({ error: { code: 'model_not_found' } });
  });

  test('exits with 1 without the credential that an operation needs', async () => {
    expect(await callGateway(['accounts.getMe'])).toMatchObject({
      code: 1,
      screen: expect.stringContaining('401'),
    });
  });

  test.each([
    ['a call without a server', [], 'gateway'],
    ['an unknown operation', ['gateway', 'env.upsertVariabl'], 'Did you mean env.upsertVariable?'],
    ['an unknown member', ['gateway', 'env.upsertVariable', 'kay=A'], 'Did you mean key?'],
    ['a member twice', ['gateway', 'env.upsertVariable', 'key=A', 'key=B'], 'twice'],
    ['a word without a value', ['gateway', 'env.upsertVariable', 'key'], 'NAME=VALUE'],
    ['a missing path parameter', ['gateway', 'ai.getModel'], 'model_id=VALUE'],
    [
      'text instead of JSON',
      ['gateway', 'ai.createChatCompletion', 'messages=hello'],
      'messages takes array',
    ],
    ['two bodies', ['gateway', 'env.upsertVariable', 'key=A', '--body', '{}'], 'not by both'],
    ['a body for an operation without one', ['gateway', 'accounts.getMe', '--body', '{}'], 'has no body'],
    ['an invalid address', ['gateway', 'accounts.getMe', '--url', 'localhost'], '--url'],
  ])('refuses %s without calling the server', async (_title, words, sentence) => {
    expect(await call(words)).toMatchObject({ code: 2, screen: expect.stringContaining(sentence) });
  });

  test('sends the token of a local edition to another server only with --token-file', async () => {
    await mkdir(join(folder, 'data'), { recursive: true });
    await writeFile(join(folder, 'data/local.token'), 'th_usr_local\n');
    const authorizations: (string | undefined)[] = [];
    const server = createServer(({ headers }, answer) => {
      authorizations.push(headers.authorization);
      answer.writeHead(200, { 'content-type': 'application/json' }).end('{}');
    });
    onTestFinished(() => void server.close());
    const { url } = await listen(server);
    expect((await call(['gateway', 'accounts.getMe', '--url', url])).code).toBe(0);
    expect(
      (await call(['gateway', 'accounts.getMe', '--url', url, '--token-file', 'data/local.token'])).code,
    ).toBe(0);
    expect(authorizations).toEqual([undefined, 'Bearer th_usr_local']);
  });

  test('names the server that does not answer', async () => {
    expect(await call(['gateway', 'directory.getHealth', '--url', 'http://127.0.0.1:1'])).toMatchObject({
      code: 1,
      screen: expect.stringMatching(/http:\/\/127\.0\.0\.1:1 does not answer/),
    });
  });

  test('lists every operation', async () => {
    const listResult = await call(['gateway']);
    const operations = await readOperations('gateway');
    expect(
      listResult.screen
        .trimEnd()
        .split('\n')
        .map((line) => line.split(' ', 1)[0]),
    ).toEqual(operations.map(({ operationId }) => operationId));
  });

  test('describes an operation without calling it', async () => {
    const description = await call(['gateway', 'credits.grantCredits', '--describe']);
    expect(description.screen).toMatch(
      /POST \/v1\/credits\/grant, with adminSession[^]*\n {2}user_id +string, required: The id of a user/,
    );
    const asJson = await call(['gateway', 'credits.grantCredits', '--describe', '--json']);
    expect(JSON.parse(asJson.screen)).toMatchObject({
      operation_id: 'credits.grantCredits',
      method: 'POST',
      members: expect.arrayContaining([
        expect.objectContaining({ name: 'user_id', place: 'body', required: true }),
      ]),
    });
  });

  // The command derives this from the document itself, so check it for every operation.
  test.each(['gateway', 'agent'] as const)(
    'finds the location of each member of the %s operations',
    async (surface) => {
      for (const { operationId, path, members, bodyType, isBodyOpen } of await readOperations(surface)) {
        const pathNames = [...path.matchAll(/\{([^}]+)\}/g)].map(([, name]) => name);
        expect(
          members.filter(({ place }) => place === 'path').map(({ name }) => name),
          operationId,
        ).toEqual(pathNames);
        expect(new Set(members.map(({ name }) => name)).size, operationId).toBe(members.length);
        if (bodyType === 'application/json' && !isBodyOpen)
          expect(
            members.some(({ place }) => place === 'body'),
            operationId,
          ).toBe(true);
      }
    },
  );
});
