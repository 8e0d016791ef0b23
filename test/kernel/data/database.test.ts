// The database interface on both engines.
import { afterAll, beforeAll, describe, expect, inject, it, onTestFinished } from 'vitest';
import { connect, type DatabaseLimits } from '../../../src/kernel/data/database.ts';
import { Problem } from '../../../src/kernel/problem.ts';
import { makeDatabase, silentLog, testDatabase, type TestDatabase } from '../../support/databases.ts';
import { freePort } from '../../support/free-port.ts';
import { quickest } from '../../support/quickest.ts';

let world: TestDatabase;

beforeAll(async () => {
  world = await testDatabase({ isEmpty: true });
  await world.database.sql`
    create table things (
      thing_id bigint generated always as identity primary key,
      name text not null unique,
      amount bigint not null default 0 check (amount >= 0),
      tags text[] not null default '{}',
      body jsonb
    )`;
});

afterAll(() => world?.close());

/** A database of one test, which is removed at its end. */
async function openDatabase(limits: Partial<DatabaseLimits> = {}, overrides: { prepare?: boolean } = {}) {
  const place = await makeDatabase({ isEmpty: true, limits });
  const options = { ...place.options, ...overrides };
  const database = await connect(options, { log: silentLog });
  onTestFinished(async () => {
    await database.close();
    await place.remove();
  });
  return { database, options };
}

describe('values', () => {
  it('keeps int8 as bigint, even in arrays', async () => {
    const hugeInteger = 9_007_199_254_740_993n;
    const [row] = await world.database.sql`
      select ${hugeInteger}::int8 as value, array[1, ${hugeInteger}]::int8[] as list, count(*) as count
      from generate_series(1, 3)`;
    expect(row).toEqual({ value: hugeInteger, list: [1n, hugeInteger], count: 3n });
  });

  it('keeps JSON, text arrays, times, bytes and null unchanged', async () => {
    const { sql } = world.database;
    const time = new Date('2026-11-01T10:11:12.345Z');
    const body = { nested: [1, 'two', null, { three: 'ü"\\' }] };
    const [row] = await sql`
      select ${sql.json(body)}::jsonb as body, ${['a', 'b,c', '"d"']}::text[] as tags,
        ${time}::timestamptz as time, ${Buffer.from([0, 1, 255])}::bytea as bytes,
        ${null}::text as nothing, ${true}::boolean as yes`;
    expect(row).toEqual({
      body,
      tags: ['a', 'b,c', '"d"'],
      time,
      bytes: Buffer.from([0, 1, 255]),
      nothing: null,
      yes: true,
    });
  });

  it('keeps lists of every kind', async () => {
    const { sql } = world.database;
    const time = new Date('2026-11-01T10:11:12.345Z');
    const values = {
      numbers: [1, -2],
      bigints: [1n, 2n ** 60n],
      yes: [true, false],
      times: [time],
      odd: ['', 'NULL', '{', 'a"\\b', ' '],
      nested: [
        [1, 2],
        [3, 4],
      ],
      none: [],
    };
    const [row] = await sql`
      select ${values.numbers}::int4[] as numbers, ${values.bigints}::int8[] as bigints,
        ${values.yes}::boolean[] as yes, ${values.times}::timestamptz[] as times,
        ${values.odd}::text[] as odd, ${values.nested}::int4[] as nested,
        ${values.none}::text[] as none, ${sql.array(['x', 'y'])}::text[] as array`;
    expect(row).toEqual({ ...values, array: ['x', 'y'] });
    expect(await sql`select ${[null, 'x'] as string[]}::text[] as list`).toEqual([{ list: [null, 'x'] }]);
    expect(await sql`select n from generate_series(1::int8, 4) n where n = any(${[2n, 3n]})`).toEqual([
      { n: 2n },
      { n: 3n },
    ]);
    expect(await sql`select array[${sql.json({ a: [1] })}::jsonb] as list`).toEqual([{ list: [{ a: [1] }] }]);
  });

  it('accepts helpers, fragments and lists', async () => {
    const { sql } = world.database;
    await sql`insert into things ${sql(
      [
        { name: 'first', tags: ['x'] },
        { name: 'second', tags: [] },
      ],
      'name',
      'tags',
    )}`;
    const filter = sql`where name in ${sql(['first', 'second'])} and name = any(${['first']})`;
    expect(await sql`select name, tags from things ${filter}`).toEqual([{ name: 'first', tags: ['x'] }]);
  });

  it('runs several statements of one string', async () => {
    const results = await world.database.sql.unsafe('select 1 as a; select 2 as b');
    expect(results).toEqual([[{ a: 1 }], [{ b: 2 }]]);
  });

  it('refuses an undefined value and stays usable', async () => {
    const missingValue = undefined as unknown as string;
    await expect(world.database.sql`select ${missingValue} as value`).rejects.toMatchObject({
      code: 'UNDEFINED_VALUE',
    });
    await world.database.ping();
  });

  it('returns all rows of a large result', async () => {
    const rows = await world.database
      .sql`select n, repeat('x', 200) as filler from generate_series(1, 20000) n`;
    expect(rows).toHaveLength(20_000);
    expect(rows.at(-1)?.['n']).toBe(20_000);
  });
});

