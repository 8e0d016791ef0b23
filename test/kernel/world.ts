// A small contract and a server for it, for tests of the kernel, and a raw socket for requests that
// no HTTP client sends.
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import path from 'node:path';
import type { Document } from '../../scripts/generate/document.ts';
import { addSharedHeaders } from '../../scripts/generate/headers.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import { type ContractOptions, createContract } from '../../src/kernel/contract/contract.ts';
import type { Call } from '../../src/kernel/contract/operation.ts';
import { createLog } from '../../src/kernel/log.ts';
import { createRedactor } from '../../src/kernel/secrets/secret.ts';
import { createServer, type Server, type ServerOptions } from '../../src/kernel/http/server.ts';

/** These contracts have no generated types, so their calls have the widest types. */
export type AnyCall = Call<
  {
    body: unknown;
    path: Record<string, string>;
    query: Record<string, unknown>;
    headers: Record<string, unknown>;
    identity: string;
    reply: never;
    passthrough: false;
  },
  { kind: string }
>;
type AnyHandler = (call: AnyCall) => Promise<unknown>;

interface SmallDocument {
  [member: string]: unknown;
  paths: Record<string, Record<string, { operationId: string; [member: string]: unknown }>>;
}

interface RawProblem {
  success?: boolean;
  error: { type: string; code: string; message: string; request_id: string };
}

const sharedHeaders = path.join(import.meta.dirname, '../../openapi/shared/headers');
const problem = {
  description: 'An error.',
  content: { 'application/json': { schema: { $ref: '#/components/schemas/Problem' } } },
};
const json = (schema: object) => ({ description: 'Done.', content: { 'application/json': { schema } } });
const anyObject = { type: 'object' };
const userOnly = [{ userToken: [] }];
const pathParameter = (name: string, extraMembers: object = {}) => ({
  name,
  in: 'path',
  required: true,
  schema: { type: 'string', maxLength: 256 },
  ...extraMembers,
});

/** Literal paths beside a generic path, a recursive body, a union by `type`, streams and bytes. */
export function smallContract(): SmallDocument {
  return {
    openapi: '3.1.1',
    info: { title: 'Small', version: '1' },
    paths: structuredClone(smallPaths),
    components: {
      securitySchemes: {
        userToken: { type: 'http', scheme: 'bearer' },
        adminSession: { type: 'http', scheme: 'bearer' },
      },
      schemas: structuredClone(smallSchemas),
    },
  };
}

