// A contract without a server: start-up checks, routing, credentials, validation and replies.
import { describe, expect, test } from 'vitest';
import { createContract } from '../../../src/kernel/contract/contract.ts';
import { type ContractRequest, parseCredential } from '../../../src/kernel/contract/request.ts';
import { createLog } from '../../../src/kernel/log.ts';
import { Problem } from '../../../src/kernel/problem.ts';
import { createRedactor } from '../../../src/kernel/secrets/secret.ts';
import { contractOf, smallContract, type WorldOptions } from '../world.ts';

const log = createLog({ level: 'silent', redactor: createRedactor() });
const bearer = (token: string) => ({ authorization: `Bearer ${token}` });

interface RequestParts {
  query?: string;
  headers?: Record<string, string>;
  json?: unknown;
  onRead?: () => void;
}

/** Calls the contract without a server: returns the reply, or what an error answer is made of. */
function createCaller(options: WorldOptions = {}) {
  const contract = contractOf(options);
  return async (method: string, path: string, parts: RequestParts = {}) => {
    const request: ContractRequest = {
      method,
      path,
      query: parts.query ?? '',
      headers: parts.headers ?? {},
      credential: parseCredential(parts.headers?.['authorization']),
      requestId: 'req_1',
      remoteAddress: '127.0.0.1',
      log,
      signal: new AbortController().signal,
      timing: () => {},
      note: () => {},
      readBody: () => {
        parts.onRead?.();
        return {
          raw: Buffer.from(JSON.stringify(parts.json) ?? ''),
          isPresent: parts.json !== undefined,
          value: parts.json,
          isForm: false,
        };
      },
      operation: undefined,
      errorDialect: undefined,
      identity: undefined,
      isHandled: false,
      responseHeaders: undefined,
    };
    try {
      const reply = await contract.dispatch(request);
      return { status: reply.status, body: reply.body as Record<string, unknown>, headers: reply.headers };
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      const { status, code, param, details, message, headers } = error;
      return { status, code, param, details, message, headers };
    }
  };
}

const contractOptions = (definition: object, handlers: Record<string, () => Promise<unknown>>) => ({
  definition,
  handlers,
  identities: { userToken: 'user' },
  identify: async () => null,
  guest: { kind: 'guest' },
});

function tinyDocument(
  operation: object,
  security: object = { userToken: { type: 'http', scheme: 'bearer' } },
) {
  return {
    openapi: '3.1.1',
    info: { title: 'Tiny', version: '1' },
    paths: { '/x': { get: { responses: {}, ...operation } } },
    components: { securitySchemes: security },
  };
}

