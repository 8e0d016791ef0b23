// The gateway client: its methods, its requests and its errors.

import { readFileSync } from 'node:fs';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import {
  createGatewayClient,
  type GatewayClient,
  type GatewayClientOptions,
  GatewayError,
} from '../../clients/gateway/src/index.ts';
import { quickest } from '../support/quickest.ts';
import { failureOf, problem, type ScriptedServer, sendJson, startScriptedServer } from './scripted-server.ts';

let server: ScriptedServer;
let client: GatewayClient;

beforeAll(async () => {
  server = await startScriptedServer();
  client = connect();
});
afterEach(() => server.requests.splice(0));
afterAll(() => server.close());

function connect(options: Partial<GatewayClientOptions> = {}): GatewayClient {
  return createGatewayClient({ baseUrl: server.baseUrl, token: 'th_usr_x', ...options });
}

describe('the methods', () => {
  test('are exactly the operations of the contract without aliases', () => {
    const bundle = JSON.parse(
      readFileSync(new URL('../../src/contract/gateway/bundle.json', import.meta.url), 'utf8'),
    ) as { paths: Record<string, Record<string, { operationId?: string; 'x-alias-of'?: string }>> };
    const operationIds = Object.values(bundle.paths).flatMap((path) =>
      Object.values(path)
        .filter((operation) => operation['x-alias-of'] === undefined)
        .flatMap(({ operationId }) => operationId ?? []),
    );
    // Members that are functions (`model`, `login`, `call`, …) are handwritten on top of the
    // operations.
    const services = Object.entries(client).filter(([, member]) => typeof member === 'object');
    const methods = services.flatMap(([service, operations]) =>
      Object.keys(operations as object).map((name) => `${service}.${name}`),
    );
    expect(operationIds.length).toBeGreaterThan(10);
    // The generic call of a project's services has one handwritten method, `client.call`.
    expect(methods.toSorted()).toEqual(
      operationIds.filter((operationId) => !operationId.startsWith('services.')).toSorted(),
    );
    expect(client.model).toBeTypeOf('function');
    expect(client.call).toBeTypeOf('function');
  });

  test('send members as the body of an operation that has one', async () => {
    server.script((_request, response) => sendJson(response, 200, { id: 'msg_1' }));
    expect(await client.ai.generateText({ model: 'local/echo', prompt: 'Grüße' })).toEqual({ id: 'msg_1' });
    expect(server.requests[0]).toMatchObject({
      method: 'POST',
      url: '/v1/ai/text',
      json: { model: 'local/echo', prompt: 'Grüße' },
      headers: { 'content-type': 'application/json', authorization: 'Bearer th_usr_x' },
    });
  });

  test('send members as the query of an operation without a body', async () => {
    server.script((_request, response) => sendJson(response, 200, {}));
    await client.accounts.getLoginResult({ login_id: 'a b&c' });
    expect(server.requests[0]).toMatchObject({
      method: 'GET',
      url: '/v1/accounts/login/result?login_id=a%20b%26c',
      text: '',
    });
  });

  test('encode the characters of a path member', async () => {
    server.script((_request, response) => sendJson(response, 200, {}));
    await client.ai.getModel({ model_id: 'local/echo?x#y' });
    expect(server.requests[0]?.url).toBe('/v1/ai/models/local%2Fecho%3Fx%23y');
  });

  test.each(['', '.', '..'])('refuse %j in the path, which would name another route', async (model_id) => {
    await expect(client.ai.getModel({ model_id })).rejects.toThrow(TypeError);
    expect(server.requests).toHaveLength(0);
  });

  test('send no body without members', async () => {
    server.script((_request, response) => sendJson(response, 200, { ok: true }));
    expect(await client.admin.logout()).toEqual({ ok: true });
    expect(server.requests[0]).toMatchObject({ method: 'POST', text: '' });
    expect(server.requests[0]?.headers).not.toHaveProperty('content-type');
  });

  test('prefer the headers of the call to those of the client', async () => {
    server.script((_request, response) => sendJson(response, 200, {}));
    await connect({ headers: { 'x-a': '1', 'x-b': '1' } }).ai.listModels(undefined, {
      headers: { 'x-b': '2', 'x-c': undefined },
    });
    expect(server.requests[0]?.headers).toMatchObject({ 'x-a': '1', 'x-b': '2' });
    expect(server.requests[0]?.headers).not.toHaveProperty('x-c');
  });

  test('reach a server below a path', async () => {
    server.script((_request, response) => sendJson(response, 200, {}));
    await connect({ baseUrl: `${server.baseUrl}/town/` }).directory.getHealth();
    expect(server.requests[0]?.url).toBe('/town/health');
  });

  test('use the fetch of the options', async () => {
    const paths: string[] = [];
    const fetchingClient = connect({
      fetch: (input, init) => {
        paths.push(`${init?.method} ${typeof input === 'string' ? input : ''}`);
        return Promise.resolve(Response.json({ ok: true }));
      },
    });
    await fetchingClient.directory.getHealth();
    expect(paths).toEqual([`GET ${server.baseUrl}/health`]);
  });
});

