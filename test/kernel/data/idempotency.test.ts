// Calls with an Idempotency-Key: a call is executed once, repetitions get its answer, and its key is
// freed when the call had no effect.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  createIdempotency,
  type Idempotency,
  type IdempotencyOptions,
  type IdempotentCall,
  type Remember,
} from '../../../src/kernel/data/idempotency.ts';
import { systemClock } from '../../../src/kernel/clock.ts';
import { Problem } from '../../../src/kernel/problem.ts';
import { silentLog, testDatabase, type TestDatabase } from '../../support/databases.ts';
import { until } from '../../support/until.ts';

let place: TestDatabase;
let replicas: [Idempotency, Idempotency];
beforeAll(async () => {
  place = await testDatabase();
  replicas = [createReplica(), createReplica()];
});
afterAll(async () => {
  for (const replica of replicas ?? []) await replica.close();
  await place?.close();
});

function createReplica(limits: Partial<IdempotencyOptions> = {}): Idempotency {
  return createIdempotency({
    database: place.database,
    schema: 'gateway',
    clock: systemClock,
    log: silentLog,
    ...limits,
  });
}

let keyCount = 0;
function call(overrides: Partial<IdempotentCall> = {}): IdempotentCall {
  return {
    operationId: 'things.createThing',
    caller: 'user a',
    key: `key ${++keyCount}`,
    request: { path: {}, query: {}, body: { n: 1 }, rawBody: new Uint8Array() },
    requestId: 'req_test',
    isSecret: false,
    signal: new AbortController().signal,
    ...overrides,
  };
}
const body = (value: unknown) => ({ path: {}, query: {}, body: value, rawBody: new Uint8Array() });
const createdReply = (value: unknown) => async () => ({ status: 201, body: value });
const untilRunning = () =>
  until(async () => {
    const rows = await place.database.sql`select 1 from gateway.idempotency where state = 'running'`;
    return rows.length > 0;
  }, 'the call runs');
const failIfRun = async (): Promise<{ status: number }> => {
  throw new Error('The call was executed a second time.');
};
const code = (name: string) => expect.objectContaining({ code: name });
const expire = (column: 'lease_until' | 'expires_at') =>
  place.database
    .sql`update gateway.idempotency set ${place.database.sql(column)} = now() - interval '1 second'`;

