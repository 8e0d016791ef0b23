// A start can open the database while its modules load. The gateway then uses this database and closes it.
import { randomUUID } from 'node:crypto';
import { rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createGateway } from '../../src/gateway/compose.ts';
import { readGatewayConfig } from '../../src/gateway/config.ts';
import { databaseExists, openGatewayDatabase } from '../../src/gateway/database.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import { createLog } from '../../src/kernel/log.ts';
import { createRedactor } from '../../src/kernel/secrets/secret.ts';
import { databaseEnv, makeServerDatabase, type DatabasePlace } from '../support/databases.ts';
import { testMasterKey } from '../support/gateway.ts';

const redactor = createRedactor();
const log = createLog({ level: 'error', redactor, write: () => {} });

describe('the database of a start', () => {
  let place: DatabasePlace & { remove(): Promise<void> };
  const folder = join(tmpdir(), `townhall-start-${randomUUID()}`);

  beforeAll(async () => {
    place = await makeServerDatabase();
  });

  afterAll(async () => {
    await place.remove();
    await rm(folder, { recursive: true, force: true });
  });

  function configWith(env: Record<string, string>) {
    const databaseSettings = databaseEnv(place.options);
    return readGatewayConfig(
      {},
      {
        ...databaseSettings,
        TOWNHALL_MASTER_KEY: testMasterKey,
        JOURNAL_PATH: folder,
        STORAGE_PATH: folder,
        ...env,
      },
    );
  }

  test('is used and closed by the gateway', async () => {
    const config = configWith({});
    const openingDatabase = openGatewayDatabase(config, { log });
    const gateway = await createGateway(config, {
      env: {},
      log,
      redactor,
      clock: systemClock,
      openingDatabase,
    });
    expect(gateway.database).toBe(await openingDatabase);
    await gateway.close();
    await expect(gateway.database.sql`select 1`).rejects.toBeInstanceOf(Error);
  });

  test('is closed when the settings are refused', async () => {
    const config = configWith({ MODELS_FILE: join(folder, 'missing.json') });
    const openingDatabase = openGatewayDatabase(config, { log });
    const start = createGateway(config, { env: {}, log, redactor, clock: systemClock, openingDatabase });
    await expect(start).rejects.toThrow('missing.json');
    await expect((await openingDatabase).sql`select 1`).rejects.toBeInstanceOf(Error);
  });

  test('does not count as existing before the first start', () => {
    const config = readGatewayConfig({}, { DATABASE_PATH: join(folder, 'database') });
    expect(databaseExists(config)).toBe(false);
  });
});