describe('errors', () => {
  it('keeps the connection usable after an SQL error', async () => {
    const { sql } = world.database;
    await sql`insert into things (name) values ('taken')`;
    await expect(sql`insert into things (name) values ('taken')`).rejects.toMatchObject({ code: '23505' });
    await expect(sql`select * from nothing_of_the_kind`).rejects.toMatchObject({ code: '42P01' });
    await expect(sql`insert into things (name, amount) values ('poor', -1)`).rejects.toMatchObject({
      code: '23514',
    });
    expect(await sql`select 1 as one`).toEqual([{ one: 1 }]);
  });

  it.each(['53100', '53200', '53300', '57P03', '58030'])(
    'maps %s, a transient shortage, to 503',
    async (state) => {
      const { sql } = world.database;
      await expect(
        sql.unsafe(`do $$ begin raise exception 'no room' using errcode = '${state}'; end $$`),
      ).rejects.toMatchObject({
        kind: 'unavailable',
        code: 'database_unavailable',
        headers: { 'retry-after': expect.stringMatching(/^\d+$/) },
      });
      expect(await sql`select 1 as one`).toEqual([{ one: 1 }]);
    },
  );
});

describe('transactions', () => {
  it('commits on success and rolls back on a throw', async () => {
    const { tx, sql } = world.database;
    const answer = await tx(async (innerTx) => {
      await innerTx`insert into things (name) values ('kept')`;
      return 'done';
    });
    const transaction = tx(async (innerTx) => {
      await innerTx`insert into things (name) values ('lost')`;
      throw new Error('changed my mind');
    });
    await expect(transaction).rejects.toThrow('changed my mind');
    expect(answer).toBe('done');
    expect(await sql`select name from things where name in ('kept', 'lost')`).toEqual([{ name: 'kept' }]);
  });

  it('rolls back only a savepoint', async () => {
    const { tx, sql } = world.database;
    await tx(async (outerTx) => {
      await outerTx`insert into things (name) values ('outer')`;
      const innerWork = outerTx.savepoint(async (point) => {
        await point`insert into things (name) values ('inner')`;
        await point`insert into things (name) values ('outer')`;
      });
      await expect(innerWork).rejects.toMatchObject({ code: '23505' });
      expect(await outerTx.savepoint((point) => point`select 1 as one`)).toEqual([{ one: 1 }]);
    });
    expect(await sql`select name from things where name in ('outer', 'inner')`).toEqual([{ name: 'outer' }]);
  });

  it('rejects a failed transaction whose error was caught', async () => {
    const { tx, sql } = world.database;
    const work = tx(async (innerTx) => {
      await innerTx`insert into things (name) values ('silenced')`;
      await innerTx`select 1 / 0`.catch(() => undefined);
    });
    await expect(work).rejects.toMatchObject({ code: '22012' });
    expect(await sql`select 1 from things where name = 'silenced'`).toEqual([]);
  });

  it('refuses statements after its end', async () => {
    const { tx } = world.database;
    const leakedTx = await tx(async (innerTx) => ({ inner: innerTx }));
    await expect(leakedTx.inner`select 1`).rejects.toThrow('The transaction is over.');
  });

  it('isolates concurrent transactions', async () => {
    const { tx, sql } = world.database;
    await sql`insert into things (name) values ('counter')`;
    await Promise.all(
      Array.from({ length: 40 }, () =>
        tx(async (innerTx) => {
          const [row] = await innerTx<
            { amount: bigint }[]
          >`select amount from things where name = 'counter' for update`;
          await innerTx`update things set amount = ${(row?.amount ?? 0n) + 1n} where name = 'counter'`;
        }),
      ),
    );
    expect(await sql`select amount from things where name = 'counter'`).toEqual([{ amount: 40n }]);
  });

  it('reads a cursor only within a transaction', async () => {
    const { tx, sql } = world.database;
    let rowCount = 0;
    await tx(async (innerTx) => {
      await innerTx`select n from generate_series(1, 25) n`.cursor(10, (rows) => {
        rowCount += rows.length;
      });
    });
    expect(rowCount).toBe(25);
    await expect(sql`select 1`.cursor(1, () => undefined)).rejects.toThrow('A cursor needs a transaction');
  });

  it('works in a session beside the pool', async () => {
    const session = world.database.session({ deadlineMs: 10_000 });
    await session.tx(async (innerTx) => {
      await innerTx`insert into things (name) values ('beside')`;
    });
    expect(await session.sql`select name from things where name = 'beside'`).toEqual([{ name: 'beside' }]);
    await session.close();
  });
});