describe('a repeated call', () => {
  test('returns the first answer on any replica', async () => {
    const firstCall = call({ request: body({ a: 1, b: { c: [1, 2], d: null } }) });
    expect(await replicas[0].runOnce(firstCall, createdReply({ id: 'x' }))).toEqual({
      status: 201,
      body: { id: 'x' },
    });
    const repeatedRequest = { ...firstCall, request: body({ b: { d: null, c: [1, 2] }, a: 1 }) };
    expect(await replicas[1].runOnce(repeatedRequest, failIfRun)).toEqual({
      status: 201,
      body: { id: 'x' },
      headers: { 'idempotent-replayed': 'true' },
    });
  });

  const reply = { status: 201, body: {}, headers: { location: '/things/1', 'x-townhall-credits': '7' } };
  test.each<[string, (remember: Remember) => Promise<void>]>([
    ['is stored after the call', async () => {}],
    ['is stored in its transaction', (remember) => place.database.tx((tx) => remember(tx, reply))],
    [
      'is stored by its settlement',
      async (remember) => {
        const answer = remember.inSettlement(reply)?.();
        await place.database.sql`select gateway.idempotency_settle(${JSON.stringify(answer)}::text::jsonb)`;
      },
    ],
  ])('returns the headers of the first answer, which %s', async (_time, store) => {
    const firstCall = call();
    const work = async (remember: Remember) => {
      await store(remember);
      return reply;
    };
    expect(await replicas[0].runOnce(firstCall, work)).toEqual(reply);
    expect(await replicas[1].runOnce(firstCall, failIfRun)).toEqual({
      ...reply,
      headers: { ...reply.headers, 'idempotent-replayed': 'true' },
    });
  });

  test.each([
    ['another value', { a: 2 }],
    ['a list instead of an object', [['a', 1]]],
    ['an additional member', { a: 1, b: null }],
    ['a string instead of a number', { a: '1' }],
  ])('with %s is refused', async (_difference, otherBody) => {
    const firstCall = call({ request: body({ a: 1 }) });
    await replicas[0].runOnce(firstCall, createdReply({}));
    await expect(replicas[0].runOnce({ ...firstCall, request: body(otherBody) }, failIfRun)).rejects.toThrow(
      code('idempotency_key_reused'),
    );
  });

  test('with a large body is compared by its bytes', async () => {
    const largeRequest = (text: string) => ({
      path: {},
      query: {},
      body: JSON.parse(text) as unknown,
      rawBody: Buffer.from(text),
    });
    const filler = 'x'.repeat(300_000);
    const firstCall = call({ request: largeRequest(`{"a":1,"b":"${filler}"}`) });
    await replicas[0].runOnce(firstCall, createdReply('first'));
    expect(
      await replicas[1].runOnce(
        { ...firstCall, request: largeRequest(`{"a":1,"b":"${filler}"}`) },
        failIfRun,
      ),
    ).toMatchObject({ body: 'first' });
    await expect(
      replicas[0].runOnce({ ...firstCall, request: largeRequest(`{"b":"${filler}","a":1}`) }, failIfRun),
    ).rejects.toThrow(code('idempotency_key_reused'));
  });

  test('is refused without serializing an answer beyond the maximum', async () => {
    const firstCall = call();
    let serializedItems = 0;
    const vector = { toJSON: () => (serializedItems += 1) };
    const answer = {
      data: Array.from({ length: 5_000 }, () => ({ object: 'embedding', embedding: vector })),
    };
    await replicas[0].runOnce(firstCall, createdReply(answer));
    expect(serializedItems).toBe(0);
    await expect(replicas[1].runOnce(firstCall, failIfRun)).rejects.toThrow(code('result_not_replayable'));
  });

  test('gets any JSON answer of up to 64 KiB', async () => {
    for (const answer of [
      // JSON writes this character in six bytes, and a zero with its comma in two.
      { text: '\u0001'.repeat(10_000) },
      { list: Array.from({ length: 32_700 }, () => 0) },
      { list: [], object: {}, none: null, isTrue: true, text: '"' },
    ]) {
      const firstCall = call();
      await replicas[0].runOnce(firstCall, createdReply(answer));
      expect(await replicas[1].runOnce(firstCall, failIfRun)).toMatchObject({ body: answer });
    }
  });

  test('by another caller or operation is separate', async () => {
    const firstCall = call();
    await replicas[0].runOnce(firstCall, createdReply('first'));
    expect(
      await replicas[0].runOnce({ ...firstCall, caller: 'user b' }, createdReply('second')),
    ).toMatchObject({ body: 'second' });
    expect(
      await replicas[0].runOnce({ ...firstCall, operationId: 'things.updateThing' }, createdReply('third')),
    ).toMatchObject({ body: 'third' });
  });

  test('runs again for a guest or without a key', async () => {
    let runs = 0;
    const count = async () => ({ status: 201, body: ++runs });
    await replicas[0].runOnce(call({ caller: null, key: 'k' }), count);
    await replicas[0].runOnce(call({ caller: null, key: 'k' }), count);
    await replicas[0].runOnce(call({ key: undefined }), count);
    expect(runs).toBe(3);
  });

  test('runs once when 50 calls arrive at the same time', async () => {
    const firstCall = call();
    const gate = Promise.withResolvers<void>();
    let runs = 0;
    const work = async () => {
      runs += 1;
      await gate.promise;
      return { status: 201, body: { ok: true } };
    };
    const rejections: unknown[] = [];
    const results = Array.from({ length: 50 }, (_, index) =>
      replicas[index % 2 === 0 ? 0 : 1]
        .runOnce(firstCall, work)
        .catch((error: unknown) => void rejections.push(error)),
    );
    await until(() => rejections.length === 49, 'all calls but the first are refused');
    gate.resolve();
    await Promise.all(results);
    expect(runs).toBe(1);
    for (const error of rejections)
      expect(error).toMatchObject({
        status: 409,
        code: 'idempotency_key_in_use',
        headers: { 'retry-after': '1' },
      });
    expect(await replicas[0].runOnce(firstCall, failIfRun)).toMatchObject({ body: { ok: true } });
  });

  test('runs again after a day', async () => {
    const firstCall = call();
    await replicas[0].runOnce(firstCall, createdReply('old'));
    await expire('expires_at');
    expect(await replicas[0].runOnce({ ...firstCall, request: body('new') }, createdReply('new'))).toEqual({
      status: 201,
      body: 'new',
    });
  });
});