describe('createContract', () => {
  const handler = async () => ({ status: 204 });

  test('refuses an operation that relies on the default security', () => {
    const document = { ...tinyDocument({ operationId: 'x.get' }), security: [{ userToken: [] }] };
    expect(() => createContract(contractOptions(document, { 'x.get': handler }))).toThrow(
      'x.get has no security of its own',
    );
  });

  test('names operations without handlers and handlers without operations', () => {
    const start = () =>
      createContract(
        contractOptions(tinyDocument({ operationId: 'x.get', security: [] }), { 'x.lost': handler }),
      );
    expect(start).toThrow('x.get has no handler');
    expect(start).toThrow('the handler x.lost has no operation');
  });

  test('refuses an operation without an id', () => {
    expect(() => createContract(contractOptions(tinyDocument({ security: [] }), {}))).toThrow(
      'GET /x has no operationId',
    );
  });

  test('refuses a security scheme without an identity', () => {
    const schemes = { userToken: { type: 'http' }, other: { type: 'http' } };
    const document = tinyDocument({ operationId: 'x.get', security: [{ other: [] }] }, schemes);
    expect(() => createContract(contractOptions(document, { 'x.get': handler }))).toThrow(
      'the security scheme other is not mapped to an identity',
    );
  });

  test('refuses a security scheme that the document does not define', () => {
    const document = tinyDocument({ operationId: 'x.get', security: [{ ghost: [] }] });
    const options = contractOptions(document, { 'x.get': handler });
    expect(() => createContract({ ...options, identities: { ghost: 'user' } })).toThrow(
      'the security scheme ghost is not declared',
    );
  });

  test('refuses an operation that requires two credentials', () => {
    const schemes = { userToken: { type: 'http' } };
    const document = tinyDocument(
      { operationId: 'x.get', security: [{ userToken: [], ghost: [] }] },
      schemes,
    );
    expect(() => createContract(contractOptions(document, { 'x.get': handler }))).toThrow(
      'two credentials at once',
    );
  });

  test('logs no error for schemas that compile', async () => {
    const errors: unknown[] = [];
    await contractOf().warm({ ...log, error: (fields) => errors.push(fields) });
    expect(errors).toEqual([]);
  });

  test('logs an operation whose schema does not compile', async () => {
    const definition = smallContract();
    Object.assign(definition['components'] as object, {
      schemas: { TextRequest: { type: 'object', properties: { model: { pattern: '(' } } } },
    });
    const errors: unknown[] = [];
    await contractOf({ definition }).warm({ ...log, error: (fields) => errors.push(fields) });
    expect(errors).toEqual([{ operationId: 'ai.generateText', err: expect.any(Error) }]);
  });

  test('does not modify the document', async () => {
    // Not `contractOf`, which passes on a copy.
    const definition = smallContract();
    const operations = Object.values(definition.paths).flatMap((item) => Object.values(item));
    const handlers = Object.fromEntries(operations.map(({ operationId }) => [operationId, handler]));
    const definitionBefore = JSON.stringify(definition);
    const contract = createContract({
      ...contractOptions(definition, handlers),
      identities: { userToken: 'user', adminSession: 'admin' },
    });
    await contract.warm(log);
    expect(JSON.stringify(definition)).toBe(definitionBefore);
  });
});

describe('deprecation', () => {
  const deprecatedDocument = (days: object) =>
    tinyDocument({ operationId: 'x.get', security: [], deprecated: true, ...days });

  test('is announced in the headers of answers', async () => {
    const definition = smallContract();
    const models = definition.paths['/v1/ai/models']?.['get'] ?? {};
    Object.assign(models, {
      deprecated: true,
      'x-deprecated-since': '2026-11-01',
      'x-sunset': '2027-02-01T00:00:00Z',
    });
    const call = createCaller({ definition });
    expect((await call('GET', '/v1/ai/models', { headers: bearer('user-token') })).headers).toEqual({
      deprecation: '@1793491200',
      sunset: 'Mon, 01 Feb 2027 00:00:00 GMT',
    });
    expect((await call('GET', '/health')).headers).toBeUndefined();
  });

  test('requires the days of deprecation and sunset', () => {
    expect(() =>
      createContract(contractOptions(deprecatedDocument({ 'x-sunset': '2027-02-01' }), {})),
    ).toThrow('x.get is deprecated; declare the days x-deprecated-since and x-sunset.');
  });
});

/** Right and wrong spellings of literal paths, and of literal parts of templates. */
const spellings = [
  '/v1/ai/text',
  '/v1/ai/text/',
  '/v1//ai/text',
  '//v1/ai/text',
  '/v1/ai//text',
  '/V1/ai/text',
  '/v1/AI/text',
  '/v1/ai/Text',
  '/v1/ai/TEXT',
  '/v1/ai/%74ext',
  '/v1/ai/t%65xt',
  '/v1/%61i/text',
  '/v1/ai/%2574ext',
  '/v1/ai/%252574ext',
  '/v1/ai/text%00',
  '/v1/ai/%00text',
  '/v1/ai/text%20',
  '/v1/ai/%20text',
  '/v1/ai/text%09',
  '/v1/ai/text%0d%0a',
  '/v1/ai/text%2f',
  '/v1/ai/text;x=1',
  '/v1/ai/text%3bx=1',
  '/v1/ai/./text',
  '/v1/./ai/text',
  '/v1/ai/x/../text',
  '/v1/x/../ai/text',
  '/v1/ai/%2e/text',
  '/v1/ai/x/%2e%2e/text',
  '/v1/ai/%2e%2e/ai/text',
  '/v1/ai\\text',
  '/v1/ai%5ctext',
  '/v1/ai%2ftext',
  '/v1/ai/%EF%BD%94ext',
  '/v1/ai/te%CC%81xt',
  '/v1/ai/t%E2%80%8Bext',
  '/v1/ai/te%C2%ADxt',
  '/v1/ai/text%E3%80%80',
  '/v1/ai/models',
  '/v1/ai/%6dodels',
  '/v1/ai/MODELS',
  '/v1/ai/image/create',
  '/v1/ai/image%2fcreate',
  '/v1/ai/image%2Fcreate',
  '/v1/ai/image%252fcreate',
  '/v1/ai/Image/create',
  '/v1/ai/image/creat%65',
  '/v1/ai/image/create/',
  '/v1/admin/session',
  '/v1/admin/%73ession',
  '/v1/Admin/session',
  '/v1/ai/%6dodels/x',
  '/v1/AI/models/x',
  '/v1/%2561i/models/x',
];