describe('waiting', () => {
  it('ends with 503 and Retry-After when no connection is free', async () => {
    const { database } = await openDatabase({ maxConnections: 1, queueMs: 200 });
    const release = Promise.withResolvers<void>();
    const connectionTaken = Promise.withResolvers<void>();
    const holder = database.tx(async (tx) => {
      await tx`select 1`;
      connectionTaken.resolve();
      await release.promise;
    });
    await connectionTaken.promise;
    const startedMs = performance.now();
    await expect(database.sql`select 1`).rejects.toMatchObject({
      kind: 'unavailable',
      code: 'database_unavailable',
      headers: { 'retry-after': expect.stringMatching(/^\d+$/) },
    });
    // `queueMs` has ended the wait: the transaction has its connection until it is released below. The limit
    // allows for other tests on the machine.
    expect(performance.now() - startedMs).toBeLessThan(10_000);
    release.resolve();
    await holder;
    expect(await database.sql`select 1 as one`).toEqual([{ one: 1 }]);
  });

  it('answers the next statement after a slow one', async () => {
    const { database } = await openDatabase({ statementMs: 800, deadlineMs: 1_500 });
    await expect(database.sql`select pg_sleep(5)`).rejects.toMatchObject({
      status: 503,
      code: 'database_unavailable',
    });
    await expect
      .poll(() =>
        database.ping().then(
          () => 'answers',
          () => 'away',
        ),
      )
      .toBe('answers');
  });

  it('ends an abandoned transaction', async () => {
    const { database } = await openDatabase({ idleInTransactionMs: 300 });
    await database.sql`create table t (v int)`;
    const transaction = database.tx(async (tx) => {
      await tx`insert into t values (1)`;
      await expect
        .poll(
          () =>
            tx`select 1`.then(
              () => 'open',
              () => 'lost',
            ),
          // Longer than `idleInTransactionMs`, so that the transaction is idle for too long between polls.
          { interval: 700 },
        )
        .toBe('lost');
      await tx`select 1`;
    });
    await expect(transaction).rejects.toMatchObject({ status: 503, code: 'database_unavailable' });
    expect(await database.sql`select * from t`).toEqual([]);
  });

  it('refuses queries after close', async () => {
    const { database } = await openDatabase();
    await database.close();
    await expect(database.sql`select 1`).rejects.toBeInstanceOf(Problem);
  });
});

const source = inject('databaseSource');
const isServer = source?.engine === 'postgres';

