// Arbitrary requests at every operation by every kind of caller. A valid request is rejected only by a rule
// that names the member, an invalid request never succeeds, and each response is as the document declares it:
// status, media type, body, headers and code. FUZZ_RUNS is the number of valid and of invalid requests per
// operation: `npm run fuzz` sends 500.
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { insertBureaus } from '../contract/identity-table.ts';
import { startSampleServers, type SampleServers } from '../docs/sample-servers.ts';
import { agentCallers, gatewayCallers, type FuzzedCaller } from './callers.ts';
import { type FuzzedOperation, readFuzzedDocument } from './document.ts';
import { type Answer, findMismatches } from './mismatches.ts';
import { type FuzzedRequest, invalidRequests, validRequests } from './requests.ts';
import { readFuzzSettings } from './settings.ts';

const { seed, runs } = readFuzzSettings(10);

let servers: SampleServers;
beforeAll(async () => {
  servers = await startSampleServers();
  await insertBureaus(servers.gateway.sql);
});
afterAll(() => servers?.close());

const surfaces: Record<string, { url: () => string; callers: () => FuzzedCaller[] }> = {
  gateway: {
    url: () => servers.gateway.url,
    callers: () => gatewayCallers(servers.gateway.sql),
  },
  agent: {
    url: () => servers.agents.current.url,
    callers: () => agentCallers(servers.agents.current.token),
  },
};

describe.each(Object.entries(surfaces))('the %s', (surface, { url, callers }) => {
  const document = readFuzzedDocument(surface);
  /** The operations for which `requestsOf` can generate requests. */
  const casesOf = (requestsOf: typeof validRequests) =>
    document.operations.flatMap((operation) => {
      const requests = requestsOf(document, operation);
      return requests === undefined ? [] : [[operation.id, operation, requests] as const];
    });

  async function check(
    operation: FuzzedOperation,
    caller: FuzzedCaller,
    request: FuzzedRequest,
  ): Promise<void> {
    const answer = await send(url(), request, await caller.credential());
    const { method, target, body = '' } = request;
    const description = `${caller.name}: ${method} ${target} ${body.slice(0, 600)}`;
    expect(findMismatches(document, operation, answer), description).toEqual([]);
    const outcome = unexpectedOutcome(operation, caller, { request, answer });
    expect(outcome, `${description} → ${answer.status} ${answer.text.slice(0, 400)}`).toBeNull();
  }

  async function checkAll(operation: FuzzedOperation, requests: fc.Arbitrary<FuzzedRequest>): Promise<void> {
    const all = callers();
    const admittedCallers = all.filter((caller) => caller.expected(operation) === 'admitted');
    const senders = fc.oneof(
      { weight: 3, arbitrary: fc.constantFrom(...(admittedCallers.length > 0 ? admittedCallers : all)) },
      fc.constantFrom(...all),
    );
    await fc.assert(
      fc.asyncProperty(requests, senders, (request, caller) => check(operation, caller, request)),
      // `npm run fuzz` reports a failing request as it was generated; only the short runs of `npm run test:long`
      // shrink it.
      { seed, numRuns: runs, endOnFailure: runs > 100 },
    );
  }

  test.each(casesOf(validRequests))(
    '%s answers valid requests as declared',
    { timeout: 900_000 },
    (_id, operation, requests) => expect(checkAll(operation, requests)).resolves.toBeUndefined(),
  );

  test.each(casesOf(invalidRequests))(
    '%s refuses invalid requests',
    { timeout: 900_000 },
    (_id, operation, requests) => expect(checkAll(operation, requests)).resolves.toBeUndefined(),
  );

  test('gets valid requests at all operations without form bodies', () => {
    const ids = new Set(casesOf(validRequests).map(([id]) => id));
    const otherOperations = document.operations.filter(({ id }) => !ids.has(id));
    for (const { id, body } of otherOperations)
      expect(Object.keys(body?.content ?? {}), id).toEqual([expect.stringMatching(/form/)]);
    expect(ids.size).toBeGreaterThan(30);
  });
});

async function send(
  url: string,
  request: FuzzedRequest,
  credential: Record<string, string>,
): Promise<Answer> {
  const response = await fetch(`${url}${request.target}`, {
    method: request.method,
    redirect: 'manual',
    headers: { ...request.headers, ...credential },
    body: request.body ?? null,
    signal: AbortSignal.timeout(30_000),
  });
  const { status, headers } = response;
  const isStream = headers.get('content-type')?.startsWith('text/event-stream') === true;
  if (!isStream) return { status, headers, text: await response.text() };
  // Some streams last as long as the session.
  await response.body?.cancel();
  return { status, headers, text: '' };
}

/** Why this caller must not receive this response; null when it may. */
function unexpectedOutcome(
  operation: FuzzedOperation,
  caller: FuzzedCaller,
  { request, answer }: { request: FuzzedRequest; answer: Answer },
): string | null {
  const { status, text } = answer;
  const code = /"(?:code|reason)":"(\w+)"/.exec(text)?.[1];
  const expected = caller.expected(operation);
  if (expected !== 'admitted')
    return status === expected.status && code === expected.code
      ? null
      : `expected ${expected.status} ${expected.code}`;
  if (request.fault !== null) return status >= 400 ? null : `${request.fault} was accepted`;
  // The handler checks rules that JSON Schema cannot express, such as a cursor of
  // another list; it names the invalid member.
  const isUnexplained = status === 400 && code === 'invalid_request' && !/"param":"[^"]/.test(text);
  return isUnexplained ? 'a valid request was refused without a reason' : null;
}
