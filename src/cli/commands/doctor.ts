// `townhall doctor`: looks whether everything is as a server needs it, and says what to do where it is not. It changes
// nothing, starts nothing and prints no secret; it looks at what the gateway would be started with from here.
import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { join, resolve } from 'node:path';
import { readAgentData } from '../../agent/config.ts';
import { curatedModels } from '../../gateway/ai/index.ts';
import { gatewaySettings } from '../../gateway/config.ts';
import type { GatewayConfig } from '../../gateway/config.ts';
import { envStore } from '../../gateway/env/index.ts';
import { isSingleExecutable } from '../../kernel/assets.ts';
import { flagsOf, parseFlagsAlone } from '../command-line/command.ts';
import type { Command, CommandInput } from '../command-line/command.ts';
import { gatewayConfigHere } from '../data/gateway-config.ts';
import { checkMasterKey, gatewayFacts, type GatewayFacts } from '../data/gateway-data.ts';
import { askServer, gatewayPlace, hasDatabase, withDatabase } from '../data/database-location.ts';
import {
  checkContract,
  checkDisk,
  checkFolder,
  checkNode,
  checkPackages,
  checkPort,
  fail,
  ok,
  warn,
  type Finding,
} from '../checks/machine-checks.ts';

export const doctorCommand: Command = {
  help: () =>
    [
      'Usage: townhall doctor [OPTIONS]',
      '',
      'Looks at Node, the ports, the data folder, the database, the master key, the migrations, the contract, the keys of',
      'model providers, optional packages, clocks and the disk, as the gateway would find them from here. Nothing is',
      'changed. Exits 1 when something fails; a warning alone is no failure.',
      '',
      'Takes the options of "townhall gateway", such as --port and --database-path, and the same environment.',
      '',
      '  --json                 print the findings as JSON',
      '',
      'In the folder of a deployed project it looks at the database of its City.',
    ].join('\n'),
  async run(input) {
    const { json, ...own } = parseFlagsAlone(input.arguments, {
      flags: flagsOf(gatewaySettings),
      switches: ['json'],
    });
    const findings = await examine(await gatewayConfigHere(own, input), input.env);
    const failed = findings.filter(({ state }) => state === 'fail').length;
    const warned = findings.filter(({ state }) => state === 'warn').length;
    if (json === 'true') input.print(JSON.stringify({ ok: failed === 0, findings }));
    else {
      for (const { check, state, message, next } of findings) {
        input.print(`${state.padEnd(5)} ${check.padEnd(16)} ${message}`);
        if (next !== null) input.print(`${''.padEnd(22)} ${next}`);
      }
      input.print('');
      input.print(
        failed === 0 && warned === 0
          ? 'Everything is as it should be.'
          : `${failed} to mend, ${warned} to look at.`,
      );
    }
    return failed === 0 ? 0 : 1;
  },
};

async function examine(config: GatewayConfig, env: CommandInput['env']): Promise<Finding[]> {
  const { databaseUrl, databasePath, host, port, metricsPort, metricsHost, storagePath } = config;
  const uid = process.getuid?.();
  const data = await examineData(config);
  return [
    checkNode(process.version),
    await checkPort('gateway', { host, port, setting: 'PORT' }),
    ...(metricsPort === undefined
      ? []
      : [await checkPort('metrics', { host: metricsHost, port: metricsPort, setting: 'METRICS_PORT' })]),
    databaseUrl === undefined
      ? await checkFolder('data folder', databasePath, { isPrivate: true, uid })
      : await checkFolder('storage folder', storagePath ?? './data/media', { isPrivate: false, uid }),
    ...data.findings,
    await checkDisk(databaseUrl === undefined ? databasePath : (storagePath ?? './data/media')),
    await checkContract(),
    await checkProviderKeys(config, env, data.storedKeys),
    isSingleExecutable
      ? ok('packages', 'All that belongs to the single executable is in it.')
      : checkPackages(canResolve),
    await checkAgent(env),
  ];
}

function canResolve(name: string): boolean {
  try {
    createRequire(import.meta.url).resolve(name);
    return true;
  } catch (error) {
    // A package may be there and keep its inside to modules of the newer kind.
    return (error as { code?: unknown }).code === 'ERR_PACKAGE_PATH_NOT_EXPORTED';
  }
}