describe('an answer that is not kept', () => {
  test.each([
    ['with a secret', { isSecret: true }, { status: 201, body: { token: 'CANARY-secret' } }],
    ['of more than 64 KiB', {}, { status: 200, body: 'x'.repeat(64 * 1024) }],
    ['of bytes', {}, { status: 200, content: new Uint8Array(3), mediaType: 'audio/mpeg' }],
  ])('%s is reported as not replayable', async (_content, overrides, reply) => {
    const firstCall = call(overrides);
    expect(await replicas[0].runOnce(firstCall, async () => reply)).toBe(reply);
    await expect(replicas[0].runOnce(firstCall, failIfRun)).rejects.toThrow(code('result_not_replayable'));
    expect(
      await place.database.sql`select distinct body from gateway.idempotency where state = 'opaque'`,
    ).toEqual([{ body: null }]);
  });
});

describe('the limits of a caller', () => {
  test('drop the oldest answers beyond the quota', async () => {
    const maxBytesPerCaller = 64 * 1024;
    const limitedIdempotency = createReplica({ maxBytesPerCaller });
    const otherCall = call({ caller: 'user other' });
    await limitedIdempotency.runOnce(otherCall, createdReply('theirs'));
    const calls = Array.from({ length: 40 }, () => call({ caller: 'user full' }));
    for (const call of calls) await limitedIdempotency.runOnce(call, createdReply('x'.repeat(4_000)));
    await limitedIdempotency.close();
    const [row] = await place.database.sql<
      { bytes: number }[]
    >`select sum(octet_length(body))::integer as bytes from gateway.idempotency where body like '"xxx%'`;
    expect(row?.bytes).toBeGreaterThan(maxBytesPerCaller / 2);
    // Stored bytes are counted in steps of a sixteenth of the quota; an answer has 4,002 bytes.
    expect(row?.bytes).toBeLessThanOrEqual((maxBytesPerCaller * 17) / 16 + 4_002);
    await expect(replicas[0].runOnce(calls[0] as IdempotentCall, failIfRun)).rejects.toThrow(
      code('result_not_replayable'),
    );
    expect(await replicas[0].runOnce(calls.at(-1) as IdempotentCall, failIfRun)).toMatchObject({
      status: 201,
    });
    expect(await replicas[0].runOnce(otherCall, failIfRun)).toMatchObject({ body: 'theirs' });
  });

  test('drop the oldest keys beyond their number', async () => {
    // An answer counts as at least a key's share of the bytes, here 16 of 64. More than a sixteenth of them
    // leads to a comparison, so each of these answers does.
    const limitedIdempotency = createReplica({ maxBytesPerCaller: 64, maxKeysPerCaller: 4 });
    const calls = Array.from({ length: 12 }, () => call({ caller: 'user eager' }));
    for (const call of calls) await limitedIdempotency.runOnce(call, createdReply(1));
    await limitedIdempotency.close();
    expect(await replicas[0].runOnce(calls.at(-1) as IdempotentCall, failIfRun)).toMatchObject({ body: 1 });
    expect(await replicas[0].runOnce(calls[0] as IdempotentCall, createdReply('again'))).toMatchObject({
      body: 'again',
    });
  });
});

