// Every operation with wrong bodies, queries, headers, paths and methods: the contract declares
// each answer, an error has the one error shape, and no answer is a 500. The seed is printed and
// fixed, so that a change fails for what it changed. FUZZ_SEED sets another; FUZZ_SEED=random draws
// one.
import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startAgent } from '../support/agent.ts';
import { startGateway } from '../support/gateway.ts';
import { type Json, hostileValues, mutationsOf } from './mutations.ts';

interface MediaType {
  examples?: Record<string, { value: Json }>;
  example?: Json;
}
interface Operation {
  operationId: string;
  parameters?: { name: string; in: string; example?: string; required?: boolean }[];
  requestBody?: { content: Record<string, MediaType> };
  responses: Record<string, unknown>;
}
interface Surface {
  url: string;
  token: string;
  close(): Promise<void>;
}

const givenSeed = process.env['FUZZ_SEED'] ?? '490667659';
const seed = givenSeed === 'random' ? Math.floor(Math.random() * 2 ** 31) : Number(givenSeed);
const runs = Number(process.env['FUZZ_RUNS'] ?? 25);
console.log(`fuzz: FUZZ_SEED=${seed} FUZZ_RUNS=${runs}`);

const surfaces: Record<string, { bundle: string; start(): Promise<Surface> }> = {
  gateway: {
    bundle: 'gateway',
    async start() {
      const world = await startGateway({
        env: { RATE_LIMIT_USER: 'off', RATE_LIMIT_GUEST: 'off', LOG_LEVEL: 'error' },
      });
      return { url: world.url, token: world.userToken, close: () => world.close() };
    },
  },
  agent: {
    bundle: 'agent',
    async start() {
      const world = await startAgent({ gatewayUrl: 'http://127.0.0.1:9', gatewayToken: 'nobody' });
      return { url: world.url, token: world.token, close: () => world.close() };
    },
  },
};

describe.each(Object.entries(surfaces))('wrong requests to the %s', (_name, { bundle, start }) => {
  const document = JSON.parse(
    readFileSync(new URL(`../../src/contract/${bundle}/bundle.json`, import.meta.url), 'utf8'),
  ) as {
    paths: Record<string, Record<string, Operation>>;
    components: { parameters?: Record<string, NonNullable<Operation['parameters']>[number]> };
  };
  const operations = Object.entries(document.paths).flatMap(([path, item]) =>
    Object.entries(item)
      .filter(([method]) => ['get', 'post', 'put', 'patch', 'delete'].includes(method))
      .map(([method, operation]) => ({ path, method: method.toUpperCase(), operation })),
  );
  let surface: Surface;
  beforeAll(async () => {
    surface = await start();
  });
  afterAll(() => surface?.close());

  const parametersOf = (operation: Operation) =>
    (operation.parameters ?? []).map((parameter) => {
      const reference = (parameter as { $ref?: string }).$ref;
      return reference === undefined
        ? parameter
        : (document.components.parameters?.[reference.split('/').at(-1) ?? ''] ?? parameter);
    });

  test.each(operations.map((entry) => [entry.operation.operationId, entry] as const))(
    '%s answers as declared',
    { timeout: 300_000 },
    async (_id, { path, method, operation }) => {
      const body = exampleBody(operation);
      const parameters = parametersOf(operation);
      await fc.assert(
        fc.asyncProperty(
          body === undefined ? fc.constant(undefined) : mutationsOf(body),
          fc.record({
            name: fc.constantFrom(
              'limit',
              'cursor',
              'x',
              ...parameters.filter((p) => p.in === 'query').map((p) => p.name),
            ),
            value: fc.constantFrom(...hostileValues.map(String)),
          }),
          fc.constantFrom(...hostileValues.map(String)),
          fc.constantFrom('none', 'query', 'path'),
          async (wrongBody, wrongQuery, wrongPath, mutateHeaders) => {
            const query = new URLSearchParams(
              parameters
                .filter((p) => p.in === 'query' && p.required)
                .map((p) => [p.name, String(p.example ?? 'x')]),
            );
            if (mutateHeaders === 'query')
              query.append(wrongQuery.name, wrongQuery.value.toWellFormed().slice(0, 2000));
            const samplePath = path.replace(/\{([^}]+)\}/g, (_all, name: string) =>
              encodeURIComponent(
                mutateHeaders === 'path'
                  ? wrongPath.toWellFormed().slice(0, 500)
                  : String(parameters.find((p) => p.name === name)?.example ?? 'x'),
              ),
            );
            const answer = await fetch(`${surface.url}${samplePath}${query.size > 0 ? `?${query}` : ''}`, {
              method,
              redirect: 'manual',
              headers: {
                authorization: `Bearer ${surface.token}`,
                ...(wrongBody === undefined ? {} : { 'content-type': 'application/json' }),
              },
              ...(wrongBody === undefined || method === 'GET' ? {} : { body: JSON.stringify(wrongBody) }),
              signal: AbortSignal.timeout(20_000),
            });
            const text = await textOf(answer);
            expect(answer.status, text.slice(0, 400)).not.toBe(500);
            if (answer.status >= 400 && (answer.headers.get('content-type') ?? '').includes('json')) {
              const { error } = JSON.parse(text) as { error: Record<string, unknown> };
              if (path.includes(':')) requireGoogleShape(error, answer.status);
              else requireOwnShape(error, text);
              expect(text).not.toMatch(/node_modules|\bat .*\.ts:\d/);
            }
            // A path or query that is refused before routing has only the general errors.
            expect(
              [...Object.keys(operation.responses).map(Number), 404, 405],
              `${answer.status} ${text.slice(0, 300)}`,
            ).toContain(answer.status);
          },
        ),
        { seed, numRuns: runs },
      );
    },
  );

  test.each(['PUT', 'DELETE', 'PATCH', 'POST', 'GET', 'TRACE', 'PROPFIND'])(
    '%s answers 405 with Allow for undeclared methods',
    async (method) => {
      for (const [path, item] of Object.entries(document.paths)) {
        if (method.toLowerCase() in item || path.includes('{') || method === 'TRACE') continue;
        const answer = await fetch(`${surface.url}${path}`, { method });
        await answer.body?.cancel();
        expect(answer.status, `${method} ${path}`).toBe(405);
        expect(answer.headers.get('allow'), path).toContain(Object.keys(item)[0]?.toUpperCase());
      }
    },
  );
});

/** The body; empty for a stream, since some have no end. */
async function textOf(answer: Response): Promise<string> {
  if (answer.headers.get('content-type')?.startsWith('text/event-stream') !== true) return answer.text();
  await answer.body?.cancel();
  return '';
}

function requireOwnShape(error: Record<string, unknown>, text: string): void {
  expect(error).toMatchObject({
    type: expect.any(String),
    code: expect.any(String),
    message: expect.any(String),
    request_id: expect.stringMatching(/^req_/),
  });
  // The body itself has no name; every member of it has.
  const details = error['details'] as { path: string }[] | undefined;
  const isBodyItself =
    details === undefined ? String(error['message']).includes('body') : details[0]?.path === '';
  if (error['code'] === 'invalid_request' && !isBodyItself)
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

function exampleBody(operation: Operation): Json | undefined {
  const media = operation.requestBody?.content['application/json'];
  return media?.example ?? Object.values(media?.examples ?? {})[0]?.value;
}