interface Examined {
  findings: Finding[];
  storedKeys: readonly string[];
}

async function examineData(config: GatewayConfig): Promise<Examined> {
  const place = gatewayPlace(config);
  if (!hasDatabase(place))
    return {
      findings: [
        ok('database', 'There is none yet; the first start makes one.'),
        ...(await keyWithoutDatabase(config)),
      ],
      storedKeys: [],
    };
  try {
    const served = (await askServer(place, 'db.facts', null)) as GatewayFacts | undefined;
    if (served !== undefined) {
      const holder = (
        await readFile(join(config.databasePath, 'townhall.pid'), 'utf8').catch(() => '')
      ).trim();
      const lock = ok(
        'lock',
        `A gateway runs over the folder${holder === '' ? '' : `, process ${holder}`}; it was asked.`,
      );
      return {
        findings: [
          lock,
          ...judge(served, config),
          ok('master key', 'The running gateway was started with the right one.'),
        ],
        storedKeys: served.storedKeys,
      };
    }
    return await withDatabase(place, async (database) => {
      const facts = await gatewayFacts(config, database);
      const key = await examineKey(config, await envStore(database).survey());
      const lock = config.databaseUrl === undefined ? [ok('lock', 'Nobody holds the folder.')] : [];
      return { findings: [...lock, ...judge(facts, config), key], storedKeys: facts.storedKeys };
    });
  } catch (error) {
    return { findings: [awayFinding(error, config)], storedKeys: [] };
  }
}

async function keyWithoutDatabase(config: GatewayConfig): Promise<Finding[]> {
  const isThere =
    config.masterKey !== undefined ||
    config.masterKeyFile !== undefined ||
    existsSync(join(config.databasePath, 'master.key'));
  if (!isThere) return [ok('master key', 'None yet; the first start makes one in the data folder.')];
  return [await examineKey(config, { canary: null, variables: 0 })];
}

function awayFinding(error: unknown, config: GatewayConfig): Finding {
  const message = error instanceof Error ? error.message : String(error);
  if (config.databaseUrl !== undefined) {
    const place = URL.canParse(config.databaseUrl) ? new URL(config.databaseUrl).host : 'DATABASE_URL';
    const said = /password|authentication|role|database .* does not exist/i.test(message)
      ? ' It refuses the login that DATABASE_URL gives.'
      : '';
    return fail(
      'database',
      `The PostgreSQL at ${place} cannot be used: ${withoutPassword(message, config.databaseUrl)}${said}`,
      'See that the server runs and can be reached from here, and that DATABASE_URL names its user, password and database.',
    );
  }
  return fail(
    'database',
    message,
    'Stop the process that holds the folder, or look with its own settings: townhall doctor --database-path PATH.',
  );
}

function withoutPassword(message: string, databaseUrl: string): string {
  const { password } = URL.canParse(databaseUrl) ? new URL(databaseUrl) : { password: '' };
  return [password, decodeURIComponent(password)]
    .filter((part) => part !== '')
    .reduce((said, part) => said.replaceAll(part, '[redacted]'), message);
}

const smallSkewMs = 2_000;
const greatSkewMs = 60_000;

