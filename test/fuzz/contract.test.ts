// Calls every operation with wrong bodies, queries and paths, and every path with undeclared methods: the
// contract declares each answer, every error has the declared shape, and no answer is a 500.
import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startAgent } from '../support/agent.ts';
import { startGateway } from '../support/gateway.ts';
import { rawRequest } from '../support/raw-http.ts';
import { type Json, hostileValues, mutationsOf } from './mutations.ts';
import { readFuzzSettings } from './settings.ts';

interface MediaType {
  examples?: Record<string, { value: Json }>;
  example?: Json;
}
interface Parameter {
  name: string;
  in: string;
  example?: string;
  required?: boolean;
}
interface Operation {
  operationId: string;
  parameters?: (Parameter | { $ref: string })[];
  requestBody?: { content: Record<string, MediaType> };
  responses: Record<string, unknown>;
}
interface ContractDocument {
  paths: Record<string, Record<string, Operation>>;
  components: { parameters?: Record<string, Parameter> };
}
interface Surface {
  url: string;
  token: string;
  close(): Promise<void>;
}

const { seed, runs } = readFuzzSettings(25);

const starts: Record<'gateway' | 'agent', () => Promise<Surface>> = {
  async gateway() {
    const world = await startGateway({
      env: { RATE_LIMIT_USER: 'off', RATE_LIMIT_GUEST: 'off', LOG_LEVEL: 'error' },
    });
    return { url: world.url, token: world.userToken, close: () => world.close() };
  },
  agent: () => startAgent({ gatewayUrl: 'http://127.0.0.1:9', gatewayToken: 'nobody' }),
};

describe.each(['gateway', 'agent'] as const)('wrong requests to the %s', (name) => {
  const document = readDocument(name);
  const operations = Object.entries(document.paths).flatMap(([path, item]) =>
    Object.entries(item).map(([method, operation]) => ({ path, method: method.toUpperCase(), operation })),
  );
  let surface: Surface;
  beforeAll(async () => {
    surface = await starts[name]();
  });
  afterAll(() => surface?.close());

  test.each(operations.map((entry) => [entry.operation.operationId, entry] as const))(
    '%s answers as declared',
    { timeout: 300_000 },
    async (_id, { path, method, operation }) => {
      const parameters = parametersOf(document, operation);
      await fc.assert(
        fc.asyncProperty(wrongRequests(operation, parameters), async (wrongRequest) => {
          const target = targetOf(path, parameters, wrongRequest);
          const answer = await send(surface, { method, target, body: wrongRequest.body });
          const text = await textOf(answer);
          expect(answer.status, text.slice(0, 400)).not.toBe(500);
          if (answer.status >= 400 && (answer.headers.get('content-type') ?? '').includes('json'))
            requireErrorShape(path, answer.status, text);
          // A path or query that is refused before routing has only the general errors.
          expect(
            [...Object.keys(operation.responses).map(Number), 404, 405],
            `${answer.status} ${text.slice(0, 300)}`,
          ).toContain(answer.status);
        }),
        { seed, numRuns: runs },
      );
    },
  );

  test.each(['PUT', 'DELETE', 'PATCH', 'POST', 'GET', 'TRACE', 'PROPFIND'])(
    'undeclared %s gets 405 with the declared methods in Allow',
    async (method) => {
      const paths = Object.entries(document.paths).filter(
        ([path, item]) => !(method.toLowerCase() in item) && !path.includes('{'),
      );
      expect(paths.length).toBeGreaterThan(5);
      for (const [path, item] of paths) {
        const { host } = new URL(surface.url);
        const { status, headers } = await rawRequest(surface.url, method, path, [['host', host]]);
        expect(status, `${method} ${path}`).toBe(405);
        const declaredMethods = Object.keys(item).map((declared) => declared.toUpperCase());
        expect(headers.allow?.split(', '), path).toEqual(expect.arrayContaining(declaredMethods));
      }
    },
  );
});

function readDocument(surface: string): ContractDocument {
  const file = new URL(`../../src/contract/${surface}/bundle.json`, import.meta.url);
  return JSON.parse(readFileSync(file, 'utf8')) as ContractDocument;
}

