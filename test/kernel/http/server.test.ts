// The HTTP server over real sockets: answers, errors, streams, disconnects and shutdown.
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { Agent, request as httpRequest } from 'node:http';
import { connect, type Socket } from 'node:net';
import { networkInterfaces, tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import type { ProblemCode } from '../../../src/contract/problem-code.gen.ts';
import { Problem } from '../../../src/kernel/problem.ts';
import { quickest } from '../../support/quickest.ts';
import { sendBytes } from '../../support/raw-http.ts';
import { until } from '../../support/until.ts';
import { openSocket, rawAnswer, smallContract, startWorld, type World } from '../world.ts';
import { errorOf, post, startTestWorld, userHeaders } from './test-server.ts';

describe('answers', () => {
  test("carry the request id, the caller's id and security headers", async () => {
    const { url } = await startTestWorld();
    const response = await fetch(`${url}/v1/ai/models`, {
      headers: { ...userHeaders, 'x-request-id': 'theirs-1' },
    });
    expect(response.status).toBe(200);
    expect(response.headers.get('x-request-id')).toMatch(/^req_[0-9a-z]{26}$/);
    expect(response.headers.get('x-client-request-id')).toBe('theirs-1');
    expect(response.headers.get('x-content-type-options')).toBe('nosniff');
    expect(response.headers.get('cache-control')).toBe('no-store');
    expect(response.headers.get('content-type')).toBe('application/json; charset=utf-8');
    expect(response.headers.get('server-timing')).toMatch(/^app;dur=\d/);
    for (const name of ['x-powered-by', 'server', 'etag', 'access-control-allow-origin'])
      expect(response.headers.get(name)).toBeNull();
  });

  test('are logged in one line', async () => {
    const { url, lines } = await startTestWorld();
    await fetch(`${url}/v1/ai/models`, { headers: userHeaders });
    await until(() => lines.length > 0, 'the line of the request');
    expect(lines).toMatchObject([
      {
        msg: 'request',
        level: 'info',
        method: 'GET',
        operationId: 'ai.listModels',
        status: 200,
        identity: 'user',
        ms: expect.any(Number),
      },
    ]);
  });

  test('do not repeat an unprintable or overlong id of the caller', async () => {
    const { port } = await startTestWorld();
    for (const id of ['a\tb', 'x'.repeat(129), 'ä']) {
      const { status, head } = rawAnswer(
        await sendBytes(
          port,
          `GET /health HTTP/1.1\r\nhost: x\r\nx-request-id: ${id}\r\nconnection: close\r\n\r\n`,
        ),
      );
      expect(status).toBe(200);
      expect(head).not.toContain('x-client-request-id');
    }
  });

  test('have the headers and timings of their handler', async () => {
    const { url } = await startTestWorld({
      handlers: {
        'directory.getHealth': async (call) => {
          call.timing('database', 1.25);
          return { status: 200, body: {}, headers: { 'Cache-Control': 'max-age=60' } };
        },
      },
    });
    const response = await fetch(`${url}/health`);
    expect(response.headers.get('server-timing')).toMatch(/^database;dur=1\.[23], app;dur=/);
    expect(response.headers.get('cache-control')).toBe('max-age=60');
  });

  test('share their ids with the log lines of their handler', async () => {
    const { url, lines } = await startTestWorld({
      handlers: {
        'directory.getHealth': async (call) => {
          call.log.warn({ n: 1 }, 'from the handler');
          return { status: 200, body: {} };
        },
      },
    });
    const response = await fetch(`${url}/health`, {
      headers: { traceparent: `00-${'a'.repeat(32)}-${'b'.repeat(16)}-01` },
    });
    expect(lines.find((line) => line.msg === 'from the handler')).toMatchObject({
      n: 1,
      operationId: 'directory.getHealth',
      traceId: 'a'.repeat(32),
      requestId: response.headers.get('x-request-id'),
    });
  });
});

describe('errors', () => {
  test('an unknown throw becomes a 500 and one log line', async () => {
    const { url, lines } = await startTestWorld({
      handlers: {
        'directory.getHealth': async () => {
          throw new Error('secret inside /home/somebody');
        },
      },
    });
    const response = await fetch(`${url}/health`);
    const text = await response.text();
    expect(response.status).toBe(500);
    expect(text).not.toMatch(/secret|\/home|at .*\(|node_modules/);
    expect(JSON.parse(text)).toMatchObject({
      error: {
        type: 'server_error',
        code: 'internal_error',
        request_id: response.headers.get('x-request-id'),
      },
    });
    const errors = lines.filter((line) => line.level === 'error');
    expect(errors).toHaveLength(1);
    expect(errors[0]).toMatchObject({
      requestId: response.headers.get('x-request-id'),
      err: { message: 'secret inside /home/somebody', stack: expect.any(String) },
    });
  });

  // Errors of an HTTP client have the status of another server, such as that of an S3 bucket.
  test.each([400, 403, 404])('a thrown error with the status %d becomes a logged 500', async (status) => {
    const { url, lines } = await startTestWorld({
      handlers: {
        'directory.getHealth': async () => {
          throw Object.assign(new Error('refused by the bucket'), { status });
        },
      },
    });
    const response = await fetch(`${url}/health`);
    expect([response.status, (await errorOf(response)).error.code]).toEqual([500, 'internal_error']);
    expect(lines.filter((line) => line.level === 'error')).toMatchObject([
      { err: { message: 'refused by the bucket' } },
    ]);
  });

  /** The answer to a request whose handler throws the problem, and the lines of the log. */
  async function answerTo(problem: Problem) {
    const { url, lines } = await startTestWorld({
      handlers: {
        'open.echo': async () => {
          throw problem;
        },
      },
    });
    return { response: await post(`${url}/v1/open/echo`, '{}'), lines };
  }

  test('a permanent Problem tells the client not to retry', async () => {
    const { response } = await answerTo(new Problem('conflict', 'conflict', 'Taken.', { param: 'id' }));
    expect([response.status, response.headers.get('x-should-retry')]).toEqual([409, 'false']);
    expect((await errorOf(response)).error).toMatchObject({ message: 'Taken.', param: 'id' });
  });

  test('a Problem keeps its Retry-After', async () => {
    const headers = { 'retry-after': '3' };
    const { response } = await answerTo(new Problem('conflict', 'conflict', 'Busy.', { headers }));
    expect(response.headers.get('retry-after')).toBe('3');
    expect(response.headers.get('x-should-retry')).toBeNull();
  });

  test('a Problem outside the contract becomes a logged 500', async () => {
    const { response, lines } = await answerTo(new Problem('gone', 'login_spent', 'Spent.'));
    expect(response.status).toBe(500);
    expect(JSON.stringify(lines)).toContain('does not declare the status 410');
  });

  test('a Problem with a header outside the contract becomes a logged 500', async () => {
    const headers = { 'x-secret-plan': 'yes' };
    const { response, lines } = await answerTo(new Problem('conflict', 'conflict', 'Taken.', { headers }));
    expect(response.status).toBe(500);
    expect(JSON.stringify(lines)).toContain('does not declare for 409 the headers x-secret-plan');
  });

  test.each([
    ['body', { body: [] }, 'directory.getHealth 200 at /: must be object'],
    [
      'header',
      { body: {}, headers: { 'x-secret-plan': 'yes' } },
      'does not declare for 200 the headers x-secret-plan',
    ],
  ])('a reply with a %s outside the contract becomes a logged 500', async (_part, members, message) => {
    const { url, lines } = await startTestWorld({
      handlers: { 'directory.getHealth': async () => ({ status: 200, ...members }) },
    });
    const response = await fetch(`${url}/health`);
    expect([response.status, response.headers.get('x-secret-plan')]).toEqual([500, null]);
    expect(JSON.stringify(lines)).toContain(message);
  });

  test('an error code that the operation does not list becomes a logged 500', async () => {
    const definition = smallContract();
    const echo = definition.paths['/v1/open/echo']?.['post'];
    if (echo) echo['x-error-codes'] = ['invalid_json', 'conflict'];
    const problems = [
      new Problem('conflict', 'conflict', 'Taken.'),
      new Problem('conflict', 'session_busy', ''),
    ];
    const { url, lines } = await startTestWorld({
      definition,
      handlers: {
        'open.echo': async () => {
          throw problems.shift() ?? new Error('no more problems');
        },
      },
    });
    expect((await post(`${url}/v1/open/echo`, '{}')).status).toBe(409);
    expect((await post(`${url}/v1/open/echo`, '{}')).status).toBe(500);
    expect(JSON.stringify(lines)).toContain('open.echo does not list the error code session_busy');
  });

  test('the agent answers success: false beside the error', async () => {
    const agent = await startTestWorld({ server: { surface: 'agent' } });
    expect(await errorOf(await fetch(`${agent.url}/nowhere`))).toMatchObject({
      success: false,
      error: { code: 'route_not_found' },
    });
    expect(rawAnswer(await sendBytes(agent.port, 'nonsense\r\n\r\n')).body).toMatchObject({ success: false });
  });
});

describe('methods and pages', () => {
  test('HEAD gets the content length of GET', async () => {
    const { url } = await startTestWorld();
    const [get, head] = [await fetch(`${url}/health`), await fetch(`${url}/health`, { method: 'HEAD' })];
    expect([head.status, head.headers.get('content-length'), await head.text()]).toEqual([
      200,
      get.headers.get('content-length'),
      '',
    ]);
  });

  test('an empty query is no query', async () => {
    const { url } = await startTestWorld();
    expect((await fetch(`${url}/health?`)).status).toBe(200);
  });

  test('OPTIONS gets the methods of the path', async () => {
    const { url } = await startTestWorld();
    const options = await fetch(`${url}/v1/ai/text`, { method: 'OPTIONS' });
    expect([options.status, options.headers.get('allow'), await options.text()]).toEqual([
      204,
      'POST, OPTIONS',
      '',
    ]);
  });

  test('TRACE, CONNECT and other methods without an operation are 405', async () => {
    const { port } = await startTestWorld();
    for (const method of ['TRACE', 'PUT', 'PROPFIND']) {
      const answer = rawAnswer(
        await sendBytes(port, `${method} /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n`),
      );
      expect([answer.status, answer.body?.error.code], method).toEqual([405, 'method_not_allowed']);
      expect(answer.head).toContain('allow: get, head, options');
    }
    expect(rawAnswer(await sendBytes(port, 'CONNECT x:443 HTTP/1.1\r\nhost: x:443\r\n\r\n'))).toMatchObject({
      status: 405,
      body: { error: { code: 'method_not_allowed' } },
    });
  });

  /** A server with a portal of one page. */
  function startPortal(): Promise<World> {
    const directory = mkdtempSync(join(tmpdir(), 'pages-'));
    onTestFinished(() => rmSync(directory, { recursive: true }));
    writeFileSync(join(directory, 'index.html'), '<h1>Portal</h1>');
    return startTestWorld({ server: { pages: [{ prefix: '/docs', directory }] } });
  }

  test('a page carries a content security policy, even as 404', async () => {
    const { url } = await startPortal();
    for (const path of ['/docs', '/docs/', '/docs/index.html', '/docs/nothing.html']) {
      const { headers } = await fetch(url + path, { redirect: 'manual' });
      expect(headers.get('content-security-policy'), path).toContain("default-src 'none'");
      expect(headers.get('x-frame-options'), path).toBe('DENY');
    }
    expect((await fetch(`${url}/docs/`)).headers.get('content-security-policy')).toContain(
      "frame-ancestors 'none'",
    );
  });

  test('pages get the same headers and 404 as the contract', async () => {
    const { url, port } = await startPortal();
    const page = await fetch(`${url}/docs/`);
    expect([page.status, await page.text()]).toEqual([200, '<h1>Portal</h1>']);
    expect(page.headers.get('x-request-id')).toMatch(/^req_/);
    expect(page.headers.get('x-content-type-options')).toBe('nosniff');
    expect(await errorOf(await fetch(`${url}/docs/nothing.html`))).toMatchObject({
      error: { code: 'route_not_found' },
    });
    for (const path of [
      '/docs/%ff',
      '/docs/..%2f..%2fetc%2fpasswd',
      '/docs/%2e%2e/%2e%2e/etc/passwd',
      '/docs/%00',
    ]) {
      const { status, body } = rawAnswer(
        await sendBytes(port, `GET ${path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n`),
      );
      expect([400, 404], path).toContain(status);
      expect(body?.error.type, path).toBe('invalid_request_error');
    }
  });
});

describe('a client that disconnects', () => {
  test('aborts its call within 50 ms without a logged error', async () => {
    let signal: AbortSignal | undefined;
    let abortedMs = 0;
    const { port, lines, server } = await startTestWorld({
      handlers: {
        'open.wait': (call) => {
          signal = call.signal as AbortSignal;
          return new Promise((_resolve, reject) => {
            call.signal.addEventListener('abort', () => {
              abortedMs = performance.now();
              reject(call.signal.reason);
            });
          });
        },
      },
    });
    let calls = 0;
    for (const leave of ['destroy', 'end'] as const) {
      const delayMs = await quickest(50, async () => {
        calls += 1;
        const socket = await openSocket(port);
        socket.write('GET /v1/open/wait HTTP/1.1\r\nhost: x\r\n\r\n');
        await until(() => signal !== undefined, 'the handler runs');
        const disconnectedMs = performance.now();
        socket[leave]();
        await until(() => signal?.aborted === true, 'the signal aborts');
        signal = undefined;
        socket.destroy();
        return abortedMs - disconnectedMs;
      });
      expect(delayMs, leave).toBeLessThan(50);
    }
    await until(
      () => server.inFlight() === 0 && lines.filter((line) => line.msg === 'request').length === calls,
      'the end of all',
    );
    expect(lines.filter((line) => line.level === 'error')).toEqual([]);
    expect(lines.every((line) => line.msg !== 'request' || line.clientGone === true)).toBe(true);
  });

  test('stops the stream it was reading', async () => {
    let hasStopped = false;
    const { port } = await startTestWorld({
      handlers: {
        'open.stream': async (call) => ({
          status: 200,
          events: (async function* () {
            try {
              for (let n = 0; ; n += 1) {
                yield { data: { n } };
                await new Promise((resolve) => setTimeout(resolve, 5));
                call.signal.throwIfAborted();
              }
            } finally {
              hasStopped = true;
            }
          })(),
        }),
      },
    });
    const socket = await openSocket(port);
    socket.write('GET /v1/open/stream HTTP/1.1\r\nhost: x\r\n\r\n');
    await once(socket, 'data');
    const disconnectedMs = performance.now();
    socket.destroy();
    await until(() => hasStopped, 'the producer stops');
    // The server detects it at once, not at the next heartbeat.
    expect(performance.now() - disconnectedMs).toBeLessThan(5_000);
  });
});

test('a client that accepts no bytes of a whole answer is disconnected', async () => {
  const content = Buffer.alloc(48 * 2 ** 20);
  const { server, port } = await startTestWorld({
    server: { timeouts: { stalledMs: 300 } },
    handlers: {
      'open.bytes': async () => ({ status: 200, content, mediaType: 'application/octet-stream' }),
    },
  });
  const socket = await openSocket(port);
  socket.write('GET /v1/open/bytes HTTP/1.1\r\nhost: x\r\n\r\n');
  await until(() => server.inFlight() === 1, 'the request');
  await until(() => server.inFlight() === 0, 'the disconnection');
  expect(server.inFlight()).toBe(0);
});

test('a client that reads a whole answer slowly keeps its connection', async () => {
  const content = Buffer.alloc(48 * 2 ** 20);
  const { port } = await startTestWorld({
    server: { timeouts: { stalledMs: 1_000 } },
    handlers: {
      'open.bytes': async () => ({ status: 200, content, mediaType: 'application/octet-stream' }),
    },
  });
  const socket = await openSocket(port);
  let received = 0;
  let text = '';
  socket.on('data', (piece: Buffer) => {
    received += piece.byteLength;
    if (received > content.byteLength) text += piece.toString('latin1');
    socket.pause();
  });
  const readTimer = setInterval(() => socket.resume(), 3);
  onTestFinished(() => clearInterval(readTimer));
  socket.write('GET /v1/open/bytes HTTP/1.1\r\nhost: x\r\n\r\n');
  await until(() => received > content.byteLength, 'the whole answer', 30_000);
  // Longer than a stall: the idle connection has its own timeout again.
  await new Promise((resolve) => setTimeout(resolve, 1_500));
  socket.write('GET /health HTTP/1.1\r\nhost: x\r\n\r\n');
  await until(() => text.includes('HTTP/1.1 200'), 'the next answer');
  expect(socket.closed).toBe(false);
});

describe('streams', () => {
  test('report a code that the operation does not list as an internal error', async () => {
    const definition = smallContract();
    const stream = definition.paths['/v1/open/stream']?.['get'];
    if (stream) stream['x-error-codes'] = ['conflict'];
    const codes: ProblemCode[] = ['conflict', 'session_busy'];
    const { url } = await startTestWorld({
      definition,
      handlers: {
        'open.stream': async () => ({
          status: 200,
          events: (async function* () {
            yield { data: { n: 1 } };
            throw new Problem('conflict', codes.shift() ?? 'conflict', 'Taken.');
          })(),
        }),
      },
    });
    const read = async () => (await fetch(`${url}/v1/open/stream`)).text();
    expect(await read()).toContain('"code":"conflict"');
    expect(await read()).toContain('"code":"internal_error"');
  });

  test('report an invalid event as a problem', async () => {
    const { url, lines } = await startTestWorld({
      handlers: {
        'open.stream': async () => ({
          status: 200,
          end: '[DONE]',
          events: (async function* () {
            yield { data: { n: 1 } };
            yield { data: { n: 'two' } };
          })(),
        }),
      },
    });
    const response = await fetch(`${url}/v1/open/stream`);
    expect(response.headers.get('content-type')).toBe('text/event-stream; charset=utf-8');
    const text = await response.text();
    expect(text).toMatch(
      /^data: \{"n":1\}\n\ndata: \{"error":\{"type":"server_error","code":"internal_error".*\}\n\n$/,
    );
    expect(JSON.stringify(lines)).toContain('open.stream 200 at /n: must be integer');
  });

  /** A server whose bytes fail, with or without a first piece. */
  const startFailingBytes = ({ hasFirstPiece }: { hasFirstPiece: boolean }) =>
    startTestWorld({
      handlers: {
        'open.bytes': async () => ({
          status: 200,
          mediaType: 'application/octet-stream',
          content: (async function* () {
            if (hasFirstPiece) yield Buffer.from('half');
            throw new Error('inside');
          })(),
        }),
      },
    });

  test('of bytes fail with a status before the first piece', async () => {
    const { url } = await startFailingBytes({ hasFirstPiece: false });
    expect((await fetch(`${url}/v1/open/bytes`)).status).toBe(500);
  });

  test('of bytes are cut off when they fail after the first piece', async () => {
    const { url } = await startFailingBytes({ hasFirstPiece: true });
    const truncatedAnswer = await fetch(`${url}/v1/open/bytes`);
    expect(truncatedAnswer.status).toBe(200);
    await expect(truncatedAnswer.text()).rejects.toThrow('terminated');
  });
});

describe('draining', () => {
  test('refuses new connections while running requests finish', async () => {
    const result = Promise.withResolvers<{ status: number; body: object }>();
    const { port, server } = await startTestWorld({ handlers: { 'open.wait': () => result.promise } });
    const socket = await openSocket(port);
    let answer = '';
    socket.on('data', (chunk) => {
      answer += chunk.toString('latin1');
    });
    socket.write('GET /v1/open/wait HTTP/1.1\r\nhost: x\r\n\r\n');
    await until(() => server.inFlight() === 1, 'the request runs');
    const closePromise = server.close({ drainMs: 5_000 });
    await expect(fetch(`http://127.0.0.1:${port}/health`)).rejects.toThrow('fetch failed');
    result.resolve({ status: 200, body: { done: true } });
    await closePromise;
    await until(() => socket.closed, 'the close');
    expect(answer).toContain('HTTP/1.1 200');
    expect(answer).toContain('{"done":true}');
    expect(server.inFlight()).toBe(0);
  });

  test('answers 503 with Retry-After on an open connection', async () => {
    const result = Promise.withResolvers<{ status: number; body: object }>();
    const { port, server, url } = await startTestWorld({ handlers: { 'open.wait': () => result.promise } });
    const waitingRequest = fetch(`${url}/v1/open/wait`);
    const lateSocket = await openSocket(port);
    let answer = '';
    lateSocket.on('data', (chunk) => {
      answer += chunk.toString('latin1');
    });
    // Half a request keeps the connection busy, and the drain leaves busy connections open.
    lateSocket.write('GET /health HTTP/1.1\r\nhost: x\r\n');
    await until(() => server.inFlight() === 1, 'the request runs');
    lateSocket.write('x-a: 1\r\n\r\n');
    await until(() => answer.includes('HTTP/1.1 200'), 'an answer before the drain');
    answer = '';
    lateSocket.write('GET /health HTTP/1.1\r\nhost: x\r\nx-half: ');
    // That half was sent before this request, so the server has received it by now.
    await fetch(`${url}/health`);
    const closePromise = server.close({ drainMs: 5_000 });
    lateSocket.write('1\r\n\r\n');
    await until(() => lateSocket.closed, 'the close');
    const { status, head, body } = rawAnswer(answer);
    expect([status, body?.error.code]).toEqual([503, 'draining']);
    expect(head).toContain('retry-after: 1');
    expect(head).toContain('connection: close');
    result.resolve({ status: 200, body: {} });
    expect((await waitingRequest).status).toBe(200);
    await closePromise;
  });

  test('aborts unfinished requests and ignores silent connections', async () => {
    const { server, url, port } = await startTestWorld({
      handlers: {
        'open.wait': (call) =>
          new Promise((_resolve, reject) =>
            call.signal.addEventListener('abort', () => reject(new Error('stopped'))),
          ),
        'open.stream': async (call) => ({
          status: 200,
          events: (async function* () {
            yield { data: { n: 1 } };
            await new Promise((resolve) => call.signal.addEventListener('abort', resolve));
            throw new Error('stopped');
          })(),
        }),
      },
    });
    await openSocket(port);
    const stream = await fetch(`${url}/v1/open/stream`);
    const waitingRequest = fetch(`${url}/v1/open/wait`);
    await until(() => server.inFlight() === 2, 'both run');
    const startedMs = performance.now();
    await server.close({ drainMs: 100 });
    // A drain that waits for the silent connection would never end; the limit allows for other tests on
    // the machine.
    expect(performance.now() - startedMs).toBeLessThan(10_000);
    const rejection = await waitingRequest;
    expect([rejection.status, (await errorOf(rejection)).error.code]).toEqual([503, 'draining']);
    expect(await stream.text()).toMatch(/"n":1[^]*"code":"draining"/);
  });
});

describe('a connection above the limit of its address', () => {
  // Loopback addresses have no limit.
  const host = Object.values(networkInterfaces())
    .flatMap((addresses = []) => addresses)
    .find(({ family, internal }) => family === 'IPv4' && !internal)?.address;

  test.skipIf(host === undefined)('gets a 429 and no effect', async () => {
    const paths: unknown[] = [];
    const { server } = await startTestWorld({
      server: { limits: { maxPerAddress: 1 } },
      handlers: {
        'directory.readAction': async ({ path }) => {
          paths.push(path['action']);
          return { status: 200, body: {} };
        },
      },
    });
    const { port } = await server.listen({ host: host ?? '', port: 0 });
    const [first, second] = [connect(port, host), connect(port, host)];
    const send = (socket: Socket, action: string) =>
      socket.write(`GET /v1/shop/${action} HTTP/1.1\r\nhost: x\r\n\r\n`);
    send(first, 'first');
    await once(first, 'data');
    send(second, 'second');
    const [answer] = (await once(second, 'data')) as [Buffer];
    expect(answer.toString()).toMatch(/^HTTP\/1.1 429 /);
    await once(second, 'close');
    expect(paths).toEqual(['first']);
    first.destroy();
  });
});

test('rejects an address in use', async () => {
  const { port } = await startTestWorld();
  await expect(startWorld({ port })).rejects.toThrow('EADDRINUSE');
});

test('reuses kept-alive connections of Node clients', async () => {
  const { port } = await startTestWorld();
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  const ports = new Set<number | undefined>();
  for (let round = 0; round < 3; round += 1) {
    await new Promise<void>((resolve, reject) => {
      const request = httpRequest({ port, path: '/health', agent }, (response) => {
        ports.add(response.socket.localPort);
        response.resume().on('end', resolve);
      });
      request.on('error', reject).end();
    });
  }
  agent.destroy();
  expect(ports.size).toBe(1);
});