const smallPaths: SmallDocument['paths'] = {
  '/health': {
    get: {
      operationId: 'directory.getHealth',
      security: [],
      'x-ignores-credential': true,
      responses: { 200: json(anyObject) },
    },
  },
  '/v1/ai/models': {
    get: {
      operationId: 'ai.listModels',
      security: [{ userToken: [] }, { adminSession: [] }],
      responses: { 200: json(anyObject), 401: problem, 403: problem },
    },
  },
  '/v1/ai/models/{model_id}': {
    get: {
      operationId: 'ai.getModel',
      security: [],
      parameters: [pathParameter('model_id', { 'x-spans-slashes': true })],
      responses: { 200: json(anyObject), 400: problem },
    },
  },
  '/v1/ai/text': {
    post: {
      operationId: 'ai.generateText',
      security: userOnly,
      requestBody: {
        required: true,
        content: { 'application/json': { schema: { $ref: '#/components/schemas/TextRequest' } } },
      },
      responses: {
        200: json(anyObject),
        400: problem,
        401: problem,
        403: problem,
        413: problem,
        415: problem,
      },
    },
  },
  '/v1/ai/image/create': {
    post: {
      operationId: 'ai.createImage',
      security: userOnly,
      responses: { 200: json(anyObject), 400: problem },
    },
  },
  '/v1/admin/session': {
    get: {
      operationId: 'admin.getSession',
      security: [{ adminSession: [] }],
      responses: { 200: json(anyObject), 403: problem },
    },
  },
  '/v1/lists/search': {
    get: {
      operationId: 'lists.search',
      security: [],
      parameters: [
        { name: 'limit', in: 'query', schema: { type: 'integer', minimum: 1, maximum: 500 } },
        { name: 'tags', in: 'query', schema: { type: 'array', items: { type: 'string' } } },
        { name: 'X-Mode', in: 'header', schema: { enum: ['fast', 'slow'] } },
      ],
      responses: { 200: json(anyObject), 400: problem },
    },
  },
  '/v1/lists/callback': {
    get: {
      operationId: 'lists.callback',
      security: [],
      'x-tolerates-query': true,
      parameters: [{ name: 'state', in: 'query', required: true, schema: { type: 'string' } }],
      responses: { 200: json(anyObject), 400: problem },
    },
  },
  '/v1/open/echo': {
    post: {
      operationId: 'open.echo',
      security: [],
      'x-max-body-bytes': 200_000,
      requestBody: { required: true, content: { 'application/json': { schema: { type: 'object' } } } },
      responses: { 200: json(anyObject), 400: problem, 409: problem, 413: problem, 415: problem },
    },
  },
  '/v1/open/stream': {
    get: {
      operationId: 'open.stream',
      security: [],
      responses: {
        200: {
          description: 'Events.',
          content: {
            'text/event-stream': {
              schema: { type: 'object', required: ['n'], properties: { n: { type: 'integer' } } },
            },
          },
        },
      },
    },
  },
  '/v1/open/bytes': {
    get: {
      operationId: 'open.bytes',
      security: [],
      responses: { 200: { description: 'Bytes.', content: { 'application/octet-stream': {} } } },
    },
  },
  '/v1/open/wait': {
    get: { operationId: 'open.wait', security: [], responses: { 200: json(anyObject), 503: problem } },
  },
  '/v1/{service}/{action}': {
    get: {
      operationId: 'directory.readAction',
      security: [],
      parameters: [pathParameter('service'), pathParameter('action')],
      responses: { 200: json(anyObject) },
    },
    post: {
      operationId: 'directory.callAction',
      security: [],
      parameters: [pathParameter('service'), pathParameter('action')],
      responses: { 200: json(anyObject) },
    },
  },
  '/v1/{service}/{action}/{step}': {
    post: {
      operationId: 'directory.callStep',
      security: [],
      parameters: [pathParameter('service'), pathParameter('action'), pathParameter('step')],
      responses: { 200: json(anyObject) },
    },
  },
};

const smallSchemas = {
  TextRequest: {
    type: 'object',
    required: ['model'],
    additionalProperties: false,
    properties: {
      model: { type: 'string', pattern: '^[a-z/]+$' },
      temperature: { type: 'number' },
      messages: { type: 'array', items: { $ref: '#/components/schemas/Message' } },
      tree: { $ref: '#/components/schemas/Tree' },
    },
  },
  Message: {
    type: 'object',
    required: ['role', 'content'],
    additionalProperties: false,
    properties: {
      role: { enum: ['system', 'user'] },
      content: {
        oneOf: [{ type: 'string' }, { type: 'array', items: { $ref: '#/components/schemas/Part' } }],
      },
    },
  },
  Part: {
    oneOf: [{ $ref: '#/components/schemas/TextPart' }, { $ref: '#/components/schemas/FilePart' }],
  },
  TextPart: {
    type: 'object',
    required: ['type', 'text'],
    additionalProperties: false,
    properties: { type: { const: 'text' }, text: { type: 'string' } },
  },
  FilePart: {
    type: 'object',
    required: ['type', 'url'],
    additionalProperties: false,
    properties: { type: { const: 'file' }, url: { type: 'string', format: 'uri' } },
  },
  Tree: {
    type: 'object',
    required: ['name'],
    additionalProperties: false,
    properties: { name: { type: 'string' }, child: { $ref: '#/components/schemas/Tree' } },
  },
  Problem: {
    type: 'object',
    required: ['error'],
    properties: {
      error: {
        type: 'object',
        required: ['type', 'code', 'message', 'param', 'request_id'],
        properties: {
          type: { type: 'string' },
          code: { type: 'string' },
          message: { type: 'string' },
          param: { type: ['string', 'null'] },
          request_id: { type: 'string' },
          details: { type: 'array' },
        },
        additionalProperties: false,
      },
    },
  },
};

