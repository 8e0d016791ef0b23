// The console's server: authentication, forwarded calls, and its answers while the agent is unreachable.
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { createOneTimeLogin, readBearer } from '../../src/console/one-time-login.ts';
import { readConsoleConfig } from '../../src/console/index.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import { createToken } from '../../src/kernel/secrets/secret.ts';
import { bearer, redeem, startConsole, type TestConsole } from '../support/console.ts';
import { rawRequest } from '../support/raw-http.ts';
import { listen } from '../support/local-server.ts';

interface AgentRequest {
  method: string;
  url: string;
  authorization: string;
  body: string;
}

/** One answer: JSON or a stream of events. With `hang`, the agent never answers. */
interface AgentAnswer {
  status: number;
  body?: object;
  hang?: true;
  events?: Iterable<string>;
}

/** An agent that records requests and sends the answers that a test sets. */
async function startScriptedAgent() {
  const requests: AgentRequest[] = [];
  let answer: (request: AgentRequest) => AgentAnswer = () => ({ status: 200, body: {} });
  let bytesWritten = 0;
  const disconnection = Promise.withResolvers<void>();

  /** Like an agent's event stream, this one never ends. */
  async function sendEvents(response: ServerResponse, events: Iterable<string>): Promise<void> {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    for (const event of events) {
      bytesWritten += event.length;
      if (!response.write(event)) await Promise.race([once(response, 'drain'), disconnection.promise]);
      if (response.destroyed) return;
    }
  }

  async function serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    let requestBody = '';
    for await (const chunk of request) requestBody += String(chunk);
    const agentRequest = {
      method: request.method ?? '',
      url: request.url ?? '',
      authorization: request.headers.authorization ?? '',
      body: requestBody,
    };
    requests.push(agentRequest);
    const { status, body = {}, hang = false, events } = answer(agentRequest);
    response.once('close', () => disconnection.resolve());
    if (hang) return;
    if (events !== undefined) return sendEvents(response, events);
    response
      .writeHead(status, { 'content-type': 'application/json', 'x-request-id': 'req_agent' })
      .end(JSON.stringify(body));
  }

  const server = createServer((request, response) => void serve(request, response));
  return {
    url: (await listen(server)).url,
    requests,
    disconnection: disconnection.promise,
    /** Bytes of events written so far. */
    countBytes: () => bytesWritten,
    setAnswer(next: typeof answer) {
      answer = next;
    },
    async close() {
      if (!server.listening) return;
      const closeEvent = once(server, 'close');
      server.closeAllConnections();
      server.close();
      await closeEvent;
    },
  };
}

/** Hosts, origins and sites other than those of the console, by a name for the failure message. */
function otherHeaders({ host, port }: URL): Record<string, [string, string][]> {
  return {
    'another host': [['Host', `evil.test:${port}`]],
    'a name that begins with localhost': [['Host', `localhost.evil.test:${port}`]],
    'a resolving name': [['Host', `127.0.0.1.nip.io:${port}`]],
    'another port': [['Host', '127.0.0.1:1']],
    'two hosts': [
      ['Host', host],
      ['Host', 'evil.test'],
    ],
    'the origin null': [
      ['Host', host],
      ['Origin', 'null'],
    ],
    'another origin': [
      ['Host', host],
      ['Origin', 'https://evil.test'],
    ],
    'another port as origin': [
      ['Host', host],
      ['Origin', 'http://127.0.0.1:1'],
    ],
    'another site': [
      ['Host', host],
      ['Sec-Fetch-Site', 'cross-site'],
    ],
    'another port of this site': [
      ['Host', host],
      ['Sec-Fetch-Site', 'same-site'],
    ],
  };
}

let folder: string;
let tokenFile: string;
let agent: Awaited<ReturnType<typeof startScriptedAgent>>;
let testConsole: TestConsole;
const agentToken = createToken('agt');

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'townhall-console-'));
  tokenFile = join(folder, 'agent.token');
});
afterAll(() => rm(folder, { recursive: true, force: true }));
beforeEach(async () => {
  await writeFile(tokenFile, `${agentToken}\n`);
  agent = await startScriptedAgent();
  testConsole = await startConsole({ url: agent.url, tokenFile });
});
afterEach(async () => {
  await testConsole.close();
  await agent.close();
});