describe('the base address', () => {
  test.each(['', 'localhost', '/v1', 'ftp://127.0.0.1', 'http://a:b@127.0.0.1', 'http://127.0.0.1/?x=1'])(
    'may not be %j',
    (baseUrl) => {
      expect(() => createGatewayClient({ baseUrl })).toThrow(TypeError);
    },
  );
});

describe('the token', () => {
  test('is requested for each call that needs one', async () => {
    server.script((_request, response) => sendJson(response, 200, {}));
    let requestCount = 0;
    const client = connect({ token: async () => `th_usr_${++requestCount}\n` });
    await client.ai.listModels();
    await client.directory.getHealth();
    await client.ai.listModels();
    expect(server.requests.map(({ headers }) => headers.authorization)).toEqual([
      'Bearer th_usr_1',
      undefined,
      'Bearer th_usr_2',
    ]);
    expect(requestCount).toBe(2);
  });

  describe('from a function that never ends', () => {
    const connectHanging = () => connect({ token: () => new Promise<string>(() => {}) });
    const call = { model: 'local/echo', prompt: 'Hi' };
    const streamCall = { model: 'local/echo', prompt: [] };

    test('does not outlast the deadline of the call', async () => {
      const late = { status: 0, code: 'timeout' };
      expect(await failureOf(connectHanging().ai.generateText(call, { timeoutMs: 100 }))).toMatchObject(late);
      const stream = connectHanging().ai.streamText(streamCall, { timeoutMs: 100 }).withResponse();
      expect(await failureOf(stream)).toMatchObject(late);
    });

    test('does not outlast an abort', async () => {
      const abort = new AbortController();
      const options = { signal: abort.signal };
      const calls = [
        connectHanging().ai.generateText(call, options),
        connectHanging().ai.streamText(streamCall, options).withResponse(),
      ];
      const reason = new Error('enough');
      abort.abort(reason);
      expect(await Promise.allSettled(calls)).toEqual([
        { status: 'rejected', reason },
        { status: 'rejected', reason },
      ]);
    });
  });

  test('fails the call with its own error', async () => {
    const reason = new Error('no token');
    await expect(connect({ token: () => Promise.reject(reason) }).ai.listModels()).rejects.toBe(reason);
  });

  test('is not quoted in the error when a header cannot carry it', async () => {
    const error = await connect({ token: 'th_usr_a\r\nx-evil: 1' })
      .ai.listModels()
      .catch((cause: unknown) => cause);
    expect(error).toBeInstanceOf(TypeError);
    expect(String(error)).not.toContain('th_usr_a');
    expect(server.requests).toHaveLength(0);
  });
});

