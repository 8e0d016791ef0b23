// Facts of a database, on scripted answers.
import { describe, expect, it } from 'vitest';
import type { Database } from '../../../src/kernel/data/database.ts';
import { readDatabaseFacts } from '../../../src/kernel/data/database-facts.ts';
import { pause } from '../../../src/kernel/async.ts';
import { assetPath } from '../../../src/kernel/assets.ts';

describe('readDatabaseFacts', () => {
  it('compares the clocks at the time of the clock query', async () => {
    // A database with our clock, whose other queries are slow.
    const slowMs = 200;
    const sql = async ({ raw: [text = ''] }: TemplateStringsArray) => {
      if (text.includes('clock_timestamp')) return [{ at: new Date() }];
      await pause(slowMs);
      return [];
    };
    const database = { sql, engine: 'postgres', version: '' } as unknown as Database;
    const migrations = { schema: 'gateway', directory: assetPath('src/gateway/migrations') };
    const { clockAheadMs } = await readDatabaseFacts(database, migrations);
    expect(Math.abs(clockAheadMs)).toBeLessThan(slowMs);
  });
});
