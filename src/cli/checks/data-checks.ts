// Checks the gateway's data: the lock, the database with its settings and clock, the migrations and
// the master key. A running gateway answers over its control socket; otherwise the command opens
// the database. Nothing is changed.
import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { GatewayConfig } from '../../gateway/config.ts';
import { envStore } from '../../gateway/env/index.ts';
import { errorText } from '../../kernel/error-text.ts';
import { decodePercent } from '../../kernel/percent-encoding.ts';
import {
  gatewayDatabase,
  hasDatabase,
  readRunningFacts,
  withDatabase,
  type DatabaseLocation,
} from '../data/database-location.ts';
import {
  checkMasterKey,
  readGatewayFacts,
  type GatewayFacts,
  type SealSurvey,
} from '../data/gateway-data.ts';
import { fail, ok, warn, type Finding } from './finding.ts';

interface DataFindings {
  findings: Finding[];
  /** The names of the stored variables, for the check of provider keys. */
  storedKeys: readonly string[];
}

export async function checkData(config: GatewayConfig): Promise<DataFindings> {
  const location = gatewayDatabase(config);
  if (!hasDatabase(location)) {
    const database = ok('database', 'There is none yet; the first start creates one.');
    return { findings: [database, await checkKeyWithoutDatabase(config)], storedKeys: [] };
  }
  try {
    const facts = await readRunningFacts<GatewayFacts>(location);
    return facts === undefined ? await checkHere(config, location) : await checkRunning(config, facts);
  } catch (error) {
    return { findings: [unusableDatabase(error, config)], storedKeys: [] };
  }
}

async function checkRunning(config: GatewayConfig, facts: GatewayFacts): Promise<DataFindings> {
  const pidFile = join(config.databasePath, 'townhall.pid');
  const pid = (await readFile(pidFile, 'utf8').catch(() => '')).trim();
  const holder = pid === '' ? '' : `, process ${pid}`;
  return {
    findings: [
      ok('lock', `A gateway runs on the folder${holder}; it answered the checks below.`),
      ...checkFacts(facts, config),
      ok('master key', 'The running gateway was started with the right one.'),
    ],
    storedKeys: facts.storedKeys,
  };
}

function checkHere(config: GatewayConfig, location: DatabaseLocation): Promise<DataFindings> {
  return withDatabase(location, async (database) => {
    const facts = await readGatewayFacts(config, database);
    const key = await checkKey(config, await envStore(database).survey());
    const lock = config.databaseUrl === undefined ? [ok('lock', 'No process holds the folder.')] : [];
    return { findings: [...lock, ...checkFacts(facts, config), key], storedKeys: facts.storedKeys };
  });
}

function checkFacts(facts: GatewayFacts, { databaseUrl }: GatewayConfig): Finding[] {
  const { engine, version, answeredMs, bytes } = facts;
  const shortVersion = /^\S+ \S+/.exec(version)?.[0] ?? version;
  return [
    ok(
      'database',
      `${engine === 'embedded' ? 'Embedded ' : ''}${shortVersion} answers in ${answeredMs} ms and holds ${(bytes / 1e6).toFixed(0)} MB.`,
    ),
    checkDurability(facts),
    checkMigrations(facts),
    databaseUrl === undefined
      ? ok('clock', 'The embedded database uses the clock of this machine.')
      : checkClock(facts.clockAheadMs),
  ];
}

function checkDurability({ unsafeSettings }: GatewayFacts): Finding {
  if (unsafeSettings.length === 0) return ok('durability', 'Commits are durable.');
  return fail(
    'durability',
    `The server has ${unsafeSettings.join(' and ')} off: a power failure can lose acknowledged commits.`,
    `Turn it on in postgresql.conf; the gateway does not start without it.`,
  );
}

function checkMigrations({ migrations }: GatewayFacts): Finding {
  if (migrations.altered.length > 0)
    return fail(
      'migrations',
      `${migrations.altered.join(', ')} differ from the applied files.`,
      'Use the release that created the database, or restore the files.',
    );
  if (migrations.unknown.length > 0)
    return warn(
      'migrations',
      `${migrations.unknown.length} were applied by a newer release.`,
      'Use that release; an older one works beside it only during an upgrade.',
    );
  if (migrations.pending.length > 0)
    return warn(
      'migrations',
      `${migrations.applied} applied, ${migrations.pending.length} waiting.`,
      'The next start applies them. To apply them now: townhall db migrate',
    );
  return ok('migrations', `All ${migrations.applied} are applied.`);
}

const toleratedSkewMs = 2_000;
const maxSkewMs = 60_000;

function checkClock(clockAheadMs: number): Finding {
  const skewMs = Math.abs(clockAheadMs);
  const direction = clockAheadMs < 0 ? 'behind' : 'ahead of';
  const sentence = `The clock of the database is ${skewMs} ms ${direction} this machine's clock.`;
  if (skewMs <= toleratedSkewMs) return ok('clock', sentence);
  const report = skewMs > maxSkewMs ? fail : warn;
  return report('clock', sentence, 'Synchronize both with NTP: tokens and webhooks expire by the clock.');
}

async function checkKeyWithoutDatabase(config: GatewayConfig): Promise<Finding> {
  const hasKey =
    config.masterKey !== undefined ||
    config.masterKeyFile !== undefined ||
    existsSync(join(config.databasePath, 'master.key'));
  if (!hasKey) return ok('master key', 'None yet; the first start creates one in the data folder.');
  return checkKey(config, { canary: null, variableCount: 0 });
}

async function checkKey(config: GatewayConfig, survey: SealSurvey): Promise<Finding> {
  const { databaseUrl, masterKey, masterKeyFile } = config;
  try {
    if ((await checkMasterKey(config, survey)) === 'fits')
      return ok('master key', 'It opens the sealed values of the database.');
    if (databaseUrl !== undefined && masterKey === undefined && masterKeyFile === undefined)
      return fail(
        'master key',
        'TOWNHALL_MASTER_KEY is needed with DATABASE_URL.',
        'Create one with "openssl rand -base64 32" and keep it apart from the database.',
      );
    return ok('master key', 'Nothing is sealed in the database yet.');
  } catch (error) {
    return fail(
      'master key',
      errorText(error),
      'Set the key that sealed the values; it is not in the database or its backups.',
    );
  }
}

function unusableDatabase(error: unknown, { databaseUrl }: GatewayConfig): Finding {
  const message = errorText(error);
  if (databaseUrl === undefined)
    return fail(
      'database',
      message,
      'Stop the process that holds the folder, or check it with its own settings: townhall doctor --database-path PATH.',
    );
  const host = URL.canParse(databaseUrl) ? new URL(databaseUrl).host : 'DATABASE_URL';
  const login = /password|authentication|role|database .* does not exist/i.test(message)
    ? ' It refuses the login of DATABASE_URL.'
    : '';
  return fail(
    'database',
    `The PostgreSQL at ${host} cannot be used: ${withoutPassword(message, databaseUrl)}${login}`,
    'Check that the server runs and is reachable from here, and that DATABASE_URL has its user, password and database.',
  );
}

function withoutPassword(message: string, databaseUrl: string): string {
  const { password } = URL.canParse(databaseUrl) ? new URL(databaseUrl) : { password: '' };
  // A password with a single `%` cannot be decoded, which is why its database cannot be used.
  return [password, decodePercent(password)]
    .filter((part) => part !== '')
    .reduce((text, part) => text.replaceAll(part, '[redacted]'), message);
}
