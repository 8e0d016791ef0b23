// The HTTP server over real sockets: answers, errors, hostile requests, disconnects and its end.
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { Agent, request as httpRequest } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, test } from 'vitest';
import type { ProblemCode } from '../../../src/contract/problem-code.gen.ts';
import { loopbackGuard } from '../../../src/kernel/http/guard.ts';
import { Problem } from '../../../src/kernel/problem.ts';
import { quickest } from '../../support/quickest.ts';
import { openSocket, rawAnswer, smallContract, startWorld, type World, type WorldOptions } from '../world.ts';
import { until } from '../../support/until.ts';
import { sendBytes } from '../../support/raw-http.ts';

const closers: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0)) await close();
});

async function startTestWorld(options: WorldOptions = {}): Promise<World> {
  const instance = await startWorld(options);
  closers.push(instance.close);
  return instance;
}

const userHeaders = { authorization: 'Bearer user-token', 'content-type': 'application/json' };
const post = (
  url: string,
  body: string | Uint8Array,
  headers: Record<string, string> = { 'content-type': 'application/json' },
) => fetch(url, { method: 'POST', body: body as string, headers });

interface ErrorBody {
  success?: boolean;
  error: {
    type: string;
    code: string;
    message: string;
    param: string | null;
    request_id: string;
    details?: { path: string; message: string }[];
  };
}
const errorOf = async (response: Response) => (await response.json()) as ErrorBody;

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
    const response = await fetch(`${url}/health?`);
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

  test('a Problem that is permanent says so', async () => {
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

  test('OPTIONS gets the methods of the path', async () => {
    const { url } = await startTestWorld();
    const options = await fetch(`${url}/v1/ai/text`, { method: 'OPTIONS' });
    expect([options.status, options.headers.get('allow'), await options.text()]).toEqual([
      204,
      'POST, OPTIONS',
      '',
    ]);
  });

  test('TRACE, CONNECT and unknown methods are 405', async () => {
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
    closers.push(() => rmSync(directory, { recursive: true }));
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

describe('bodies', () => {
  const text = '{ "a":1.0,\t"b":"\\u00e9é" }\n';
  const head =
    'POST /v1/open/echo HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nconnection: close\r\n';

  /** A server that records the bytes of each body. */
  async function startRecorder() {
    const bodies: string[] = [];
    const { port, url } = await startTestWorld({
      handlers: {
        'open.echo': async (call) => {
          bodies.push(Buffer.from(call.rawBody).toString());
          return { status: 200, body: call.body };
        },
      },
    });
    return { port, url, bodies };
  }

  test('arrive as they were sent', async () => {
    const { url, bodies } = await startRecorder();
    expect(await (await post(`${url}/v1/open/echo`, text)).json()).toEqual({ a: 1, b: 'éé' });
    expect(bodies).toEqual([text]);
  });

  test('arrive in chunks', async () => {
    const { port, bodies } = await startRecorder();
    const chunks = [...Buffer.from(text)].map((byte) => `1\r\n${String.fromCharCode(byte)}\r\n`).join('');
    const request = `${head}transfer-encoding: chunked\r\n\r\n${chunks}0\r\n\r\n`;
    expect(rawAnswer(await sendBytes(port, Buffer.from(request, 'latin1'))).status).toBe(200);
    expect(bodies).toEqual([text]);
  });

  test('arrive after Expect', async () => {
    const { port, bodies } = await startRecorder();
    expect(await sendBytes(port, `${head}expect: 100-continue\r\ncontent-length: 2\r\n\r\n{}`)).toMatch(
      /^HTTP\/1\.1 100 Continue\r\n\r\nHTTP\/1\.1 200/,
    );
    expect(bodies).toEqual(['{}']);
  });

  test('a client with Expect is refused before it sends', async () => {
    const { port } = await startTestWorld();
    const answer = await sendBytes(
      port,
      'POST /v1/ai/text HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\n' +
        'content-type: application/json\r\ncontent-length: 900000\r\n\r\n',
    );
    expect(answer).not.toContain('100 Continue');
    expect(rawAnswer(answer)).toMatchObject({
      status: 401,
      head: expect.stringContaining('connection: close'),
    });
  });
});

describe('hostile bodies', () => {
  test('are a 400 within 100 ms', async () => {
    const { url } = await startTestWorld();
    const documents: [string, string | Buffer][] = [
      ['50,000 deep arrays', '['.repeat(50_000) + ']'.repeat(50_000)],
      ['30,000 deep objects', `${'{"a":'.repeat(30_000)}1${'}'.repeat(30_000)}`],
      ['65 deep', `{"a":${'['.repeat(64)}${']'.repeat(64)}}`],
      ['duplicate member', '{"model":"a","model":"b"}'],
      ['duplicate member, escaped', '{"model":"a","\\u006dodel":"b"}'],
      ['duplicate member, after an object', '{"a":{"a":1,"b":"}"},"b":[{"a":1}],"a":2}'],
      ['__proto__', '{"__proto__":{"polluted":true}}'],
      ['__proto__, escaped', '{"a":{"\\u005f_proto__":{"polluted":true}}}'],
      ['lone surrogate', '{"a":"\\ud800"}'],
      ['lone surrogate in a name', '{"a\\uDC00":1}'],
      ['infinite number', '{"a":1e400}'],
      ['infinite number, deep', '{"a":[{"b":-1E999}]}'],
      ['number of 400 digits', `{"a":${'9'.repeat(400)}}`],
      ['UTF-8 mark', '\uFEFF{"a":1}'],
      ['UTF-16', Buffer.from('{"a":1}', 'utf16le')],
      ['UTF-16 with mark', Buffer.concat([Buffer.from([0xff, 0xfe]), Buffer.from('{"a":1}', 'utf16le')])],
      ['invalid UTF-8', Buffer.from([0x22, 0xc3, 0x28, 0x22])],
      ['cut', '{"a":'],
      ['single quotes', "{'a':1}"],
      ['NaN', '{"a":NaN}'],
      ['two documents', '{"a":1}{"a":1}'],
      ['raw line break in a string', '{"a":"b\nc"}'],
      ['not an object', '5'],
    ];
    for (const [name, document] of documents) {
      const ms = await quickest(100, async () => {
        const response = await post(`${url}/v1/open/echo`, document);
        const { error } = await errorOf(response);
        expect(response.status, name).toBe(400);
        expect(error.type, name).toBe('invalid_request_error');
      });
      expect(ms, name).toBeLessThan(100);
    }
    expect(({} as { polluted?: unknown }).polluted).toBeUndefined();
  });

  test('name a duplicate member', async () => {
    const { url } = await startTestWorld();
    const duplicateError = await errorOf(
      await post(`${url}/v1/open/echo`, '{"model":"a","\\u006dodel":"b"}'),
    );
    expect(duplicateError.error).toMatchObject({ code: 'duplicate_member', param: 'model' });
  });

  test('do not include valid JSON that looks like them', async () => {
    const { url } = await startTestWorld();
    const documents = [
      `{"a":${'['.repeat(63)}${']'.repeat(63)}}`,
      '{"a":1,"b":{"a":1,"b":2}}',
      '{"a":"\\"a\\":1,\\\\","b":"{[","c":"\\\\"}',
      '{"emoji":"\\ud83d\\ude00","text":"about __proto__ and \\\\ud800","e":1e300}',
      '{"constructor":{"prototype":{"polluted":true}}}',
      '{"":1," ":2}',
      `{"long":"${'x'.repeat(1_000)}","n":[1,2.5e-7,-1]}`,
    ];
    for (const document of documents) {
      const response = await post(`${url}/v1/open/echo`, document);
      expect(response.status, document.slice(0, 60)).toBe(200);
      expect(((await response.json()) as { body: unknown }).body).toEqual(JSON.parse(document));
    }
    const manyMembers = JSON.stringify(
      Object.fromEntries(Array.from({ length: 10_000 }, (_, n) => [`k${n}`, n])),
    );
    expect((await post(`${url}/v1/open/echo`, manyMembers)).status).toBe(200);
    expect((await post(`${url}/v1/open/echo`, `${manyMembers.slice(0, -1)},"k9000":1}`)).status).toBe(400);
    expect(({} as { polluted?: unknown }).polluted).toBeUndefined();
  });
});

describe('bodies outside of the contract', () => {
  test.each([
    'text/plain',
    'application/xml',
    'application/json; charset=utf-7',
    'application/json; charset=utf-16',
    'application/jsonx',
    'application/x-www-form-urlencoded',
    'multipart/form-data; boundary=x',
  ])('are 415 as %s', async (type) => {
    const { url } = await startTestWorld();
    const response = await post(`${url}/v1/open/echo`, '{}', { 'content-type': type });
    expect(response.status).toBe(415);
    expect((await errorOf(response)).error.code).toBe('unsupported_media_type');
  });

  test.each([
    'application/json',
    'Application/JSON; charset=UTF-8',
    'application/json;charset="utf-8"',
    'application/json; profile=x',
  ])('do not include JSON as %s', async (type) => {
    const { url } = await startTestWorld();
    expect((await post(`${url}/v1/open/echo`, '{}', { 'content-type': type })).status).toBe(200);
  });

  test.each(['gzip', 'br', 'gzip, identity'])('are 415 with the encoding %s', async (encoding) => {
    const { url } = await startTestWorld();
    const headers = { 'content-type': 'application/json', 'content-encoding': encoding };
    expect((await post(`${url}/v1/open/echo`, '{}', headers)).status).toBe(415);
  });

  test('are 415 without a content type', async () => {
    const { port } = await startTestWorld();
    const answerWithoutHeader = await sendBytes(
      port,
      'POST /v1/open/echo HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}',
    );
    expect(rawAnswer(answerWithoutHeader).status).toBe(415);
  });

  const head = 'POST /v1/open/echo HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n';

  test('are 413 above the maximum size', async () => {
    const { url } = await startTestWorld();
    expect((await post(`${url}/v1/open/echo`, `{"a":"${'x'.repeat(200_000)}"}`)).status).toBe(413);
  });

  test('are 413 by their length before they are read', async () => {
    const { port } = await startTestWorld();
    const earlyAnswer = rawAnswer(await sendBytes(port, `${head}content-length: 100000000\r\n\r\n{`));
    expect(earlyAnswer).toMatchObject({ status: 413, body: { error: { code: 'request_too_large' } } });
    expect(earlyAnswer.head).toContain('connection: close');
  });

  test('end the connection when their chunks exceed the maximum', async () => {
    const { port } = await startTestWorld();
    const socket = await openSocket(port);
    let answer = '';
    socket.on('data', (chunk) => {
      answer += chunk.toString('latin1');
    });
    socket.write(`${head}transfer-encoding: chunked\r\n\r\n`);
    const piece = `10000\r\n${'x'.repeat(65_536)}\r\n`;
    let acceptedBytes = 0;
    const writePieces = () => {
      while (!socket.destroyed && socket.write(piece)) acceptedBytes += 65_536;
    };
    socket.on('drain', writePieces);
    writePieces();
    await until(() => socket.closed, 'the close');
    expect(rawAnswer(answer).status).toBe(413);
    // The socket buffers on the loopback interface hold some megabytes; an unbounded reader would
    // take all bytes.
    expect(acceptedBytes).toBeLessThan(16 * 1024 * 1024);
  });

  test('are empty where the operation has none', async () => {
    const { url } = await startTestWorld();
    for (const body of ['', '{}', ' { } '])
      expect((await post(`${url}/v1/ai/image/create`, body, userHeaders)).status, body).toBe(200);
    expect((await post(`${url}/v1/ai/image/create`, '{"a":1}', userHeaders)).status).toBe(400);
    expect((await post(`${url}/v1/ai/image/create`, `{${' '.repeat(100)}}`, userHeaders)).status).toBe(400);
  });

  test('leave the connection usable when they are refused', async () => {
    const { port } = await startTestWorld();
    const unauthorizedRequest =
      'POST /v1/ai/text HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n' +
      'content-length: 10\r\n\r\n0123456789';
    const answer = await sendBytes(
      port,
      `${unauthorizedRequest}GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n`,
    );
    expect(answer.match(/HTTP\/1\.1 \d{3}/g)).toEqual(['HTTP/1.1 401', 'HTTP/1.1 200']);
  });

  test('add neither headers nor log lines by control characters', async () => {
    const { url, lines } = await startTestWorld();
    const models = ['a\r\nx-evil: 1', 'a\0b', 'a\n{"msg":"forged"}'];
    for (const model of models) {
      const response = await post(`${url}/v1/ai/text`, JSON.stringify({ model }), userHeaders);
      expect([response.status, response.headers.get('x-evil')]).toEqual([400, null]);
    }
    await until(() => lines.length >= models.length, 'the lines of the requests');
    expect(lines.map(({ msg }) => msg)).toEqual(models.map(() => 'request'));
  });

  test('a handler cannot add a header by a line break', async () => {
    const craftedWorld = await startTestWorld({
      handlers: {
        'directory.getHealth': async () => ({
          status: 200,
          body: {},
          headers: { 'x-note': 'a\r\nx-evil: 1' },
        }),
      },
    });
    const response = await fetch(`${craftedWorld.url}/health`);
    expect([response.status, response.headers.get('x-evil')]).toEqual([500, null]);
  });
});

describe('malformed requests', () => {
  const manyHeaders = (count: number) =>
    Array.from({ length: count }, (_, index) => `x-${index}: 1\r\n`).join('');

  test('get a 400 problem and a closed connection', async () => {
    const { port } = await startTestWorld();
    const cases: [string, string][] = [
      ['two Host headers', 'GET /health HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n'],
      ['two equal Host headers', 'GET /health HTTP/1.1\r\nhost: a\r\nhost: a\r\n\r\n'],
      ['no Host', 'GET /health HTTP/1.1\r\n\r\n'],
      ['no Host on 1.0', 'GET /health HTTP/1.0\r\n\r\n'],
      ['empty Host', 'GET /health HTTP/1.1\r\nhost:\r\n\r\n'],
      ['Host that is none', 'GET /health HTTP/1.1\r\nhost: a b/c\r\n\r\n'],
      ['foreign authority', 'GET http://evil.test/health HTTP/1.1\r\nhost: a\r\n\r\n'],
      ['foreign authority, prefix', 'GET http://a.evil.test/health HTTP/1.1\r\nhost: a\r\n\r\n'],
      ['user in authority', 'GET http://a@evil.test/health HTTP/1.1\r\nhost: a\r\n\r\n'],
      ['HTTP/0.9', 'GET /health\r\n\r\n'],
      ['HTTP/2 preface', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'],
      ['HTTP/3.0', 'GET /health HTTP/3.0\r\nhost: a\r\n\r\n'],
      ['nonsense', '\x16\x03\x01\x02\x00\x01\r\n\r\n'],
      [
        'two credentials',
        'GET /v1/ai/models HTTP/1.1\r\nhost: a\r\n' +
          'authorization: Bearer user-token\r\nauthorization: Bearer x\r\n\r\n',
      ],
      [
        'two lengths',
        'POST /v1/open/echo HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{}',
      ],
      [
        'length and chunks',
        'POST /v1/open/echo HTTP/1.1\r\nhost: a\r\n' +
          'content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n',
      ],
      ['zero in a header', 'GET /health HTTP/1.1\r\nhost: a\r\nx: a\0b\r\n\r\n'],
      ['folded header', 'GET /health HTTP/1.1\r\nhost: a\r\nx: a\r\n b\r\n\r\n'],
      ['space before the colon', 'GET /health HTTP/1.1\r\nhost : a\r\n\r\n'],
      ['101 headers', `GET /health HTTP/1.1\r\nhost: a\r\n${manyHeaders(100)}\r\n`],
      ['headers of 17 KiB', `GET /health HTTP/1.1\r\nhost: a\r\nx: ${'y'.repeat(17 * 1024)}\r\n\r\n`],
      ['address of 9 KiB', `GET /health?${'y'.repeat(9 * 1024)} HTTP/1.1\r\nhost: a\r\n\r\n`],
      ['odd expectation', 'GET /health HTTP/1.1\r\nhost: a\r\nexpect: miracles\r\n\r\n'],
    ];
    for (const [name, bytes] of cases) {
      const answer = rawAnswer(await sendBytes(port, Buffer.from(bytes, 'latin1')));
      expect(answer.status, name).toBe(400);
      expect(answer.body?.error, name).toMatchObject({
        type: 'invalid_request_error',
        request_id: expect.stringMatching(/^req_/),
      });
      expect(answer.head, name).toContain('x-request-id: req_');
      expect(answer.head, name).toContain('connection: close');
    }
  });

  test('a target in absolute form that names this host is served', async () => {
    const { port } = await startTestWorld();
    expect(
      rawAnswer(
        await sendBytes(port, 'GET http://a:1/health HTTP/1.1\r\nhost: A:1\r\nconnection: close\r\n\r\n'),
      ).status,
    ).toBe(200);
    expect(
      rawAnswer(await sendBytes(port, 'GET http://a HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n'))
        .status,
    ).toBe(404);
  });

  test('100 headers pass', async () => {
    const { port } = await startTestWorld();
    expect(
      rawAnswer(
        await sendBytes(
          port,
          `GET /health HTTP/1.1\r\nhost: a\r\nconnection: close\r\n${manyHeaders(98)}\r\n`,
        ),
      ).status,
    ).toBe(200);
  });

  const timeouts = { headersMs: 150, requestMs: 300, checkEveryMs: 30 };

  test('include headers that arrive after their deadline', async () => {
    const { port } = await startTestWorld({ server: { timeouts } });
    const headers = rawAnswer(await sendBytes(port, 'GET /health HTTP/1.1\r\nhost: a\r\nx: '));
    expect(headers).toMatchObject({
      status: 400,
      body: { error: { message: 'The request took too long to arrive.' } },
    });
  });

  test('include a body that arrives after its deadline', async () => {
    const { port } = await startTestWorld({ server: { timeouts } });
    const startedMs = performance.now();
    const body = rawAnswer(
      await sendBytes(
        port,
        'POST /v1/open/echo HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n' +
          'content-length: 100\r\n\r\n{',
      ),
    );
    expect(body.status).toBe(400);
    // The default deadline is 30 seconds.
    expect(performance.now() - startedMs).toBeLessThan(10_000);
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

  test('of bytes end by a cut after the first piece', async () => {
    const { url } = await startFailingBytes({ hasFirstPiece: true });
    const truncatedAnswer = await fetch(`${url}/v1/open/bytes`);
    expect(truncatedAnswer.status).toBe(200);
    await expect(truncatedAnswer.text()).rejects.toThrow('terminated');
  });
});

describe('cross-origin calls', () => {
  const preflight = (url: string, origin: string) =>
    fetch(`${url}/v1/ai/text`, {
      method: 'OPTIONS',
      headers: {
        origin,
        'access-control-request-method': 'POST',
        'access-control-request-headers': 'authorization,content-type',
      },
    });

  test('are allowed only from the configured origins', async () => {
    const { url } = await startTestWorld({ server: { cors: { origins: ['https://app.test'] } } });
    const preflightAnswer = await preflight(url, 'https://app.test');
    expect(preflightAnswer.status).toBe(204);
    expect(preflightAnswer.headers.get('access-control-allow-origin')).toBe('https://app.test');
    expect(preflightAnswer.headers.get('access-control-allow-headers')).toBe('authorization,content-type');
    expect(
      (await fetch(`${url}/health`, { headers: { origin: 'https://app.test' } })).headers.get(
        'access-control-allow-origin',
      ),
    ).toBe('https://app.test');
    expect(
      (await fetch(`${url}/nowhere`, { headers: { origin: 'https://app.test' } })).headers.get(
        'access-control-allow-origin',
      ),
    ).toBe('https://app.test');
    for (const origin of ['https://evil.test', 'https://app.test.evil.test', 'null', 'HTTPS://APP.TEST']) {
      const response = await preflight(url, origin);
      expect([...response.headers.keys()].filter((name) => name.startsWith('access-control-'))).toEqual([]);
      expect(response.headers.get('vary')).toBe('Origin');
    }
  });

  test('get no CORS header without a configuration', async () => {
    const { url } = await startTestWorld();
    const { headers } = await preflight(url, 'https://app.test');
    expect(
      [...headers.keys()].filter((name) => name.startsWith('access-control-') || name === 'vary'),
    ).toEqual([]);
  });
});

describe('the loopback guard', () => {
  const get = async (port: number, lines: string[], target = '/health') =>
    rawAnswer(
      await sendBytes(port, `GET ${target} HTTP/1.1\r\n${lines.join('\r\n')}\r\nconnection: close\r\n\r\n`),
    );

  test('accepts only its loopback names with its port', async () => {
    const { port } = await startTestWorld({
      server: { surface: 'agent', guard: loopbackGuard({ allowHosts: ['agent.test:8443'] }) },
    });
    for (const host of [
      `localhost:${port}`,
      `127.0.0.1:${port}`,
      `[::1]:${port}`,
      `LOCALHOST:${port}`,
      'agent.test:8443',
    ]) {
      expect((await get(port, [`host: ${host}`])).status, host).toBe(200);
    }
    const foreignHosts = [
      'evil.test',
      `evil.test:${port}`,
      `localhost.evil.test:${port}`,
      `127.0.0.1.nip.io:${port}`,
      'localhost',
      '127.0.0.1',
      `localhost:${port + 1}`,
      'agent.test',
      `127.1:${port}`,
      `0.0.0.0:${port}`,
      `localhost:${port}0`,
      `a@localhost:${port}`,
    ];
    for (const host of foreignHosts) {
      for (const target of ['/health', '/nowhere', '/v1/ai/models', '/%ff']) {
        expect(await get(port, [`host: ${host}`], target), `${host} ${target}`).toMatchObject({
          status: 403,
          body: { success: false, error: { code: 'forbidden_host' } },
        });
      }
    }
    expect((await get(port, [`host: localhost:${port}`, `host: localhost:${port}`])).status).toBe(403);
    expect((await get(port, ['x: 1'])).status).toBe(403);
    expect((await get(port, [`host: localhost:${port}`], 'http://evil.test/health')).status).toBe(403);
    expect((await get(port, [`host: localhost:${port}`], `http://localhost:${port}/health`)).status).toBe(
      200,
    );
  });

  test('refuses foreign origins before it reads the credential', async () => {
    const { port } = await startTestWorld({
      server: { surface: 'agent', guard: loopbackGuard({ allowOrigins: ['https://console.test'] }) },
    });
    const host = `host: localhost:${port}`;
    for (const origin of [
      'null',
      'https://evil.test',
      'http://localhost:1',
      'https://console.test.evil.test',
      `https://localhost:${port}`,
      '',
    ]) {
      expect(
        await get(port, [host, `origin: ${origin}`, 'authorization: Bearer wrong'], '/v1/ai/models'),
        origin,
      ).toMatchObject({ status: 403, body: { error: { code: 'forbidden_origin' } } });
    }
    expect((await get(port, [host, 'sec-fetch-site: cross-site'])).status).toBe(403);
    // The value that a browser sends for a page on another port of this machine.
    expect((await get(port, [host, 'sec-fetch-site: same-site'])).status).toBe(403);
    expect(
      (await get(port, [host, 'origin: https://console.test', 'sec-fetch-site: same-site'])).status,
    ).toBe(200);
    expect((await get(port, [host, `origin: http://localhost:${port}`])).status).toBe(200);
    expect(
      (await get(port, [host, 'origin: https://console.test', 'sec-fetch-site: cross-site'])).status,
    ).toBe(200);
    expect((await get(port, [host, 'sec-fetch-site: same-origin'])).status).toBe(200);
  });

  test.each([
    ['another case', ['sec-fetch-site: Cross-Site']],
    ['a second value', ['sec-fetch-site: same-origin', 'sec-fetch-site: cross-site']],
    ['the same value twice', ['sec-fetch-site: same-origin', 'sec-fetch-site: same-origin']],
    ['a value that is none', ['sec-fetch-site: elsewhere']],
    ['no value', ['sec-fetch-site: ']],
    [
      'two values beside a listed origin',
      ['origin: https://console.test', 'sec-fetch-site: same-site', 'sec-fetch-site: none'],
    ],
  ])('a Sec-Fetch-Site with %s is refused', async (_name, requestHeaders) => {
    const { port } = await startTestWorld({
      server: { surface: 'agent', guard: loopbackGuard({ allowOrigins: ['https://console.test'] }) },
    });
    expect(await get(port, [`host: localhost:${port}`, ...requestHeaders])).toMatchObject({
      status: 403,
      body: { error: { code: 'forbidden_origin' } },
    });
  });

  test.each(['none', 'NONE', 'Same-Origin'])('a Sec-Fetch-Site of %s passes', async (site) => {
    const { port } = await startTestWorld({ server: { surface: 'agent', guard: loopbackGuard() } });
    expect((await get(port, [`host: localhost:${port}`, `sec-fetch-site: ${site}`])).status).toBe(200);
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
    // A drain that waits for it would never end; the limit allows for other tests on the machine.
    expect(performance.now() - startedMs).toBeLessThan(10_000);
    const rejection = await waitingRequest;
    expect([rejection.status, (await errorOf(rejection)).error.code]).toEqual([503, 'draining']);
    expect(await stream.text()).toMatch(/"n":1[^]*"code":"draining"/);
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
