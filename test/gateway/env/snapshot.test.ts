// The values in memory during a database outage, and how long they stay redacted.
import { describe, expect, test } from 'vitest';
import { createSnapshot } from '../../../src/gateway/env/snapshot.ts';
import { variablesTable, type StoredVariable } from '../../../src/gateway/env/store.ts';
import { systemClock } from '../../../src/kernel/clock.ts';
import { createRedactor } from '../../../src/kernel/secrets/secret.ts';
import {
  createVault,
  newMasterKey,
  parseMasterKey,
  type MasterKey,
} from '../../../src/kernel/secrets/vault.ts';
import { silentLog } from '../../support/databases.ts';
import { until } from '../../support/until.ts';

const vault = createVault(parseMasterKey(newMasterKey()) as MasterKey);
let versions = 0;
function row(key: string, value: string): StoredVariable {
  const version = (versions += 1);
  return {
    key,
    version,
    updatedAt: new Date(),
    sealed: vault.seal(vault.primaryKid, { table: variablesTable, key, version }, value),
  };
}

function createTestSnapshot() {
  const database = { rows: [] as StoredVariable[], isUnreachable: false, loadCount: 0 };
  const redactor = createRedactor();
  const snapshot = createSnapshot({
    store: {
      async list() {
        database.loadCount += 1;
        if (database.isUnreachable) throw new Error('unreachable');
        return database.rows;
      },
    },
    vault,
    environment: { FROM_PROCESS: 'process value', BOTH: 'process value too' },
    isSecret: (key) => !key.startsWith('PUBLIC'),
    redactor,
    clock: systemClock,
    log: silentLog,
  });
  return { database, redactor, snapshot };
}

describe('the environment in memory', () => {
  test('keeps its values during a database outage and then refreshes', async () => {
    const { database, snapshot } = createTestSnapshot();
    database.rows = [row('A', 'first value')];
    await snapshot.refresh();
    database.rows = [row('A', 'second value'), row('BOTH', 'stored')];
    database.isUnreachable = true;
    await expect(snapshot.refresh()).rejects.toThrow('unreachable');
    expect([snapshot.get('A'), snapshot.get('BOTH')]).toEqual(['first value', 'process value too']);
    database.isUnreachable = false;
    await until(() => snapshot.get('A') === 'second value', 'the second value is loaded');
    expect(snapshot.get('BOTH')).toBe('stored');
    await snapshot.close();
  });

  test('shares loads among concurrent callers', async () => {
    const { database, snapshot } = createTestSnapshot();
    const firstRefresh = snapshot.refresh();
    database.rows = [row('LATE', 'late value')];
    await Promise.all([firstRefresh, ...Array.from({ length: 50 }, () => snapshot.refresh())]);
    expect(snapshot.get('LATE')).toBe('late value');
    expect(database.loadCount).toBeLessThanOrEqual(2);
    await snapshot.close();
  });

  test('redacts current secrets only, and no public values', async () => {
    const { database, redactor, snapshot } = createTestSnapshot();
    database.rows = [row('KEY', 'old secret'), row('PUBLIC_URL', 'https://city.example')];
    await snapshot.refresh();
    // A value of the process is redacted once it has been read.
    snapshot.get('FROM_PROCESS');
    expect(redactor.hide('old secret at https://city.example of process value')).toBe(
      '[redacted] at https://city.example of [redacted]',
    );
    database.rows = [row('KEY', 'new secret')];
    await snapshot.refresh();
    expect(redactor.hide('old secret, new secret')).toBe('old secret, [redacted]');
    await snapshot.close();
  });

  test('keeps secrets of the process redacted when the declarations are reviewed', async () => {
    const { redactor, snapshot } = createTestSnapshot();
    snapshot.get('FROM_PROCESS');
    snapshot.reviewSecrets();
    expect(redactor.hide('process value')).toBe('[redacted]');
    await snapshot.close();
  });

  test('does not replace an unreadable value by the value of the process', async () => {
    const { database, snapshot } = createTestSnapshot();
    database.rows = [{ ...row('BOTH', 'stored'), version: 999_999 }];
    await snapshot.refresh();
    expect(snapshot.get('BOTH')).toBeUndefined();
    expect(snapshot.entry('BOTH')?.value).toBeNull();
    await snapshot.close();
  });
});