describe('routing', () => {
  const call = createCaller();

  test('a literal path wins over a matching template', async () => {
    expect((await call('GET', '/v1/ai/models', { headers: bearer('user-token') })).body?.operationId).toBe(
      'ai.listModels',
    );
    expect((await call('POST', '/v1/chess/move')).body).toMatchObject({
      operationId: 'directory.callAction',
      path: { service: 'chess', action: 'move' },
    });
    expect((await call('POST', '/v1/chess/move/undo')).body).toMatchObject({
      operationId: 'directory.callStep',
      path: { step: 'undo' },
    });
  });

  test.each(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'TRACE'])(
    '%s of a literal path in any spelling never reaches the generic operation',
    async (method) => {
      for (const path of spellings) {
        // The generic operation needs no credential and would answer 200; the real ones answer 401.
        const { status } = await call(method, path);
        expect([400, 401, 404, 405], path).toContain(status);
      }
    },
  );

  test('an unsupported method is 405 with the supported ones', async () => {
    expect(await call('POST', '/v1/ai/models')).toMatchObject({
      status: 405,
      code: 'method_not_allowed',
      headers: { allow: 'GET, HEAD, OPTIONS' },
    });
    expect(await call('PUT', '/v1/chess/move')).toMatchObject({
      status: 405,
      headers: { allow: 'GET, HEAD, POST, OPTIONS' },
    });
    expect(await call('TRACE', '/v1/ai/text')).toMatchObject({
      status: 405,
      headers: { allow: 'POST, OPTIONS' },
    });
  });

  test('OPTIONS lists the methods of a path', async () => {
    expect(await call('OPTIONS', '/v1/ai/text')).toMatchObject({
      status: 204,
      headers: { allow: 'POST, OPTIONS' },
    });
  });

  test('HEAD has the operation of GET', async () => {
    expect((await call('HEAD', '/health')).body?.operationId).toBe('directory.getHealth');
  });

  test.each(['GET', 'OPTIONS'])('%s of an unknown path is 404', async (method) => {
    expect(await call(method, '/nowhere')).toMatchObject({ status: 404, code: 'route_not_found' });
  });
});

