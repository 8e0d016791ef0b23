// A process on an embedded data folder, for tests that kill or trace it. `hold` keeps the folder open
// until the input ends, `insert` adds rows until it is killed, `commits N` makes N commits. It prints
// `open` or `refused REASON`, then `row N` for each row of `insert` that is committed:
// node embedded-child.ts PATH hold | insert | commits N
import { connect } from '../../src/kernel/data/database.ts';
import { silentLog } from './template.ts';

const [path = '', mode, count = '0'] = process.argv.slice(2);
try {
  const database = await connect({ path }, { log: silentLog });
  console.log('open');
  if (mode === 'insert') {
    await database.sql`create table if not exists acknowledged (n int primary key)`;
    for (let n = 1; ; n += 1) {
      await database.sql`insert into acknowledged (n) values (${n})`;
      console.log(`row ${n}`);
    }
  } else if (mode === 'commits') {
    await database.sql`create table commits (n int)`;
    for (let n = 0; n < Number(count); n += 1) await database.sql`insert into commits (n) values (${n})`;
    await database.close();
  } else {
    process.stdin.resume().once('end', () => void database.close());
  }
} catch (error) {
  console.log(`refused ${error instanceof Error ? error.message : String(error)}`);
  process.exitCode = 1;
}
