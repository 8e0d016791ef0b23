// Promises of the embedded engine only: every commit is durable, one process uses a folder, and it
// recovers from a crash.
import { spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { createInterface } from 'node:readline';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { compactTables, type CompactedTable } from '../../../src/kernel/data/compact.ts';
import { connect, type ConnectOptions, type Database } from '../../../src/kernel/data/database.ts';
import { makeDatabase, silentLog, type DatabasePlace } from '../../support/databases.ts';

const childFile = join(import.meta.dirname, '..', '..', 'support', 'embedded-child.ts');
const children = new Set<ChildProcess>();
const databases = new Set<Database>();
let place: DatabasePlace;
let path: string;

beforeEach(async () => {
  place = await makeDatabase({ isEmpty: true });
  path = (place.options as { path: string }).path;
});

afterEach(async () => {
  for (const child of children)
    if (child.exitCode === null && child.signalCode === null) child.kill('SIGKILL');
  children.clear();
  for (const database of databases) await database.close();
  databases.clear();
  await place.remove();
});

/** Opens the database of the test, which is closed at its end. */
async function open(options: Partial<Extract<ConnectOptions, { path: string }>> = {}) {
  const database = await connect({ path, ...options }, { log: silentLog });
  databases.add(database);
  return database;
}

describe('durability', () => {
  it('keeps every acknowledged row when the process is killed', async () => {
    const child = start('insert');
    let lastRow = 0;
    for await (const line of child.lines) {
      const row = /^row (\d+)$/.exec(line)?.[1];
      if (row !== undefined) lastRow = Number(row);
      if (lastRow >= 200) child.process.kill('SIGKILL');
    }
    const database = await open();
    const [row] = await database.sql<
      { count: bigint; max: number }[]
    >`select count(*) as count, max(n) as max from acknowledged`;
    // Rows are numbered from 1, so there is no gap.
    expect(Number(row?.count)).toBe(row?.max);
    // The last row may have been committed and not yet printed when the process was killed.
    expect(row?.max).toBeGreaterThanOrEqual(lastRow);
    expect(lastRow).toBeGreaterThanOrEqual(200);
  });

  const canTrace = spawnSync('strace', ['-f', '-o', '/dev/null', 'true']).status === 0;
  if (!canTrace)
    console.warn(
      'SKIPPED: strace is absent or not permitted here, so the fsyncs of the embedded database are ' +
        'not counted.',
    );

  it.skipIf(!canTrace)('syncs the disk exactly once a commit', { timeout: 180_000 }, async () => {
    const otherDatabase = await makeDatabase({ isEmpty: true });
    const fewFsyncs = countFsyncs(path, 10);
    const manyFsyncs = countFsyncs((otherDatabase.options as { path: string }).path, 60);
    await otherDatabase.remove();
    expect(fewFsyncs).toBeGreaterThanOrEqual(10);
    expect(manyFsyncs - fewFsyncs).toBe(50);
  });

  it('has its durability settings on', async () => {
    const database = await open();
    const rows = await database.sql`
      select name, setting from pg_settings
      where name in ('fsync', 'full_page_writes', 'synchronous_commit', 'wal_sync_method')`;
    expect(Object.fromEntries(rows.map((row) => [row['name'], row['setting']]))).toEqual({
      fsync: 'on',
      full_page_writes: 'on',
      synchronous_commit: 'on',
      wal_sync_method: 'fsync',
    });
  });
});

describe('the data folder', () => {
  it("refuses a second process and names the first one's id", async () => {
    const database = await open();
    const child = start('hold');
    expect((await child.lines.next()).value).toMatch(
      new RegExp(`^refused .*${path}.* held by process ${process.pid}\\b`),
    );
    await child.exit;
    expect(child.process.exitCode).toBe(1);
    await database.ping();
  });

  it('refuses a second lock by the same process', async () => {
    const database = await open();
    await expect(open()).rejects.toMatchObject({
      code: 'database_unavailable',
      message: expect.stringContaining(`process ${process.pid}, which is this one`),
    });
    await database.ping();
  });

  it('is taken over from a killed process whose id is reused', async () => {
    const child = start('hold');
    expect((await child.lines.next()).value).toBe('open');
    await expect(open()).rejects.toThrow(`held by process ${child.process.pid}`);
    child.process.kill('SIGKILL');
    await child.exit;
    // As if the pid of the dead process now belonged to a running one, here the parent of this process.
    writeFileSync(join(path, 'townhall.pid'), `${process.ppid}\n`);
    await open();
  });

  it('is readable only by its owner', async () => {
    await open();
    expect(statSync(path).mode & 0o777).toBe(0o700);
  });

  it('is free after close', async () => {
    const database = await open();
    await database.close();
    expect(existsSync(join(path, 'townhall.pid'))).toBe(false);
    await open();
  });

  it('is free as soon as either of two closes has resolved', async () => {
    const database = await open();
    const closes = [database.close(), database.close()];
    const areHeld = closes.map(async (close) => {
      await close;
      return existsSync(join(path, 'townhall.pid'));
    });
    expect(await Promise.all(areHeld)).toEqual([false, false]);
  });

  it('opens for exactly one of two processes that start at once', async () => {
    const firstProcess = start('hold');
    const secondProcess = start('hold');
    const outcomes = await Promise.all(
      [firstProcess, secondProcess].map(
        async ({ lines }) => String((await lines.next()).value).split(' ')[0] ?? '',
      ),
    );
    expect(outcomes.sort()).toEqual(['open', 'refused']);
  });
});

describe('the engine', () => {
  it('restarts after a statement exceeds its deadline', async () => {
    // At the deadline the connection is closed. The engine cannot cancel the statement, so it is killed
    // somewhat later.
    const database = await open({ limits: { deadlineMs: 2_000 } });
    await database.sql`create table kept (v int)`;
    await database.sql`insert into kept values (1)`;
    await expect(database.sql`select count(*) from generate_series(1, 100000000000)`).rejects.toMatchObject({
      status: 503,
    });
    await expect
      .poll(
        () =>
          database.sql`select v from kept`.then(
            (rows) => rows.length,
            () => 'away',
          ),
        { timeout: 60_000 },
      )
      .toBe(1);
  });

  it('rolls back a transaction whose statement exceeds its deadline', async () => {
    const database = await open();
    await database.sql`create table t (v int)`;
    const session = database.session({ deadlineMs: 300 });
    const slowTx = session.tx(async (tx) => {
      await tx`insert into t values (1)`;
      await tx`select pg_sleep(1)`;
    });
    await expect(slowTx).rejects.toMatchObject({ status: 503 });
    await expect
      .poll(() =>
        database.sql`select * from t`.then(
          (rows) => rows.length,
          () => 'away',
        ),
      )
      .toBe(0);
    await session.close();
  });

  it("keeps the server's thread free while a query runs", async () => {
    const database = await open();
    let turns = 0;
    const timer = setInterval(() => (turns += 1), 10);
    await database.sql`select pg_sleep(0.5)`;
    clearInterval(timer);
    // A blocked thread would have counted one turn at the end.
    expect(turns).toBeGreaterThan(4);
  });

  it.runIf(process.platform === 'linux')('takes less than 300 MB of memory with its process', async () => {
    const child = start('insert');
    for await (const line of child.lines) if (line === 'row 500') break;
    const status = readFileSync(`/proc/${child.process.pid}/status`, 'utf8');
    const peakMb = Number(/VmHWM:\s+(\d+) kB/.exec(status)?.[1]) / 1024;
    // Less than 50 MB would not be a process with an engine: the reading is wrong.
    expect(peakMb).toBeGreaterThan(50);
    expect(peakMb).toBeLessThan(300);
  });

  it('makes a checkpoint in its interval', async () => {
    const database = await open({ checkpointEveryMs: 100 });
    await database.sql`create table big (v text)`;
    const readRedo = async () =>
      (await database.sql`select redo_lsn::text as redo from pg_control_checkpoint()`)[0]?.['redo'];
    const redoBefore = await readRedo();
    for (let n = 0; n < 10; n += 1)
      await database.sql`insert into big select repeat(md5(n::text), 30) from generate_series(1, 5000) n`;
    await expect.poll(readRedo).not.toBe(redoBefore);
  });

  it('exports its data as a seed for another folder', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'townhall-dump-'));
    const database = await open();
    await database.sql`create table carried (v text)`;
    await database.sql`insert into carried values ('over')`;
    writeFileSync(join(folder, 'seed.tgz'), (await database.dump?.()) ?? '');
    await database.close();
    const copy = await open({ path: join(folder, 'copy'), seed: join(folder, 'seed.tgz') });
    expect(await copy.sql`select v from carried`).toEqual([{ v: 'over' }]);
    await copy.close();
    rmSync(folder, { recursive: true });
  });

  it('completes two exports that are requested at once', async () => {
    const database = await open();
    const exports = await Promise.all([database.dump?.(), database.dump?.()]);
    expect(exports.map((bytes) => (bytes?.byteLength ?? 0) > 0)).toEqual([true, true]);
  });
});