describe('path parameters', () => {
  const call = createCaller();

  test('a catch-all parameter takes the rest of the path', async () => {
    for (const path of [
      '/v1/ai/models/local/echo',
      '/v1/ai/models/local%2Fecho',
      '/v1/ai/models/local%2fecho',
    ]) {
      expect((await call('GET', path)).body?.path).toEqual({ model_id: 'local/echo' });
    }
    expect((await call('GET', '/v1/ai/models/a/b/c')).body?.path).toEqual({ model_id: 'a/b/c' });
    for (const path of ['/v1/ai/models/', '/v1/ai/models//', '/v1/ai/models/a//b', '/v1/ai/models/a/']) {
      expect((await call('GET', path)).status, path).toBe(404);
    }
  });

  test.each(['..', '.', '%2e%2e', '..%2f..%2fetc', 'a%5cb', 'a%00b', '%0d%0aset-cookie:x', '%7f', '%c2%85'])(
    'a parameter refuses %s',
    async (value) => {
      for (const path of [`/v1/chess/${value}`, `/v1/ai/models/x/${value}`])
        expect([400, 404], path).toContain((await call('GET', path)).status);
    },
  );

  test('only a catch-all parameter takes an encoded slash', async () => {
    expect([400, 404]).toContain((await call('GET', '/v1/chess/a%2fb')).status);
    expect((await call('GET', '/v1/ai/models/x/a%2fb')).body?.path).toEqual({ model_id: 'x/a/b' });
  });

  test('a percent encoding that cannot be decoded is 400', async () => {
    for (const path of ['/v1/chess/%ff', '/v1/chess/%', '/v1/chess/%zz', '/%c0%af', '/v1/ai/models/%e0%a4']) {
      expect(await call('GET', path), path).toMatchObject({ status: 400, code: 'invalid_path' });
    }
  });

  test('prototype names are ordinary names', async () => {
    expect((await call('GET', '/v1/__proto__/constructor')).body?.path).toEqual({
      service: '__proto__',
      action: 'constructor',
    });
  });

  test('a value above its maximum length is 400', async () => {
    expect((await call('GET', `/v1/chess/${'x'.repeat(10_000)}`)).status).toBe(400);
  });
});

describe('identity', () => {
  const call = createCaller();

  test('refuses a guest or wrong identity before reading the body', async () => {
    let reads = 0;
    const onRead = () => {
      reads += 1;
    };
    expect(await call('POST', '/v1/ai/text', { onRead, json: {} })).toMatchObject({
      status: 401,
      code: 'authentication_required',
      headers: { 'www-authenticate': 'Bearer' },
    });
    expect(
      await call('POST', '/v1/ai/text', { onRead, json: {}, headers: bearer('admin-token') }),
    ).toMatchObject({ status: 403, code: 'forbidden_for_identity' });
    expect(await call('GET', '/v1/admin/session', { headers: bearer('user-token') })).toMatchObject({
      status: 403,
    });
    expect(reads).toBe(0);
    expect(
      (await call('POST', '/v1/ai/text', { onRead, json: { model: 'a' }, headers: bearer('user-token') }))
        .status,
    ).toBe(200);
    expect(reads).toBe(1);
  });

  test('an operation for several identities admits each of them', async () => {
    expect((await call('GET', '/v1/ai/models', { headers: bearer('user-token') })).body?.identity).toBe(
      'user',
    );
    expect((await call('GET', '/v1/ai/models', { headers: bearer('admin-token') })).body?.identity).toBe(
      'admin',
    );
  });

  test.each(['bearer', 'BEARER', 'bEaReR'])('the scheme %s admits as Bearer does', async (scheme) => {
    expect(
      (await call('GET', '/v1/ai/models', { headers: { authorization: `${scheme} user-token` } })).body
        ?.identity,
    ).toBe('user');
  });

  test('an invalid credential is 401 even on an open operation', async () => {
    const invalidCredentials = [
      'Bearer wrong',
      'Bearer  user-token',
      'Bearer\tuser-token',
      'Bearer:user-token',
      'Bearer',
      'Bearer ',
      '',
      'Basic dXNlcjp0',
      'user-token',
      'Bearer user-token extra',
      'Bearer user-token,x',
      "Bearer ' OR 1=1--",
      `Bearer ${'x'.repeat(10_000)}`,
    ];
    for (const authorization of invalidCredentials) {
      expect(
        await call('POST', '/v1/chess/move', { headers: { authorization } }),
        authorization.slice(0, 40),
      ).toMatchObject({
        status: 401,
        code: 'invalid_token',
        headers: { 'www-authenticate': 'Bearer error="invalid_token"' },
      });
    }
  });

  test('an oversized credential is refused without a lookup', async () => {
    const lookups: string[] = [];
    const countingCall = createCaller({
      identify: async (credential) => {
        lookups.push(credential);
        return null;
      },
    });
    // The header may have 256 characters; a token of Townhall has 56.
    await countingCall('GET', '/v1/ai/models', { headers: bearer('y'.repeat(257)) });
    expect(lookups).toEqual([]);
    await countingCall('GET', '/v1/ai/models', { headers: bearer('y'.repeat(56)) });
    expect(lookups).toHaveLength(1);
  });

  test('requires the credential before it reads the query', async () => {
    expect(await call('GET', '/v1/admin/session', { query: 'page=%zz' })).toMatchObject({
      status: 401,
      code: 'authentication_required',
    });
  });

  test('the health check ignores any credential', async () => {
    expect(await call('GET', '/health', { headers: bearer('wrong') })).toMatchObject({
      status: 200,
      body: { identity: 'guest' },
    });
  });

  test('a Problem from identify reaches the caller', async () => {
    const refusedCall = createCaller({
      identify: async () => {
        throw new Problem('forbidden', 'bureau_paused', 'Paused.');
      },
    });
    expect(await refusedCall('GET', '/v1/ai/models', { headers: bearer('user-token') })).toMatchObject({
      status: 403,
      code: 'bureau_paused',
    });
  });
});