describe('a call that fails', () => {
  test.each(['bad_request', 'insufficient_credits', 'conflict', 'rate_limited', 'unavailable'] as const)(
    'by a refusal (%s) frees its key',
    async (kind) => {
      const firstCall = call();
      await expect(
        replicas[0].runOnce(firstCall, async () => {
          throw new Problem(kind, 'conflict', 'No.');
        }),
      ).rejects.toThrow('No.');
      expect(
        await replicas[0].runOnce({ ...firstCall, request: body('corrected') }, createdReply('done')),
      ).toMatchObject({ body: 'done' });
    },
  );

  test('keeps its headers in the replay except Retry-After', async () => {
    const firstCall = call();
    const headers = { 'x-townhall-attempts': 'acme/ok;failed', 'retry-after': '5' };
    await expect(
      replicas[0].runOnce(firstCall, async () => {
        throw new Problem('upstream_failed', 'upstream_failed', 'The provider failed.', { headers });
      }),
    ).rejects.toThrow('failed');
    expect(await replicas[1].runOnce(firstCall, failIfRun)).toHaveProperty('headers', {
      'x-townhall-attempts': 'acme/ok;failed',
      'idempotent-replayed': 'true',
      'x-should-retry': 'false',
    });
  });

  test('midway is replayed without a second run', async () => {
    const firstCall = call();
    await expect(
      replicas[0].runOnce(firstCall, async () => {
        throw new Problem('upstream_failed', 'upstream_failed', 'The provider failed.');
      }),
    ).rejects.toThrow('failed');
    expect(await replicas[1].runOnce(firstCall, failIfRun)).toMatchObject({
      status: 502,
      body: { error: { code: 'upstream_failed', request_id: 'req_test' } },
      headers: { 'idempotent-replayed': 'true', 'x-should-retry': 'false' },
    });
  });

  test('is replayed with the error types of its API', async () => {
    const firstCall = call({ errorDialect: 'anthropic' });
    await expect(
      replicas[0].runOnce(firstCall, async () => {
        throw new Problem('upstream_failed', 'upstream_failed', 'The provider failed.');
      }),
    ).rejects.toThrow('failed');
    expect(await replicas[1].runOnce(firstCall, failIfRun)).toMatchObject({
      status: 502,
      body: { type: 'error', error: { type: 'api_error', code: 'upstream_failed' } },
    });
  });

  test('frees its key when its client disconnects', async () => {
    const clientAbort = new AbortController();
    const firstCall = call({ signal: clientAbort.signal });
    await expect(
      replicas[0].runOnce(firstCall, async () => {
        clientAbort.abort();
        throw new Error('aborted');
      }),
    ).rejects.toThrow('aborted');
    expect(
      await replicas[0].runOnce({ ...firstCall, signal: new AbortController().signal }, createdReply('done')),
    ).toMatchObject({ body: 'done' });
  });

  test('frees the key of a dead process when its lease expires', async () => {
    const firstCall = call();
    const gate = Promise.withResolvers<void>();
    const stuckRun = replicas[0].runOnce(firstCall, async () => {
      await gate.promise;
      return { status: 201, body: 'late' };
    });
    await untilRunning();
    await expire('lease_until');
    expect(await replicas[1].runOnce(firstCall, createdReply('second'))).toMatchObject({ body: 'second' });
    gate.resolve();
    await stuckRun;
    expect(await replicas[1].runOnce(firstCall, failIfRun)).toMatchObject({ body: 'second' });
  });
});

test('a call that takes longer than its lease keeps its key', async () => {
  const { sql } = place.database;
  const leaseMs = 3_000;
  const slowIdempotency = createReplica({ leaseMs });
  const firstCall = call();
  const gate = Promise.withResolvers<void>();
  const firstRun = slowIdempotency.runOnce(firstCall, async () => {
    await gate.promise;
    return { status: 201, body: 'at last' };
  });
  const [startRow] = await sql<{ time: Date }[]>`select gateway.townhall_now() as time`;
  const outlastsLease = async () => {
    const [row] = await sql<{ result: boolean }[]>`
      select gateway.townhall_now() > ${startRow?.time ?? null}::timestamptz
        + make_interval(secs => ${(leaseMs * 1.5) / 1_000}) as result`;
    return row?.result === true;
  };
  await until(outlastsLease, 'the call takes longer than its lease');
  await expect(replicas[1].runOnce(firstCall, failIfRun)).rejects.toThrow(code('idempotency_key_in_use'));
  gate.resolve();
  expect(await firstRun).toMatchObject({ body: 'at last' });
  expect(await replicas[1].runOnce(firstCall, failIfRun)).toMatchObject({ body: 'at last' });
  await slowIdempotency.close();
});