describe('the space of deleted rows', () => {
  let database: Database;
  beforeEach(async () => {
    database = await open({ vacuumEveryMs: 100 });
    await database.sql`create table filled (n integer primary key, v text)`;
  });

  const fill = () =>
    database.sql`
      insert into filled select n, repeat(md5(n::text), 20) from generate_series(1, 3000) n
      on conflict do nothing`;
  /** `estimatedRows` is the planner's estimate; -1 when it is unknown, as in a table never analyzed. */
  async function readState(): Promise<{ bytes: number; estimatedRows: number }> {
    const [row] = await database.sql<{ bytes: number; estimatedRows: number }[]>`
      select pg_total_relation_size(oid)::int as bytes, reltuples as "estimatedRows"
      from pg_class where relname = 'filled'`;
    return row ?? { bytes: 0, estimatedRows: 0 };
  }
  /** Undefined until the table has been vacuumed. */
  async function countDeadRows(): Promise<number | undefined> {
    const [row] = await database.sql<{ n: number }[]>`
      select n_dead_tup::int as n from pg_stat_user_tables where relname = 'filled' and vacuum_count > 0`;
    return row?.n;
  }

  it('takes new rows', async () => {
    await fill();
    const { bytes } = await readState();
    // The last rows stay, so that the file cannot be truncated.
    await database.sql`delete from filled where n <= 2900`;
    await expect.poll(countDeadRows, { timeout: 20_000, interval: 100 }).toBe(0);
    await fill();
    expect((await readState()).bytes).toBeLessThan(bytes * 1.1);
  });

  it('is free again when a table is empty', async () => {
    await fill();
    await database.sql`delete from filled`;
    await expect.poll(async () => (await readState()).bytes, { timeout: 20_000 }).toBeLessThan(64 * 1024);
    // With an estimate of 0, a plan that is made now would read the whole table once it has grown.
    expect((await readState()).estimatedRows).toBe(-1);
  });

  it('is freed by a compaction', async () => {
    await fill();
    const { bytes } = await readState();
    await database.sql`delete from filled where n % 100 <> 0`;
    const tables: CompactedTable[] = [];
    await compactTables(database, (table) => tables.push(table));
    expect(tables.find(({ name }) => name === 'filled')?.bytesAfter).toBeLessThan(bytes / 10);
    expect(await database.sql`select count(*)::int as rows from filled`).toEqual([{ rows: 30 }]);
  });
});