describe('validation', () => {
  const call = createCaller();
  const text = (json: unknown) => call('POST', '/v1/ai/text', { json, headers: bearer('user-token') });

  test('reports the first invalid member as param and all in details', async () => {
    expect(await text({ model: 'BAD', temperature: 'warm' })).toMatchObject({
      status: 400,
      code: 'invalid_request',
      param: 'model',
      details: [
        { path: 'model', message: 'must match the pattern ^[a-z/]+$' },
        { path: 'temperature', message: 'must be a number' },
      ],
    });
    expect(await text({})).toMatchObject({ param: 'model', message: '`model` is required.' });
    expect(await text({ model: 'a', extra: 1 })).toMatchObject({
      param: 'extra',
      details: [{ path: 'extra', message: 'is not known here' }],
    });
    expect(await text([])).toMatchObject({
      status: 400,
      param: null,
      message: 'The body must be an object.',
    });
  });

  test('requires the body', async () => {
    expect(await text(undefined)).toMatchObject({ status: 400, message: 'This operation needs a body.' });
  });

  test('describes a pattern by its x-pattern-message', async () => {
    const definition = smallContract();
    const { TextRequest } = (definition['components'] as { schemas: Record<string, { properties: object }> })
      .schemas;
    Object.assign(TextRequest?.properties ?? {}, {
      model: { type: 'string', pattern: '^[a-z/]+$', 'x-pattern-message': 'must be lower-case letters' },
    });
    const answer = await createCaller({ definition })('POST', '/v1/ai/text', {
      json: { model: 'BAD' },
      headers: bearer('user-token'),
    });
    expect(answer).toMatchObject({ message: '`model` must be lower-case letters.' });
  });

  test('explains only the closest form of a union', async () => {
    const message = (content: unknown) => text({ model: 'a', messages: [{ role: 'user', content }] });
    expect(await message([{ type: 'text' }])).toMatchObject({
      details: [{ path: 'messages[0].content[0].text', message: 'is required' }],
    });
    expect(await message([{ type: 'file', url: 'not a url' }])).toMatchObject({
      details: [{ path: 'messages[0].content[0].url', message: 'must be a valid uri' }],
    });
    expect(await message([{ type: 'sound' }])).toMatchObject({
      details: [{ path: 'messages[0].content[0].type', message: 'must be one of "text", "file"' }],
    });
    expect(await message([{}])).toMatchObject({
      details: [{ path: 'messages[0].content[0].type', message: 'is required' }],
    });
    expect(await message(5)).toMatchObject({
      details: [{ path: 'messages[0].content', message: 'must be a string or an array' }],
    });
    expect(await text({ model: 'a', messages: [{ role: 'owner', content: 'x' }] })).toMatchObject({
      param: 'messages[0].role',
    });
  });

  // The validator stops at the first error of a body above 16 KiB.
  test('names the first error of a large body', async () => {
    const content = [{ type: 'text', text: 'x'.repeat(20_000) }, { type: 'text' }];
    expect(await text({ model: 'a', messages: [{ role: 'user', content }] })).toMatchObject({
      status: 400,
      param: 'messages[0].content[1].text',
    });
  });

  test('a recursive schema validates at every depth', async () => {
    expect(
      (await text({ model: 'a', tree: { name: 'a', child: { name: 'b', child: { name: 'c' } } } })).status,
    ).toBe(200);
    expect(await text({ model: 'a', tree: { name: 'a', child: { name: 'b', child: {} } } })).toMatchObject({
      param: 'tree.child.child.name',
    });
  });

  test('quotes and shortens names that are not identifiers', async () => {
    const { param } = await text({ model: 'a', [`x y${'z'.repeat(500)}`]: 1 });
    expect(param).toMatch(/^\["x yz+"\]$/);
    expect(param?.length).toBeLessThan(140);
  });

  const search = (query: string) => call('GET', '/v1/lists/search', { query });

  test('converts query parameters to their declared types', async () => {
    expect((await search('limit=5&tags=a&tags=b%20c')).body?.query).toEqual({ limit: 5, tags: ['a', 'b c'] });
    expect((await search('tags=one+two')).body?.query).toEqual({ tags: ['one two'] });
  });

  test('names the query parameter that it cannot convert', async () => {
    expect(await search('limit=0')).toMatchObject({
      status: 400,
      param: 'limit',
      message: 'The query parameter `limit` must be at least 1.',
    });
    for (const query of [
      'limit=x',
      'limit=',
      'limit=1.5',
      'limit=1&limit=2',
      'limit=501',
      'limit=%20',
      'limit=0x10',
      'limit=1e1',
      'limit=+5',
    ])
      expect(await search(query), query).toMatchObject({ status: 400, param: 'limit' });
    expect(await search('limit=%ff')).toMatchObject({ status: 400, code: 'invalid_request' });
  });

  test('refuses an undeclared query parameter', async () => {
    expect(await search('other=1')).toMatchObject({ status: 400, param: 'other' });
    expect(await search('__proto__=1')).toMatchObject({ status: 400, param: '__proto__' });
    expect(await search('tags[0]=1')).toMatchObject({ status: 400 });
  });

  test('an operation may tolerate undeclared query parameters', async () => {
    expect(
      (await call('GET', '/v1/lists/callback', { query: 'state=s&iss=x&scope=y&scope=z' })).body?.query,
    ).toMatchObject({ state: 's', iss: 'x' });
    expect(await call('GET', '/v1/lists/callback', { query: 'iss=x' })).toMatchObject({
      status: 400,
      param: 'state',
    });
  });

  test('only declared, validated headers reach the handler', async () => {
    expect(
      (await call('GET', '/v1/lists/search', { headers: { 'x-mode': 'fast', 'x-other': '1' } })).body
        ?.headers,
    ).toEqual({ 'x-mode': 'fast' });
    expect(await call('GET', '/v1/lists/search', { headers: { 'x-mode': 'odd' } })).toMatchObject({
      status: 400,
      param: 'x-mode',
    });
  });
});

// The option `validateResponses`, which tests set.
describe('the validation of replies', () => {
  const callReplying = (reply: unknown) =>
    createCaller({ handlers: { 'directory.getHealth': async () => reply } })('GET', '/health');

  test('rejects an undeclared body, status or media type', async () => {
    await expect(callReplying({ status: 200, body: 'text' })).rejects.toThrow(
      'directory.getHealth 200 at /: must be object',
    );
    await expect(callReplying({ status: 201, body: {} })).rejects.toThrow(
      'directory.getHealth does not declare the status 201',
    );
    await expect(
      callReplying({ status: 200, content: Buffer.from('x'), mediaType: 'text/plain' }),
    ).rejects.toThrow('does not declare text/plain');
    await expect(callReplying({ status: 200 })).rejects.toThrow('declares content');
    expect((await callReplying({ status: 200, body: { ok: true } })).status).toBe(200);
  });
});