describe('a failure', () => {
  test('has the members of the server’s error, without a retry', async () => {
    const details = [{ path: 'model', message: 'is required' }];
    server.script((_request, response) =>
      sendJson(
        response,
        400,
        problem('invalid_request_error', 'invalid_request', { param: 'model', details }),
        { 'x-request-id': 'req_header' },
      ),
    );
    const error = await failureOf(client.ai.generateText({ model: 'x', prompt: 'Hi' }));
    expect(error).toBeInstanceOf(Error);
    expect({ ...error, message: error.message }).toEqual({
      name: 'GatewayError',
      message: 'It is invalid_request.',
      status: 400,
      code: 'invalid_request',
      type: 'invalid_request_error',
      param: 'model',
      details,
      requestId: 'req_header',
      retryable: false,
      retryAfterMs: undefined,
    });
    expect(error.headers['content-type']).toBe('application/json; charset=utf-8');
    expect(server.requests).toHaveLength(1);
  });

  test.each([401, 403, 404, 409, 410, 413, 415, 422])('is not retryable with status %i', async (status) => {
    server.script((_request, response) =>
      sendJson(response, status, problem('invalid_request_error', 'conflict')),
    );
    expect(await failureOf(client.ai.generateText({ model: 'x', prompt: 'Hi' }))).toMatchObject({
      status,
      retryable: false,
    });
    expect(server.requests).toHaveLength(1);
  });

  test.each([408, 429, 500, 502, 503, 504, 529])(
    'is retryable by the caller with status %i',
    async (status) => {
      server.script((_request, response) =>
        sendJson(response, status, problem('server_error', 'draining'), { 'retry-after': '2' }),
      );
      expect(await failureOf(client.ai.generateText({ model: 'x', prompt: 'Hi' }))).toMatchObject({
        status,
        retryable: true,
        retryAfterMs: 2000,
      });
      expect(server.requests).toHaveLength(1);
    },
  );

  test('is retryable with status 409 and a Retry-After', async () => {
    server.script((_request, response) =>
      sendJson(response, 409, problem('invalid_request_error', 'conflict'), { 'retry-after': '2' }),
    );
    expect(await failureOf(client.ai.listModels())).toMatchObject({ retryable: true, retryAfterMs: 2000 });
  });

  test('follows the server’s x-should-retry', async () => {
    server.script((_request, response) =>
      sendJson(response, 502, problem('upstream_error', 'provider_credentials'), {
        'x-should-retry': 'false',
      }),
    );
    expect(await failureOf(client.ai.listModels())).toMatchObject({ retryable: false });
  });

  const readRetryAfterMs = async (header: string) => {
    server.script((_request, response) =>
      sendJson(response, 503, problem('server_error', 'draining'), { 'retry-after': header }),
    );
    return (await failureOf(client.ai.listModels())).retryAfterMs;
  };

  test('reads a date in Retry-After', async () => {
    const retryAfterMs = await readRetryAfterMs(new Date(Date.now() + 30_000).toUTCString());
    expect(retryAfterMs).toBeGreaterThan(25_000);
    expect(retryAfterMs).toBeLessThanOrEqual(30_000);
  });

  test.each([new Date(0).toUTCString(), 'soon', '-5'])('ignores a Retry-After of %s', async (header) => {
    expect(await readRetryAfterMs(header)).toBeUndefined();
  });

  test('is recognized by isInstance across two copies of the module', async () => {
    const copy = '../../clients/gateway/src/errors.ts?copy';
    const otherCopy = (await import(/* @vite-ignore */ copy)) as { GatewayError: typeof GatewayError };
    const error = new otherCopy.GatewayError({ code: 'timeout', message: 'Late.' });
    expect(otherCopy.GatewayError).not.toBe(GatewayError);
    expect(error).not.toBeInstanceOf(GatewayError);
    expect(GatewayError.isInstance(error)).toBe(true);
    for (const value of [new Error('x'), null, undefined, 'x', { name: 'GatewayError' }])
      expect(GatewayError.isInstance(value)).toBe(false);
  });
});