describe('the login', () => {
  test('exchanges a code once for a key that no cookie carries', async () => {
    const address = testConsole.console.loginUrl();
    const [, code = ''] = /code=([0-9A-Za-z]+)$/.exec(address) ?? [];
    expect(62n ** BigInt(code.length)).toBeGreaterThan(2n ** 130n);
    const page = await fetch(address, { headers: { accept: 'text/html' } });
    expect([page.status, page.headers.get('content-type'), page.headers.get('set-cookie')]).toEqual([
      200,
      'text/html; charset=utf-8',
      null,
    ]);
    const login = await redeem(address);
    expect([login.status, login.headers.get('set-cookie')]).toEqual([200, null]);
    const { key } = (await login.json()) as { key: string };
    expect(key).toMatch(/^[0-9A-Za-z]{43}$/);
    expect(key).not.toBe(code);
    expect((await testConsole.call('sessions.list', {}, key)).status).toBe(200);

    const secondAnswer = await redeem(address);
    expect([secondAnswer.status, await secondAnswer.json()]).toMatchObject([
      401,
      { error: { code: 'authentication_required' } },
    ]);
    expect((await fetch(address)).status).toBe(401);
  });

  test('gives one key for a code that twenty pages redeem at once', async () => {
    const address = testConsole.console.loginUrl();
    const answers = await Promise.all(Array.from({ length: 20 }, () => redeem(address)));
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(1);
  });

  test.each([
    [{}, 401],
    [{ code: 1 }, 401],
    [{ code: null }, 401],
    [{ code: '' }, 401],
    [{ code: 'x'.repeat(2_000) }, 413],
  ])('refuses a body without a valid code: %j', async (body, status) => {
    const answer = await fetch(`${testConsole.url}/open`, {
      method: 'POST',
      headers: { origin: testConsole.url, 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
    expect(answer.status).toBe(status);
  });

  describe('createOneTimeLogin', () => {
    let nowMs: number;
    let login: ReturnType<typeof createOneTimeLogin>;
    beforeEach(() => {
      nowMs = 0;
      login = createOneTimeLogin({
        codeTtlMs: 60_000,
        sessionTtlMs: 1_000_000,
        clock: { ...systemClock, monotonicMs: () => nowMs },
      });
    });

    test('redeems a code once before it expires', () => {
      const [code, expiredCode] = [login.createCode(), login.createCode()];
      nowMs = 59_999;
      expect(login.redeem(code)).toMatch(/^[0-9A-Za-z]{43}$/);
      expect(login.redeem(code)).toBeNull();
      nowMs = 60_000;
      expect(login.redeem(expiredCode)).toBeNull();
    });

    test('redeems no text that resembles a code', () => {
      const code = login.createCode();
      const otherCase = code.toLowerCase() === code ? code.toUpperCase() : code.toLowerCase();
      for (const text of ['', 'x', code.slice(0, -1), `${code}0`, otherCase])
        expect(login.redeem(text)).toBeNull();
    });

    test('accepts a key until its session ends', () => {
      const key = login.redeem(login.createCode()) ?? '';
      nowMs = 999_999;
      expect(login.isValidKey(key)).toBe(true);
      nowMs = 1_000_000;
      expect(login.isValidKey(key)).toBe(false);
    });

    test('accepts no code as a key', () => {
      const [code, openCode] = [login.createCode(), login.createCode()];
      login.redeem(code);
      for (const text of [undefined, '', code, openCode]) expect(login.isValidKey(text)).toBe(false);
    });
  });

  test('reads only the token of a bearer header', () => {
    expect(readBearer('Bearer abc')).toBe('abc');
    for (const header of [undefined, '', 'abc', 'Basic abc', 'Bearer ', 'Bearer a b', 'Bearer a, Bearer b'])
      expect(readBearer(header)).toBeUndefined();
  });

  test.each(['/events?session=a', '/call/console.overview'])('refuses %s without a key', async (path) => {
    const cookie = `townhall_console_${new URL(testConsole.url).port}=${await testConsole.logIn()}`;
    for (const headers of [{}, bearer('wrong'), { cookie }]) {
      const isCall = path.startsWith('/call/');
      const answer = await fetch(`${testConsole.url}${path}`, {
        method: isCall ? 'POST' : 'GET',
        headers: { ...headers, origin: testConsole.url, 'content-type': 'application/json' },
        ...(isCall ? { body: '{}' } : {}),
      });
      expect([path, answer.status, answer.headers.get('www-authenticate')]).toEqual([path, 401, 'Bearer']);
      expect(await answer.json()).toMatchObject({ error: { code: 'authentication_required' } });
    }
    expect(agent.requests).toEqual([]);
  });

  test('serves pages without a key, since they contain no secret', async () => {
    for (const path of ['/', '/main.js', '/console.css', '/mark.svg']) {
      const answer = await fetch(`${testConsole.url}${path}`);
      expect([path, answer.status]).toEqual([path, 200]);
      expect(await answer.text()).not.toContain(agentToken);
    }
    expect(agent.requests).toEqual([]);
  });

  test('never includes the agent’s token in a page', async () => {
    const key = await testConsole.logIn();
    for (const path of ['/', '/main.js']) {
      const answer = await fetch(`${testConsole.url}${path}`, { headers: bearer(key) });
      expect([path, answer.status]).toEqual([path, 200]);
      expect(await answer.text()).not.toContain(agentToken.slice(0, 20));
    }
  });
});

describe('the request guard', () => {
  const ownHost = (): [string, string] => ['Host', new URL(testConsole.url).host];

  /** Sends an empty object with exactly these headers, those of its body and `Connection: close`. */
  const send = (method: string, path: string, headers: readonly [string, string][]) =>
    rawRequest(
      testConsole.url,
      method,
      path,
      [...headers, ['Content-Type', 'application/json'], ['Content-Length', '2'], ['Connection', 'close']],
      '{}',
    );

  test('refuses other hosts, origins and sites even with a key', async () => {
    const key = await testConsole.logIn();
    const code = new URL(testConsole.console.loginUrl());
    for (const [name, headers] of Object.entries(otherHeaders(new URL(testConsole.url)))) {
      for (const [method, path] of [
        ['GET', '/'],
        ['GET', '/main.js'],
        ['GET', '/events?session=a'],
        ['GET', `${code.pathname}${code.search}`],
        ['POST', '/open'],
        ['POST', '/call/console.overview'],
        ['OPTIONS', '/call/console.overview'],
      ] as const) {
        const answer = await send(method, path, [...headers, ['Authorization', `Bearer ${key}`]]);
        expect([name, method, path, answer.status]).toEqual([name, method, path, 403]);
        const openingHeaders = Object.keys(answer.headers).filter(
          (header) => header.startsWith('access-control-') || header === 'set-cookie',
        );
        expect(openingHeaders).toEqual([]);
      }
    }
    expect(agent.requests).toEqual([]);
    // The refused requests have not used up the code.
    expect((await redeem(code.href)).status).toBe(200);
  });

  // Node.js itself answers with 400.
  test('refuses a request without a host', async () => {
    expect((await send('GET', '/', [])).status).toBe(400);
  });

  test.each<[string, number, [string, string][]]>([
    ['no origin', 403, []],
    ['the site of an address bar', 403, [['Sec-Fetch-Site', 'none']]],
    ['the same site', 200, [['Sec-Fetch-Site', 'same-origin']]],
  ])('answers a call from %s with %i', async (_origin, status, headers) => {
    const key = await testConsole.logIn();
    const authorization: [string, string] = ['Authorization', `Bearer ${key}`];
    const answer = await send('POST', '/call/sessions.list', [ownHost(), authorization, ...headers]);
    expect(answer.status).toBe(status);
    expect(agent.requests).toHaveLength(status === 200 ? 1 : 0);
  });

  test('accepts a call with the origin of its page', async () => {
    const key = await testConsole.logIn();
    const headers: [string, string][] = [
      ownHost(),
      ['Authorization', `Bearer ${key}`],
      ['Origin', testConsole.url],
    ];
    expect((await send('POST', '/call/sessions.list', headers)).status).toBe(200);
  });

  test('refuses a call of its page without a key', async () => {
    expect((await testConsole.call('sessions.list', {}, '')).status).toBe(401);
  });

  test.each([
    ['//[', 404],
    ['//evil.test/main.js', 404],
    ['*', 400],
  ])('answers the request target %s with %i', async (target, status) => {
    const answer = await rawRequest(testConsole.url, 'GET', target, [ownHost(), ['Connection', 'close']]);
    expect(answer.status).toBe(status);
  });

  test('answers a request target with its own host', async () => {
    const target = `${testConsole.url}/main.js`;
    const answer = await rawRequest(testConsole.url, 'GET', target, [ownHost(), ['Connection', 'close']]);
    expect(answer.status).toBe(200);
  });

  test('sends security headers with every response', async () => {
    const key = await testConsole.logIn();
    for (const path of ['/', '/main.js', '/nothing', '/open?code=x']) {
      const { headers } = await fetch(`${testConsole.url}${path}`, { headers: bearer(key) });
      expect(headers.get('content-security-policy')).toMatch(
        /default-src 'none'; script-src 'self'; style-src 'self'; .*frame-ancestors 'none'/,
      );
      expect(headers.get('content-security-policy')).not.toMatch(/unsafe|\*|https?:/);
      expect(
        Object.fromEntries(
          ['cache-control', 'x-frame-options', 'x-content-type-options', 'referrer-policy'].map((name) => [
            name,
            headers.get(name),
          ]),
        ),
      ).toEqual({
        'cache-control': 'no-store',
        'x-frame-options': 'DENY',
        'x-content-type-options': 'nosniff',
        'referrer-policy': 'no-referrer',
      });
    }
    const page = await (await fetch(`${testConsole.url}/`, { headers: bearer(key) })).text();
    expect(page).not.toMatch(/<script(?![^>]*\ssrc=)|\son\w+=|style=|https?:\/\//);
  });
});

describe('a forwarded call', () => {
  test('carries the agent’s current token', async () => {
    const key = await testConsole.logIn();
    agent.setAnswer(() => ({ status: 200, body: { items: [], nextCursor: null } }));
    const answer = await testConsole.call('sessions.list', { limit: 3 }, key);
    expect([answer.status, await answer.json()]).toEqual([200, { items: [], nextCursor: null }]);
    expect(agent.requests).toMatchObject([
      { method: 'GET', url: '/api/sdk/sessions?limit=3', authorization: `Bearer ${agentToken}` },
    ]);
    const nextToken = createToken('agt');
    await writeFile(tokenFile, `${nextToken}\n`);
    await testConsole.call('sessions.list', {}, key);
    expect(agent.requests[1]?.authorization).toBe(`Bearer ${nextToken}`);
  });

  test.each([
    'sessions.remove',
    'sessions.execute',
    'plugins.callAction',
    'status.getHealth',
    '__proto__',
    'constructor',
    'console.toString',
    'sessions.list/x',
    '..%2fmain.js',
    '',
  ])('is refused when it is not on the list: %s', async (operation) => {
    const key = await testConsole.logIn();
    expect((await testConsole.call(operation, {}, key)).status).toBe(404);
    expect(agent.requests).toEqual([]);
  });

  test.each([
    ['sessions.get', { sessionId: '..' }, {}, 400],
    ['sessions.get', {}, {}, 400],
    ['sessions.list', [], {}, 400],
    ['sessions.list', {}, { 'content-type': 'text/plain' }, 415],
  ])('is refused as %s with %j and the headers %j', async (operation, members, headers, status) => {
    const key = await testConsole.logIn();
    expect((await testConsole.call(operation, members, key, headers)).status).toBe(status);
    expect(agent.requests).toEqual([]);
  });

  test('cannot leave its path', async () => {
    const key = await testConsole.logIn();
    await testConsole.call('sessions.get', { sessionId: '../../status?x=1' }, key);
    expect(agent.requests[0]?.url).toBe('/api/sdk/sessions/..%2F..%2Fstatus%3Fx%3D1');
  });

  test('is refused with GET', async () => {
    const key = await testConsole.logIn();
    const response = await fetch(`${testConsole.url}/call/sessions.list`, { headers: bearer(key) });
    expect([response.status, response.headers.get('allow')]).toEqual([405, 'POST']);
  });

  const agentError = {
    type: 'invalid_request_error',
    code: 'invalid_request',
    message: 'It does not fit.',
    param: 'payload',
    request_id: 'req_agent',
    details: [{ path: 'payload.times', message: 'must be integer' }],
  };

  test('returns the agent’s error with details and request id', async () => {
    const key = await testConsole.logIn();
    agent.setAnswer(() => ({ status: 400, body: { success: false, error: agentError } }));
    const answer = await testConsole.call('services.callCommand', { serviceName: 'web', command: 'x' }, key);
    const { type: _type, ...error } = agentError;
    expect([answer.status, await answer.json()]).toEqual([400, { error }]);
  });

  // With a 401, the page would believe that its own key is invalid.
  test('is 502 when the agent refuses the token', async () => {
    const key = await testConsole.logIn();
    agent.setAnswer(() => ({ status: 401, body: { error: { ...agentError, code: 'invalid_token' } } }));
    const response = await testConsole.call('sessions.list', {}, key);
    expect([response.status, await response.json()]).toMatchObject([
      502,
      { error: { code: 'agent_refused' } },
    ]);
  });

  test('is 503 when the agent does not answer', async () => {
    const key = await testConsole.logIn();
    await agent.close();
    const response = await testConsole.call('sessions.list', {}, key);
    expect([response.status, await response.json()]).toMatchObject([
      503,
      { error: { code: 'agent_unreachable', request_id: expect.stringMatching(/^req_/) } },
    ]);
  });

  test('is aborted at the agent when the page disconnects', async () => {
    const key = await testConsole.logIn();
    agent.setAnswer(() => ({ status: 200, hang: true }));
    const page = new AbortController();
    const { host } = new URL(testConsole.url);
    const call = fetch(`${testConsole.url}/call/sessions.list`, {
      method: 'POST',
      signal: page.signal,
      headers: { host, ...bearer(key), origin: testConsole.url, 'content-type': 'application/json' },
      body: '{}',
    }).catch(() => 'disconnected');
    await expect.poll(() => agent.requests.length).toBe(1);
    page.abort();
    expect(await call).toBe('disconnected');
    await agent.disconnection;
  });
});

describe('the stream of a session', () => {
  const base = { sessionId: 's', time: '2026-11-20T09:00:00.000Z' };
  const rest = { status: 'idle', activeRunId: null, queueLength: 0 };
  const readyFrame = (after: number, headSeq: number) =>
    `data: ${JSON.stringify({ type: 'stream.ready', ...base, after, headSeq, ...rest })}\n\n`;
  const updateFrame = (seq: number, title: string) =>
    `id: ${seq}\ndata: ${JSON.stringify({ type: 'session.updated', ...base, seq, title })}\n\n`;
  const open = (query: string, headers: Record<string, string>, signal?: AbortSignal) =>
    fetch(`${testConsole.url}/events?${query}`, { headers, ...(signal ? { signal } : {}) });

  test('resumes at the page’s position', async () => {
    const key = await testConsole.logIn();
    agent.setAnswer(() => ({ status: 200, events: [readyFrame(7, 8), updateFrame(8, 'New')] }));
    const page = new AbortController();
    const { body, headers } = await open('session=s&after=7', bearer(key), page.signal);
    expect(headers.get('content-type')).toContain('text/event-stream');
    let text = '';
    for await (const chunk of body as unknown as AsyncIterable<Uint8Array>) {
      text += Buffer.from(chunk).toString();
      if (text.includes('"New"')) break;
    }
    expect(agent.requests[0]?.url).toBe('/api/sdk/sessions/s/events?after=7');
    expect(text).toMatch(/data: \{"type":"stream\.ready"[\s\S]*\ndata: \{"type":"session\.updated"/);
    page.abort();
    await agent.disconnection;
  });

  test('ends with an event that gives the reason', async () => {
    const key = await testConsole.logIn();
    agent.setAnswer(() => ({
      status: 404,
      body: {
        error: {
          type: 't',
          code: 'session_not_found',
          message: 'There is no session with this id.',
          param: 'sessionId',
          request_id: 'req_agent',
        },
      },
    }));
    const text = await (await open('session=s', bearer(key))).text();
    const error = '{"error":{"code":"session_not_found","message":"There is no session with this id."';
    expect(text).toContain(`event: failed\ndata: ${error}`);
  });

  test.each(['session=..', 'session=s&after=-1', 'session=s&after=x', ''])(
    'is refused for the query %j',
    async (query) => {
      expect((await open(query, bearer(await testConsole.logIn()))).status).toBe(400);
      expect(agent.requests).toEqual([]);
    },
  );

  test('reads from the agent no faster than the page reads', async () => {
    const key = await testConsole.logIn();
    const title = 'x'.repeat(64 * 1024);
    const events = function* () {
      yield readyFrame(0, 4_000);
      for (let seq = 1; seq <= 4_000; seq += 1) yield updateFrame(seq, title);
    };
    agent.setAnswer(() => ({ status: 200, events: events() }));
    const { port, host } = new URL(testConsole.url);
    // A page that sends the request and then reads nothing.
    const page = connect(Number(port), '127.0.0.1');
    page.pause();
    page.write(`GET /events?session=s HTTP/1.1\r\nHost: ${host}\r\nAuthorization: Bearer ${key}\r\n\r\n`);
    let lengthBefore = -1;
    await expect
      .poll(
        () => {
          const isStill = agent.countBytes() > 0 && agent.countBytes() === lengthBefore;
          lengthBefore = agent.countBytes();
          return isStill;
        },
        { timeout: 20_000, interval: 500 },
      )
      .toBe(true);
    // Of 256 MB, only what the socket buffers hold.
    expect(agent.countBytes()).toBeLessThan(32 * 1024 * 1024);
    page.destroy();
    await agent.disconnection;
  });
});

describe('console.overview', () => {
  const problem = (code: string) => ({
    error: { type: 't', code, message: 'No.', param: null, request_id: 'r' },
  });

  /** Lets the agent answer like an agent of the classic variant. */
  function answerAsClassic(): void {
    const status = { name: 'clerk', status: 'running', timestamp: '2026-11-20T09:00:00.000Z' };
    agent.setAnswer(({ url }) => {
      if (url === '/api/plugins/catalog') return { status: 404, body: problem('route_not_found') };
      if (url === '/api/status') return { status: 200, body: status };
      return { status: 200, body: { success: true, services: [], items: [], nextCursor: null } };
    });
  }

  async function readAgentState(key: string): Promise<object> {
    const response = await testConsole.call('console.overview', {}, key);
    return ((await response.json()) as { agent: object }).agent;
  }

  test('describes the agent and its variant', async () => {
    answerAsClassic();
    expect(await readAgentState(await testConsole.logIn())).toEqual({
      state: 'connected',
      url: agent.url,
      name: 'clerk',
      status: 'running',
      variant: 'classic',
    });
  });

  test('reports a token that the agent refuses, until the agent accepts it', async () => {
    const key = await testConsole.logIn();
    agent.setAnswer(() => ({ status: 401, body: problem('invalid_token') }));
    expect(await readAgentState(key)).toMatchObject({
      state: 'refused',
      message: expect.stringContaining('token'),
    });
    answerAsClassic();
    expect(await readAgentState(key)).toMatchObject({ state: 'connected' });
  });

  test('reports a missing token file, until it exists', async () => {
    const key = await testConsole.logIn();
    answerAsClassic();
    await rm(tokenFile);
    expect(await readAgentState(key)).toMatchObject({
      state: 'refused',
      message: expect.stringContaining(tokenFile),
    });
    await writeFile(tokenFile, `${agentToken}\n`);
    expect(await readAgentState(key)).toMatchObject({ state: 'connected' });
  });

  test('reports an agent that does not answer', async () => {
    await agent.close();
    expect(await readAgentState(await testConsole.logIn())).toMatchObject({
      state: 'unreachable',
      message: 'The agent does not answer.',
    });
  });
});

describe('console.runs', () => {
  const run = (runId: string, startedAt: string | null) => ({
    runId,
    status: 'failed',
    error: { code: 'upstream_failed', message: `Why ${runId}` },
    startedAt,
    text: 'x'.repeat(1_000),
  });
  const missingRun = {
    error: { type: 't', code: 'run_not_found', message: 'No.', param: 'runId', request_id: 'r' },
  };

  test('returns the reasons of runs, even if an ancestor of the fork executed them', async () => {
    const key = await testConsole.logIn();
    agent.setAnswer(({ url }) => {
      if (url === '/api/sdk/sessions/fork') return { status: 200, body: { parentSessionId: 'parent' } };
      if (url === '/api/sdk/sessions/parent') return { status: 200, body: { parentSessionId: null } };
      if (url === '/api/sdk/sessions/fork/runs/a')
        return { status: 200, body: run('a', '2026-11-20T09:00:00.000Z') };
      if (url === '/api/sdk/sessions/parent/runs/b')
        return { status: 200, body: run('b', '2026-11-20T09:00:00.000Z') };
      if (url === '/api/sdk/sessions/parent/runs/c') return { status: 200, body: run('c', null) };
      return { status: 404, body: missingRun };
    });
    const answer = await testConsole.call(
      'console.runs',
      { sessionId: 'fork', runIds: ['a', 'b', 'c', 'd'] },
      key,
    );
    expect(await answer.json()).toEqual({
      items: ['a', 'b'].map((runId) => ({
        runId,
        status: 'failed',
        reason: `Why ${runId} (upstream_failed)`,
        startedAt: '2026-11-20T09:00:00.000Z',
      })),
    });
  });

  test('skips a run whose session was removed', async () => {
    const key = await testConsole.logIn();
    agent.setAnswer(({ url }) => {
      if (url === '/api/sdk/sessions/fork') return { status: 200, body: { parentSessionId: 'removed' } };
      if (url === '/api/sdk/sessions/fork/runs/a')
        return { status: 200, body: run('a', '2026-11-20T09:00:00.000Z') };
      const code = url.startsWith('/api/sdk/sessions/removed') ? 'session_not_found' : 'run_not_found';
      return { status: 404, body: { error: { ...missingRun.error, code } } };
    });
    const answer = await testConsole.call('console.runs', { sessionId: 'fork', runIds: ['a', 'b'] }, key);
    expect([answer.status, await answer.json()]).toMatchObject([200, { items: [{ runId: 'a' }] }]);
  });

  test('is 404 for a session that was removed', async () => {
    const key = await testConsole.logIn();
    const code = 'session_not_found';
    agent.setAnswer(() => ({ status: 404, body: { error: { ...missingRun.error, code } } }));
    const answer = await testConsole.call('console.runs', { sessionId: 's', runIds: ['a'] }, key);
    expect([answer.status, await answer.json()]).toMatchObject([404, { error: { code } }]);
  });

  test.each([
    {},
    { sessionId: 's' },
    { sessionId: 's', runIds: 'a' },
    { sessionId: 's', runIds: [1] },
    { sessionId: 's', runIds: Array.from({ length: 101 }, () => 'a') },
  ])('refuses the members %j', async (members) => {
    const answer = await testConsole.call('console.runs', members, await testConsole.logIn());
    expect([answer.status, await answer.json()]).toMatchObject([400, { error: { code: 'invalid_request' } }]);
    expect(agent.requests).toEqual([]);
  });
});

describe('readConsoleConfig', () => {
  test.each([
    'http://example.com',
    'ftp://127.0.0.1',
    'http://user:secret@127.0.0.1:5314',
    'http://127.0.0.1.evil.test',
    'nothing',
    'http://127.0.0.1/?x=1',
  ])('refuses to send the token to %s', (url) => {
    expect(() => readConsoleConfig({ 'agent-url': url }, {})).toThrow(/--agent-url takes/);
  });

  test('finds the token file where the agent writes it', () => {
    expect(readConsoleConfig({ 'data-dir': '/data/agent' }, {}).tokenFile).toBe('/data/agent/agent.token');
    expect(readConsoleConfig({ 'data-dir': '/data/agent', 'token-file': '/else' }, {})).toMatchObject({
      tokenFile: '/else',
      agentUrl: 'http://127.0.0.1:5314',
      port: 5315,
    });
  });
});