export interface World {
  url: string;
  port: number;
  server: Server;
  lines: Record<string, unknown>[];
  close(): Promise<void>;
}

export interface WorldOptions {
  definition?: object;
  handlers?: Record<string, AnyHandler>;
  server?: Partial<ServerOptions>;
  port?: number;
  identify?: ContractOptions<{ kind: string }>['identify'];
}

/**
 * Adds the kernel's errors and the shared headers, which `npm run generate` and the lint add to the
 * real contract.
 */
function completeDocument(definition: SmallDocument): SmallDocument {
  const document = structuredClone(definition);
  for (const item of Object.values(document.paths)) {
    for (const operation of Object.values(item)) {
      const refusals = [400, 401, 403, 408, 409, 413, 415, 429, 500, 503].map((status) => [status, problem]);
      operation['responses'] = structuredClone({
        ...(Object.fromEntries(refusals) as object),
        ...(operation['responses'] as object),
      });
    }
  }
  addSharedHeaders(document as Document, { name: 'gateway' }, sharedHeaders);
  return document;
}

/** Every operation answers with its id and input unless the test has its own handler. */
export function contractOf(options: WorldOptions = {}) {
  const definition = completeDocument((options.definition ?? smallContract()) as SmallDocument);
  const handlers: Record<string, AnyHandler> = {};
  for (const item of Object.values(definition.paths)) {
    for (const { operationId } of Object.values(item)) {
      handlers[operationId] = async (call) => ({
        status: 200,
        body: {
          operationId,
          path: call.path,
          query: call.query,
          headers: call.headers,
          body: call.body ?? null,
          identity: call.identity.kind,
        },
      });
    }
  }
  return createContract<{ kind: string }>({
    definition,
    handlers: { ...handlers, ...options.handlers },
    identities: { userToken: 'user', adminSession: 'admin' },
    identify:
      options.identify ??
      (async (bearer) => {
        if (bearer === 'user-token') return { kind: 'user' };
        return bearer === 'admin-token' ? { kind: 'admin' } : null;
      }),
    guest: { kind: 'guest' },
    validateResponses: true,
  });
}

export async function startWorld(options: WorldOptions = {}): Promise<World> {
  const lines: Record<string, unknown>[] = [];
  const log = createLog({
    level: 'debug',
    redactor: createRedactor(),
    write: (line) => lines.push(JSON.parse(line) as Record<string, unknown>),
  });
  const server = createServer({
    contract: contractOf(options),
    log,
    clock: systemClock,
    surface: 'gateway',
    ...options.server,
  });
  const { url, port } = await server.listen({ host: '127.0.0.1', port: options.port ?? 0 });
  return { url, port, server, lines, close: () => server.close({ drainMs: 0 }) };
}

/** Status, head and parsed JSON body of a raw response; the status is 0 for an empty one. */
export function rawAnswer(text: string): { status: number; head: string; body: RawProblem | undefined } {
  const [head = '', body = ''] = text.split('\r\n\r\n');
  return {
    status: Number(/^HTTP\/1\.1 (\d{3})/.exec(head)?.[1] ?? 0),
    head: head.toLowerCase(),
    body: body.startsWith('{') ? (JSON.parse(body) as RawProblem) : undefined,
  };
}

export async function openSocket(port: number): Promise<Socket> {
  const socket = connect(port, '127.0.0.1');
  await once(socket, 'connect');
  // The server may reset the connection; tests look at what has arrived and at `closed`.
  socket.on('error', () => {});
  return socket;
}