describe('an answer that is not JSON from the gateway', () => {
  test('fails without the HTML of a proxy', async () => {
    server.script(
      (_request, response) =>
        void response
          .writeHead(502, { 'content-type': 'text/html' })
          .end('<html><h1>Bad Gateway</h1></html>'),
    );
    const error = await failureOf(client.ai.listModels());
    expect(error).toMatchObject({
      status: 502,
      code: 'invalid_response',
      type: 'transport_error',
      retryable: true,
    });
    expect(error.message).not.toContain('<');
  });

  test.each([
    ['a page', 'text/html', '<html>'],
    ['broken JSON', 'application/json', '{"id":'],
    ['nothing', 'application/json', ''],
  ])('is invalid_response for %s with status 200', async (_content, mediaType, text) => {
    server.script(
      (_request, response) => void response.writeHead(200, { 'content-type': mediaType }).end(text),
    );
    expect(await failureOf(client.ai.listModels())).toMatchObject({
      status: 200,
      code: 'invalid_response',
      retryable: false,
    });
  });

  test('is invalid_response for a redirect, which is not followed', async () => {
    server.script((_request, response) => void response.writeHead(301, { location: '/elsewhere' }).end());
    expect(await failureOf(client.ai.generateText({ model: 'x', prompt: 'Hi' }))).toMatchObject({
      status: 301,
      code: 'invalid_response',
    });
    expect(server.requests).toHaveLength(1);
  });
});

describe('a broken connection', () => {
  test('has status 0 and the cause when no connection is made', async () => {
    const closedServer = await startScriptedServer();
    await closedServer.close();
    const error = await failureOf(connect({ baseUrl: closedServer.baseUrl }).ai.listModels());
    expect(error).toMatchObject({
      status: 0,
      code: 'connection_failed',
      type: 'transport_error',
      retryable: true,
    });
    expect(error.cause).toBeInstanceOf(TypeError);
  });

  test('is not retryable when the connection breaks midway', async () => {
    server.script(async (_request, response) => {
      response.writeHead(200, { 'content-type': 'application/json', 'content-length': '100' });
      await new Promise((resolve) => response.write('{"id":', resolve));
      response.socket?.resetAndDestroy();
    });
    expect(await failureOf(client.ai.generateText({ model: 'x', prompt: 'Hi' }))).toMatchObject({
      status: 200,
      code: 'connection_failed',
      retryable: false,
    });
    expect(server.requests).toHaveLength(1);
  });

  test('is closed by the client at the deadline of the call', async () => {
    server.script(() => {});
    expect(
      await failureOf(client.ai.generateText({ model: 'x', prompt: 'Hi' }, { timeoutMs: 1_500 })),
    ).toMatchObject({ status: 0, code: 'timeout', retryable: false });
    expect(await server.requests[0]?.disconnection).toBeGreaterThan(0);
  });

  test('is closed by the client within 50 ms of an abort', async () => {
    const closeMs = await quickest(50, async () => {
      const abort = new AbortController();
      let startedMs = Infinity;
      server.script(() => {
        startedMs = performance.now();
        abort.abort();
      });
      const error = await client.ai
        .generateText({ model: 'x', prompt: 'Hi' }, { signal: abort.signal })
        .catch((cause: unknown) => cause);
      expect(error).toBe(abort.signal.reason);
      expect(error).toMatchObject({ name: 'AbortError' });
      return ((await server.requests.at(-1)?.disconnection) ?? Infinity) - startedMs;
    });
    expect(closeMs).toBeLessThan(50);
  });

  test('is not even opened for an aborted signal', async () => {
    const reason = new Error('enough');
    await expect(client.ai.listModels(undefined, { signal: AbortSignal.abort(reason) })).rejects.toBe(reason);
    expect(server.requests).toHaveLength(0);
  });
});