describe.runIf(isServer)('a PostgreSQL server', () => {
  const isOurs = source?.engine === 'postgres' && source.isOurs;

  it('that is absent is 503 within three seconds', async () => {
    const url = `postgres://x:y@127.0.0.1:${await freePort()}/z`;
    const ms = await quickest(3_000, () =>
      expect(connect({ url }, { log: silentLog })).rejects.toMatchObject({
        status: 503,
        code: 'database_unavailable',
      }),
    );
    expect(ms).toBeLessThan(3_000);
  });

  it.runIf(isOurs)('without a free connection is 503', async () => {
    const url = new URL((source as { url: string }).url);
    await world.database.sql`create role crowded login password 'x' connection limit 0`;
    [url.username, url.password] = ['crowded', 'x'];
    await expect(connect({ url: url.href }, { log: silentLog })).rejects.toMatchObject({
      status: 503,
      code: 'database_unavailable',
    });
    await world.database.sql`drop role crowded`;
  });

  it('with synchronous_commit off is refused', async () => {
    const { database, options } = await openDatabase();
    await database.sql.unsafe(
      `do $$ begin
         execute format('alter database %I set synchronous_commit = off', current_database());
       end $$`,
    );
    await expect(connect(options, { log: silentLog })).rejects.toThrow('synchronous_commit off');
  });

  it('sets its timeouts within transactions when statements are not prepared', async () => {
    const { database } = await openDatabase({ statementMs: 1_234 }, { prepare: false });
    const [outsideTimeout] = await database.sql`select current_setting('statement_timeout') as value`;
    const [insideTimeout] = await database.tx(
      (tx) => tx`select current_setting('statement_timeout') as value`,
    );
    const [preparedStatements] = await database.sql`select count(*) as count from pg_prepared_statements`;
    expect([outsideTimeout?.['value'], insideTimeout?.['value'], preparedStatements?.['count']]).toEqual([
      '0',
      '1234ms',
      0n,
    ]);
  });

  it('that drops a connection fails only its transaction with 503', async () => {
    const { database } = world;
    const work = database.tx(async (tx) => {
      const [row] = await tx<
        { pid: number }[]
      >`insert into things (name) values ('cut') returning pg_backend_pid() as pid`;
      await database.sql`select pg_terminate_backend(${row?.pid ?? 0})`;
      await expect
        .poll(() =>
          database.sql`select 1 from pg_stat_activity where pid = ${row?.pid ?? 0}`.then(
            (rows) => rows.length,
          ),
        )
        .toBe(0);
      await tx`insert into things (name) values ('after the cut')`;
    });
    await expect(work).rejects.toMatchObject({ status: 503, code: 'database_unavailable' });
    expect(await database.sql`select name from things where name in ('cut', 'after the cut')`).toEqual([]);
  });

  it.runIf(isOurs)('that freezes is 503 within eight seconds', async () => {
    const { database } = await openDatabase({ maxConnections: 2, queueMs: 2_000, connectMs: 3_000 });
    const pids = await Promise.all(
      [1, 2].map(async () => {
        const [row] = await database.sql<{ pid: number }[]>`select pg_backend_pid() as pid, pg_sleep(0.2)`;
        return row?.pid ?? 0;
      }),
    );
    expect(new Set(pids).size).toBe(2);
    for (const pid of pids) process.kill(pid, 'SIGSTOP');
    try {
      const startedMs = performance.now();
      const outcomes = await Promise.allSettled([
        database.sql`select 1`,
        database.tx((tx) => tx`select 1`),
        database.ping(),
      ]);
      // A call waits up to two seconds for a connection and up to six, the default `deadlineMs`, for its
      // answer. The limit allows for other tests on the machine.
      expect(performance.now() - startedMs).toBeLessThan(12_000);
      for (const outcome of outcomes) {
        expect(outcome).toMatchObject({
          status: 'rejected',
          reason: { status: 503, code: 'database_unavailable' },
        });
      }
      // New connections have replaced the two whose backends are stopped.
      expect(await Promise.all([database.sql`select 1 as one`, database.sql`select 2 as two`])).toEqual([
        [{ one: 1 }],
        [{ two: 2 }],
      ]);
    } finally {
      for (const pid of pids) process.kill(pid, 'SIGCONT');
    }
  });
});