describe('a first start', () => {
  let folder: string;
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), 'townhall-first-'));
  });
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  it('that was killed is repeated by the next start', async () => {
    const freshPath = join(folder, 'fresh');
    const child = start('hold', freshPath);
    await expect.poll(() => existsSync(join(freshPath, 'pg.new')), { interval: 1 }).toBe(true);
    child.process.kill('SIGKILL');
    await child.exit;
    expect(existsSync(join(freshPath, 'pg'))).toBe(false);
    const database = await open({ path: freshPath });
    expect(await database.sql`select 1 as one`).toEqual([{ one: 1 }]);
    expect(existsSync(join(freshPath, 'pg.new'))).toBe(false);
  });

  it('with an incomplete seed fails and leaves no database', async () => {
    const seed = join(folder, 'torn.tgz');
    writeFileSync(
      seed,
      readFileSync(join(import.meta.dirname, '../../../build/pglite-seed.tgz')).subarray(0, 100_000),
    );
    const tornFolder = join(folder, 'torn');
    await expect(open({ path: tornFolder, seed })).rejects.toThrow('unexpected end of file');
    expect(existsSync(join(tornFolder, 'pg'))).toBe(false);
    await open({ path: tornFolder });
  });

  it('with a seed whose file would be outside of the cluster fails', async () => {
    // A tar header: the name, the size in octal, and the type of a file. The path begins like the folder
    // `pg.new`, in which the cluster is created.
    const header = Buffer.alloc(512);
    header.write('../pg.new-outside', 0);
    header.write('00000000001', 124);
    header.write('0', 156);
    const seed = join(folder, 'outside.tgz');
    writeFileSync(seed, gzipSync(Buffer.concat([header, Buffer.alloc(512, 'x'), Buffer.alloc(1024)])));
    const outsidePath = join(folder, 'with-outside');
    await expect(open({ path: outsidePath, seed })).rejects.toThrow('a path outside of the cluster');
    expect(existsSync(join(outsidePath, 'pg.new-outside'))).toBe(false);
  });
});

/** Starts the child in a mode that embedded-child.ts explains; `lines` are what it prints. */
function start(
  mode: 'hold' | 'insert',
  folder = path,
): { process: ChildProcess; lines: AsyncIterableIterator<string>; exit: Promise<unknown> } {
  const child = spawn(process.execPath, [childFile, folder, mode], { stdio: ['pipe', 'pipe', 'inherit'] });
  children.add(child);
  // Subscribe at once: the exit may come before the last line is read.
  return {
    process: child,
    exit: once(child, 'exit'),
    lines: createInterface({ input: child.stdout })[Symbol.asyncIterator](),
  };
}

function countFsyncs(folder: string, commits: number): number {
  const report = `${folder}.strace`;
  const run = spawnSync(
    'strace',
    [
      '-f',
      '-e',
      'trace=fsync,fdatasync',
      '-o',
      report,
      process.execPath,
      childFile,
      folder,
      'commits',
      String(commits),
    ],
    { encoding: 'utf8' },
  );
  expect(run.status, run.stdout + run.stderr).toBe(0);
  // strace writes a call that another thread interrupts as two lines, `fsync(3 <unfinished ...>` and
  // `<... fsync resumed>`. Only the first has `fsync(`, so each call counts once.
  return readFileSync(report, 'utf8')
    .split('\n')
    .filter((line) => /\bf(data)?sync\(/.test(line)).length;
}