function judge(
  { engine, version, unsafeSettings, clockAheadMs, answeredMs, bytes, migrations }: GatewayFacts,
  { databaseUrl }: GatewayConfig,
): Finding[] {
  const short = /^\S+ \S+/.exec(version)?.[0] ?? version;
  const findings = [
    ok(
      'database',
      `${engine === 'embedded' ? 'Embedded ' : ''}${short} answers in ${answeredMs} ms and holds ${(bytes / 1e6).toFixed(0)} MB.`,
    ),
  ];
  findings.push(
    unsafeSettings.length === 0
      ? ok('durability', 'What is committed is on the disk.')
      : fail(
          'durability',
          `The server has ${unsafeSettings.join(' and ')} off: a power cut can take away what it acknowledged.`,
          `Turn it on in postgresql.conf; the gateway does not start without.`,
        ),
  );
  const { applied, pending, altered, unknown } = migrations;
  if (altered.length > 0)
    findings.push(
      fail(
        'migrations',
        `${altered.join(', ')} differ from what was applied.`,
        'Use the release that the database was made with, or the files as they were.',
      ),
    );
  else if (unknown.length > 0)
    findings.push(
      warn(
        'migrations',
        `${unknown.length} were applied by a newer release.`,
        'Use that release; an older one works beside it only for the time of an upgrade.',
      ),
    );
  else if (pending.length > 0)
    findings.push(
      warn(
        'migrations',
        `${applied} applied, ${pending.length} waiting.`,
        'The next start applies them, or now: townhall db migrate',
      ),
    );
  else findings.push(ok('migrations', `All ${applied} are applied.`));
  const skew = Math.abs(clockAheadMs);
  const said = `The clock of the database is ${skew} ms ${clockAheadMs < 0 ? 'behind' : 'ahead of'} the one here.`;
  if (databaseUrl === undefined || skew <= smallSkewMs)
    findings.push(
      ok('clock', databaseUrl === undefined ? 'The database has the clock of this machine.' : said),
    );
  else
    findings.push(
      (skew > greatSkewMs ? fail : warn)(
        'clock',
        said,
        'Set both by NTP: tokens and webhooks are good for a time.',
      ),
    );
  return findings;
}

async function examineKey(
  config: GatewayConfig,
  survey: Parameters<typeof checkMasterKey>[1],
): Promise<Finding> {
  try {
    const verdict = await checkMasterKey(config, survey);
    if (verdict === 'fits') return ok('master key', 'It opens what is sealed in the database.');
    if (
      config.databaseUrl !== undefined &&
      config.masterKey === undefined &&
      config.masterKeyFile === undefined
    ) {
      return fail(
        'master key',
        'TOWNHALL_MASTER_KEY is needed with DATABASE_URL.',
        'Make one with "openssl rand -base64 32" and keep it apart from the database.',
      );
    }
    return ok('master key', 'Nothing is sealed in the database yet.');
  } catch (error) {
    return fail(
      'master key',
      error instanceof Error ? error.message : String(error),
      'Give the key that the database was sealed with; it is not in the database or its backups.',
    );
  }
}

async function checkProviderKeys(
  config: GatewayConfig,
  env: CommandInput['env'],
  storedKeys: readonly string[],
): Promise<Finding> {
  const own = await keysOfModelsFile(config.modelsFile);
  if (own === undefined)
    return fail(
      'providers',
      `The models file ${config.modelsFile ?? ''} cannot be read as JSON.`,
      'Look at MODELS_FILE; townhall models check says more.',
    );
  const keys = new Set([...curatedModels().providers.flatMap(({ api_key_env: key }) => key ?? []), ...own]);
  const set = [...keys].filter((key) => (env[key] ?? '') !== '' || storedKeys.includes(key)).sort();
  if (set.length === 0)
    return warn(
      'providers',
      'No model provider has a key; the local models need none.',
      'Set one, such as OPENAI_API_KEY, here or with env/upsert; then: townhall models check',
    );
  return ok(
    'providers',
    `${set.join(', ')} ${set.length === 1 ? 'is' : 'are'} set; "townhall models check" calls them.`,
  );
}

async function keysOfModelsFile(path: string | undefined): Promise<string[] | undefined> {
  if (path === undefined) return [];
  try {
    const { providers = [] } = JSON.parse(await readFile(resolve(path), 'utf8')) as {
      providers?: { api_key_env?: unknown }[];
    };
    return providers.flatMap(({ api_key_env: key }) => (typeof key === 'string' ? [key] : []));
  } catch {
    return undefined;
  }
}

async function checkAgent(env: CommandInput['env']): Promise<Finding> {
  const port = Number(env['AGENT_PORT'] ?? 5314);
  const finding = await checkPort('agent', {
    host: env['AGENT_HOST'] ?? '127.0.0.1',
    port: Number.isInteger(port) ? port : 5314,
    setting: 'AGENT_PORT',
  });
  const { dataDir } = readAgentData({}, env);
  const where = existsSync(dataDir) ? ` Its data is in ${dataDir}.` : '';
  // An agent is not needed for a gateway.
  return finding.state === 'fail'
    ? { ...finding, state: 'warn' }
    : { ...finding, message: finding.message + where };
}