describe('a key bound to work', () => {
  const start = (reference: unknown) => async (remember: Remember) => {
    await place.database.tx(async (tx) => expect(await remember.bind(tx, reference)).toBe(true));
    // Too large to be stored, so a repetition cannot get it from the key.
    return { status: 200, body: { text: 'x'.repeat(100_000) } };
  };

  test('executes a repetition with the reference', async () => {
    const firstCall = call();
    await replicas[0].runOnce(firstCall, start({ id: 'job' }));
    const secondAnswer = await replicas[1].runOnce(firstCall, async ({ started }) => ({
      status: 200,
      body: { started },
    }));
    expect(secondAnswer).toEqual({
      status: 200,
      body: { started: { id: 'job' } },
      headers: { 'idempotent-replayed': 'true' },
    });
  });

  test('is not freed by a failure or a disconnect', async () => {
    const signal = AbortSignal.abort();
    const firstCall = call({ signal });
    const failingHandler = async (remember: Remember) => {
      await start({ id: 'job' })(remember);
      throw new Problem('unavailable', 'draining', 'The server stops.');
    };
    await expect(replicas[0].runOnce(firstCall, failingHandler)).rejects.toThrow('The server stops.');
    const secondAnswer = replicas[0].runOnce(firstCall, async ({ started }) => ({
      status: 200,
      body: started,
    }));
    await expect(secondAnswer).resolves.toMatchObject({ body: { id: 'job' } });
  });

  test('refuses another request', async () => {
    const firstCall = call();
    await replicas[0].runOnce(firstCall, start({ id: 'job' }));
    await expect(replicas[0].runOnce({ ...firstCall, request: body({ n: 2 }) }, failIfRun)).rejects.toThrow(
      code('idempotency_key_reused'),
    );
  });

  test('refuses to bind after another call has taken the key', async () => {
    const firstCall = call();
    const lateRun = replicas[0].runOnce(firstCall, async (remember) => {
      await expire('lease_until');
      await replicas[1].runOnce(firstCall, createdReply({ id: 'other' }));
      return start({ id: 'job' })(remember);
    });
    await expect(lateRun).rejects.toThrow(code('idempotency_key_in_use'));
  });
});

describe('a form', () => {
  const form = (content: Uint8Array, boundary: string) => ({
    path: {},
    query: {},
    body: { model: 'a', image: { fileName: 'a.png', mediaType: 'image/png', content } },
    rawBody: Buffer.from(boundary),
    isForm: true,
  });

  test('is the same request with another boundary', async () => {
    const firstCall = call({ request: form(Buffer.from('image'), 'one') });
    await replicas[0].runOnce(firstCall, createdReply({ id: 'x' }));
    const repeatedRequest = { ...firstCall, request: form(Buffer.from('image'), 'two') };
    expect(await replicas[0].runOnce(repeatedRequest, failIfRun)).toMatchObject({ body: { id: 'x' } });
  });

  test('is another request with another file', async () => {
    const firstCall = call({ request: form(Buffer.from('image'), 'one') });
    await replicas[0].runOnce(firstCall, createdReply({ id: 'x' }));
    const repeatedRequest = { ...firstCall, request: form(Buffer.from('other'), 'one') };
    await expect(replicas[0].runOnce(repeatedRequest, failIfRun)).rejects.toThrow(
      code('idempotency_key_reused'),
    );
  });
});

describe('an answer stored in the transaction of its work', () => {
  test('exists when the process dies right after the commit', async () => {
    const firstCall = call();
    const commit = Promise.withResolvers<void>();
    void replicas[0].runOnce(firstCall, async (remember) => {
      await place.database.tx((tx) => remember(tx, { status: 201, body: 'committed' }));
      commit.resolve();
      // The process dies before the handler returns.
      return new Promise<{ status: number }>(() => undefined);
    });
    await commit.promise;
    expect(await replicas[1].runOnce(firstCall, failIfRun)).toMatchObject({ status: 201, body: 'committed' });
  });

  test('does not exist after a rollback', async () => {
    const firstCall = call();
    await expect(
      replicas[0].runOnce(firstCall, async (remember) =>
        place.database.tx(async (tx) => {
          await remember(tx, { status: 201, body: 'undone' });
          throw new Problem('conflict', 'conflict', 'Undone.');
        }),
      ),
    ).rejects.toThrow('Undone.');
    expect(await replicas[0].runOnce(firstCall, createdReply('done'))).toEqual({ status: 201, body: 'done' });
  });
});
