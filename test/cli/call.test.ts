// `townhall call` in a process of its own, beside a running gateway and a running agent.
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { readOperations } from '../../src/cli/call/operations.ts';
import { startAgent, type TestAgent } from '../support/agent.ts';
import { startGateway, testAdministrator, type GatewayWorld } from '../support/gateway.ts';
import { entry, townhall } from './townhall.ts';

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

async function call(
  words: string[],
  { token, input }: { token?: string; input?: string } = {},
): Promise<{ code: number | string; screen: string }> {
  const command = townhall(['call', ...words], {
    cwd: folder,
    env: token === undefined ? {} : { TOWNHALL_TOKEN: token },
    ...(input !== undefined && { input }),
  });
  const code = await command.ended;
  return { code, screen: command.screen() };
}
const hasScript = spawnSync('script', ['--version']).status === 0;

/** A server that counts requests: a call to it would be a paid one. */
async function startCountingServer(): Promise<{ url: string; requests(): number; close(): void }> {
  let requests = 0;
  const server = createServer((_request, response) => {
    requests += 1;
    response.writeHead(200, { 'content-type': 'audio/wav' }).end('RIFF');
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    requests: () => requests,
    close: () => void server.close(),
  };
}
const gateway = (words: string[], options?: Parameters<typeof call>[1]) =>
  call(['gateway', ...words, '--url', world.url], options);

describe('townhall call', () => {
  test.each(['', '.', '..'])('refuses %j as a path parameter before sending anything', async (value) => {
    const server = await startCountingServer();
    try {
      const outcome = await call(['agent', 'sessions.get', `sessionId=${value}`, '--url', server.url]);
      expect(outcome).toMatchObject({
        code: 2,
        screen: expect.stringContaining(`sessionId cannot be "${value}"`),
      });
      expect(server.requests()).toBe(0);
    } finally {
      server.close();
    }
  });

  test('logs in with a body from standard input and uses the session', async () => {
    const login = await gateway(['admin.login', '--body', '-', '--json'], {
      input: JSON.stringify({ admin_id: testAdministrator.adminId, password: testAdministrator.password }),
    });
    expect(login.code).toBe(0);
    const { session_token: token } = JSON.parse(login.screen) as { session_token: string };

    expect(
      await gateway(['env.upsertVariable', 'key=ACME_API_KEY', 'value=sk-acme-0123456789-1234'], { token }),
    ).toMatchObject({ code: 0, screen: expect.stringContaining('"key": "ACME_API_KEY"') });
    const variables = JSON.parse((await gateway(['env.listVariables', '--json'], { token })).screen) as {
      items: { key: string }[];
    };
    expect(variables.items.map(({ key }) => key)).toContain('ACME_API_KEY');

    const bureau = await gateway(
      [
        'bureaus.createBureau',
        'server_url=https://shop.example/townhall',
        'limits={"requests_per_minute": 7}',
        '--json',
      ],
      { token },
    );
    expect(JSON.parse(bureau.screen)).toMatchObject({
      server_url: 'https://shop.example/townhall',
      limits: { requests_per_minute: 7 },
    });
    const page = JSON.parse(
      (await gateway(['bureaus.listBureaus', 'limit=1', '--json'], { token })).screen,
    ) as { next_cursor: string | null };
    expect(page.next_cursor).toEqual(expect.any(String));
  });

  test('prints an answer for reading and a stream as it arrives', async () => {
    const token = world.userToken;
    const answer = await gateway(['ai.generateText', 'model=local/echo', 'prompt=How do I log in?'], {
      token,
    });
    expect(answer).toMatchObject({ code: 0, screen: expect.stringContaining('\n  "') });
    const stream = await gateway(
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
    expect(
      JSON.parse((await gateway(['ai.getModel', 'model_id=local/echo', '--json'], { token })).screen),
    ).toMatchObject({ id: 'local/echo' });
  });

  const speech = [
    'ai.synthesizeSpeech',
    '--body',
    JSON.stringify({ model: 'local/flite', text: 'A town hall.', format: 'wav' }),
  ];

  test('writes audio into a new file readable by its owner only', async () => {
    const token = world.userToken;
    const file = join(folder, 'speech.wav');
    expect(await gateway([...speech, '--output', file], { token })).toMatchObject({ code: 0, screen: '' });
    expect((await readFile(file)).subarray(0, 4).toString()).toBe('RIFF');
    expect((await stat(file)).mode & 0o777).toBe(0o600);
  });

  test('writes audio into a pipe', async () => {
    const { code, screen } = await gateway(speech, { token: world.userToken });
    expect(code).toBe(0);
    expect(screen.slice(0, 4)).toBe('RIFF');
  });

  test('removes the file of a call that the server refuses', async () => {
    const file = join(folder, 'refused.wav');
    expect(await gateway([...speech, '--output', file])).toMatchObject({
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
    paidServer.close();
  });

  test.skipIf(!hasScript)('makes no call for audio on a terminal', async () => {
    const paidServer = await startCountingServer();
    const words = [
      process.execPath,
      entry,
      'call',
      'gateway',
      'ai.synthesizeSpeech',
      'text=hello',
      '--url',
      paidServer.url,
    ];
    const child = spawn(
      'script',
      [
        '--quiet',
        '--return',
        '--echo',
        'never',
        '--command',
        words.map((word) => `'${word}'`).join(' '),
        '/dev/null',
      ],
      { cwd: folder },
    );
    let screen = '';
    child.stdout.on('data', (piece: Buffer) => (screen += piece.toString('utf8')));
    const [code] = (await once(child, 'close')) as [number];
    expect(screen).toMatch(/audio\/wav.*--output FILE/s);
    expect(code).toBe(2);
    expect(paidServer.requests()).toBe(0);
    paidServer.close();
  });

  test('calls an agent with the members of its paths and its queries', async () => {
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
    const refusal = await gateway(['ai.generateText', 'model=local/nothing', 'prompt=hi'], {
      token: world.userToken,
    });
    expect(refusal.code).toBe(1);
    expect(refusal.screen).toMatch(
      /^townhall call: 404 model_not_found: .+ \(model\) \[req_[0-9a-z]{26}\]\n$/,
    );
    const asJson = await gateway(['ai.generateText', 'model=local/nothing', 'prompt=hi', '--json'], {
      token: world.userToken,
    });
    expect(JSON.parse(asJson.screen)).toMatchObject({ error: { code: 'model_not_found' } });
    expect(await gateway(['accounts.getMe'])).toMatchObject({
      code: 1,
      screen: expect.stringContaining('401'),
    });
  });

  test.each([
    ['no server', [], 'gateway'],
    ['an operation that is none', ['gateway', 'env.upsertVariabl'], 'Did you mean env.upsertVariable?'],
    ['a member that is none', ['gateway', 'env.upsertVariable', 'kay=A'], 'Did you mean key?'],
    ['a member twice', ['gateway', 'env.upsertVariable', 'key=A', 'key=B'], 'twice'],
    ['a word without a value', ['gateway', 'env.upsertVariable', 'key'], 'NAME=VALUE'],
    ['a path without its member', ['gateway', 'ai.getModel'], 'model_id=VALUE'],
    [
      'text where JSON belongs',
      ['gateway', 'ai.createChatCompletion', 'messages=hello'],
      'messages takes array',
    ],
    ['two bodies', ['gateway', 'env.upsertVariable', 'key=A', '--body', '{}'], 'not by both'],
    ['a body where none belongs', ['gateway', 'accounts.getMe', '--body', '{}'], 'has no body'],
    ['an address that is none', ['gateway', 'accounts.getMe', '--url', 'localhost'], '--url'],
  ])('refuses %s without calling the server', async (_what, words, sentence) => {
    expect(await call(words)).toMatchObject({ code: 2, screen: expect.stringContaining(sentence) });
  });

  test('sends the credential of a local edition to this machine only', async () => {
    await mkdir(join(folder, 'data'), { recursive: true });
    await writeFile(join(folder, 'data/local.token'), 'th_usr_local\n');
    const authorizations: (string | undefined)[] = [];
    const server = createServer(({ headers }, answer) => {
      authorizations.push(headers.authorization);
      answer.writeHead(200, { 'content-type': 'application/json' }).end('{}');
    });
    await once(server.listen(0, '127.0.0.1'), 'listening');
    const baseUrl = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    expect((await call(['gateway', 'accounts.getMe', '--url', baseUrl])).code).toBe(0);
    expect(
      (await call(['gateway', 'accounts.getMe', '--url', baseUrl, '--token-file', 'data/local.token'])).code,
    ).toBe(0);
    server.close();
    expect(authorizations).toEqual([undefined, 'Bearer th_usr_local']);
  });

  test('names the server that does not answer', async () => {
    expect(await call(['gateway', 'directory.getHealth', '--url', 'http://127.0.0.1:1'])).toMatchObject({
      code: 1,
      screen: expect.stringMatching(/http:\/\/127\.0\.0\.1:1 does not answer/),
    });
  });

  test('lists every operation and describes one without calling it', async () => {
    const listResult = await call(['gateway']);
    const operations = await readOperations('gateway');
    expect(
      listResult.screen
        .trimEnd()
        .split('\n')
        .map((line) => line.split(' ', 1)[0]),
    ).toEqual(operations.map(({ operationId }) => operationId));
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
