// What the server does with bodies and with hostile or malformed requests, over real sockets.
import { describe, expect, test } from 'vitest';
import { quickest } from '../../support/quickest.ts';
import { sendBytes } from '../../support/raw-http.ts';
import { until } from '../../support/until.ts';
import { openSocket, rawAnswer } from '../world.ts';
import { errorOf, post, startTestWorld, userHeaders } from './test-server.ts';

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

  test('are refused before a client with Expect sends them', async () => {
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
    const documents: [string, string | Buffer<ArrayBuffer>][] = [
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
    // Only bodies of up to 64 bytes are searched for an empty object.
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

  test('cannot add headers or log lines by control characters', async () => {
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
      ['invalid Host', 'GET /health HTTP/1.1\r\nhost: a b/c\r\n\r\n'],
      ['authority of another host', 'GET http://evil.test/health HTTP/1.1\r\nhost: a\r\n\r\n'],
      ['authority that begins with the host', 'GET http://a.evil.test/health HTTP/1.1\r\nhost: a\r\n\r\n'],
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
      ['NUL in a header', 'GET /health HTTP/1.1\r\nhost: a\r\nx: a\0b\r\n\r\n'],
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