function parametersOf(document: ContractDocument, { parameters = [] }: Operation): Parameter[] {
  return parameters.map((parameter) => {
    if (!('$ref' in parameter)) return parameter;
    const component = document.components.parameters?.[parameter.$ref.split('/').at(-1) ?? ''];
    if (component === undefined) throw new Error(`There is no ${parameter.$ref}.`);
    return component;
  });
}

interface WrongRequest {
  body: Json | undefined;
  query: { name: string; value: string } | null;
  /** The value of each path parameter; null for the values of the contract's examples. */
  pathValue: string | null;
}

/** A mutated body with a valid target, or with a hostile query or path. */
function wrongRequests(operation: Operation, parameters: readonly Parameter[]): fc.Arbitrary<WrongRequest> {
  const exampleBody = exampleBodyOf(operation);
  const queryNames = parameters.filter((parameter) => parameter.in === 'query').map(({ name }) => name);
  const values = fc.constantFrom(...hostileValues.map(String).map((text) => text.toWellFormed()));
  return fc
    .tuple(
      exampleBody === undefined ? fc.constant(undefined) : mutationsOf(exampleBody),
      fc.constantFrom('limit', 'cursor', 'x', ...queryNames),
      values,
      values,
      fc.constantFrom('none', 'query', 'path'),
    )
    .map(([body, name, queryValue, pathValue, hostilePart]) => ({
      body,
      query: hostilePart === 'query' ? { name, value: queryValue.slice(0, 2_000) } : null,
      pathValue: hostilePart === 'path' ? pathValue.slice(0, 500) : null,
    }));
}

function targetOf(
  path: string,
  parameters: readonly Parameter[],
  { query, pathValue }: WrongRequest,
): string {
  const search = new URLSearchParams(
    parameters
      .filter((parameter) => parameter.in === 'query' && parameter.required)
      .map(({ name, example }) => [name, String(example ?? 'x')]),
  );
  if (query !== null) search.append(query.name, query.value);
  const filledPath = path.replace(/\{([^}]+)\}/g, (_all, name: string) => {
    const example = parameters.find((parameter) => parameter.name === name)?.example;
    return encodeURIComponent(pathValue ?? String(example ?? 'x'));
  });
  return search.size > 0 ? `${filledPath}?${search}` : filledPath;
}

function send(
  { url, token }: Surface,
  { method, target, body }: { method: string; target: string; body: Json | undefined },
): Promise<Response> {
  return fetch(`${url}${target}`, {
    method,
    redirect: 'manual',
    headers: {
      authorization: `Bearer ${token}`,
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    signal: AbortSignal.timeout(20_000),
  });
}

/** The body; empty for a stream, since some have no end. */
async function textOf(answer: Response): Promise<string> {
  if (answer.headers.get('content-type')?.startsWith('text/event-stream') !== true) return answer.text();
  await answer.body?.cancel();
  return '';
}

function requireErrorShape(path: string, status: number, text: string): void {
  const { error } = JSON.parse(text) as { error: Record<string, unknown> };
  if (path.includes(':')) requireGoogleShape(error, status);
  else requireOwnShape(error, text);
  expect(text).not.toMatch(/node_modules|\bat .*\.ts:\d/);
}

function requireOwnShape(error: Record<string, unknown>, text: string): void {
  expect(error).toMatchObject({
    type: expect.any(String),
    code: expect.any(String),
    message: expect.any(String),
    request_id: expect.stringMatching(/^req_/),
  });
  // An error about the whole body names no member.
  const details = error['details'] as { path: string }[] | undefined;
  const isWholeBody =
    details === undefined ? String(error['message']).includes('body') : details[0]?.path === '';
  if (error['code'] === 'invalid_request' && !isWholeBody)
    expect(error['param'], text).toEqual(expect.any(String));
}

/** Requires Google's error shape, for paths such as `/v1beta/models/{model_id}:generateContent`. */
function requireGoogleShape(error: Record<string, unknown>, status: number): void {
  expect(error).toMatchObject({
    code: status,
    message: expect.any(String),
    status: expect.any(String),
    details: [{ reason: expect.any(String), metadata: { request_id: expect.stringMatching(/^req_/) } }],
  });
}

function exampleBodyOf(operation: Operation): Json | undefined {
  const media = operation.requestBody?.content['application/json'];
  return media?.example ?? Object.values(media?.examples ?? {})[0]?.value;
}
