// `townhall doctor`: checks everything that a gateway started from here would need, with advice for
// each problem. It changes nothing, starts nothing and prints no secret.
import { existsSync } from 'node:fs';
import { styleText } from 'node:util';
import { agentSettings, readAgentBucket, readAgentData } from '../../agent/config.ts';
import { gatewaySettings, journalFolder } from '../../gateway/config.ts';
import type { GatewayConfig } from '../../gateway/config.ts';
import { s3Settings } from '../../kernel/storage/s3-settings.ts';
import { checkBucket } from '../checks/bucket-check.ts';
import { checkData } from '../checks/data-checks.ts';
import { ok, type Finding } from '../checks/finding.ts';
import {
  checkContract,
  checkDisk,
  checkFolder,
  checkJournalDisk,
  checkNode,
  checkPackages,
} from '../checks/machine-checks.ts';
import { checkPort } from '../checks/port-check.ts';
import { checkProviderKeys } from '../checks/provider-check.ts';
import { checkSandbox } from '../checks/sandbox-check.ts';
import { action, type Command, type CommandContext } from '../command-line/command.ts';
import { wrapText } from '../command-line/wrap-text.ts';
import { gatewayDatabase } from '../data/database-location.ts';
import { readConfigHere } from '../data/gateway-config.ts';
import { describeRunning } from '../data/running-server.ts';

export const command: Command = {
  description: [
    'Checks Node, the ports, the data folder, the bucket, the journal, the database, the master key, the migrations,',
    'the contract, the keys of model providers, optional packages, clocks, the disk and the sandbox of agents. It checks the',
    'gateway that runs in this folder, or without one what a gateway started from here would use. Nothing is changed. It',
    'exits 1 when a check fails; a warning is not a failure.',
  ],
  actions: [
    action({
      options: { json: { kind: 'switch', summary: 'Print the findings as JSON.' } },
      settings: { table: gatewaySettings, sameAs: 'townhall gateway' },
      async run({ options, settings, ...context }) {
        const findings = await examine(await readConfigHere(settings, context), context.env);
        const failures = findings.filter(({ state }) => state === 'fail').length;
        if (options.json) context.print(JSON.stringify({ ok: failures === 0, findings }));
        else printFindings(findings, context);
        return failures === 0 ? 0 : 1;
      },
    }),
  ],
  notes: ['In the folder of a deployed project it checks the database of its City.'],
};

const stateColours = { ok: 'green', warn: 'yellow', fail: 'red' } as const;
// The width of the columns with the state and the name of the check.
const indent = 23;

function printFindings(findings: readonly Finding[], { print, output }: CommandContext): void {
  const width = Math.max(20, (output.columns ?? Infinity) - indent);
  for (const { check, state, message, next } of findings) {
    const [firstLine, ...lines] = [message, ...(next === null ? [] : [next])].flatMap((text) =>
      wrapText(text, width),
    );
    print(`${styleText(stateColours[state], state.padEnd(5))} ${check.padEnd(16)} ${firstLine}`);
    for (const line of lines) print(`${''.padEnd(indent)}${line}`);
  }
  const failures = findings.filter(({ state }) => state === 'fail').length;
  const warnings = findings.filter(({ state }) => state === 'warn').length;
  print('');
  print(
    failures === 0 && warnings === 0
      ? 'All checks passed.'
      : `${failures} failed, ${warnings} with a warning.`,
  );
}

// The default with PostgreSQL; with the embedded database the storage folder is in the data folder.
const defaultStoragePath = './data/media';

async function examine(config: GatewayConfig, env: CommandContext['env']): Promise<Finding[]> {
  const { databaseUrl, databasePath, host, port, metricsPort, metricsHost } = config;
  const { storagePath = defaultStoragePath } = config;
  const { findings, storedKeys } = await checkData(config);
  const running =
    databaseUrl === undefined ? await describeRunning(gatewayDatabase(config).socket) : undefined;
  return [
    checkNode(process.version),
    running?.gateway
      ? ok('port gateway', `The running gateway listens at ${running.gateway}.`)
      : await checkPort('gateway', { host, port, setting: 'PORT' }),
    ...(metricsPort === undefined
      ? []
      : [await checkPort('metrics', { host: metricsHost, port: metricsPort, setting: 'METRICS_PORT' })]),
    ...(await checkStorage(config, env)),
    ...(config.journal === 'off' ? [] : [await checkJournalDisk(journalFolder(config))]),
    ...findings,
    await checkDisk(databaseUrl === undefined ? databasePath : storagePath),
    await checkContract(),
    await checkProviderKeys(config.modelsFile, { env, storedKeys, running }),
    checkPackages(),
    await checkAgent(env, running?.agent ?? null),
    await checkSandbox(env),
  ];
}

/** Checks folders and buckets. The data folder of the embedded database contains the storage folder. */
async function checkStorage(config: GatewayConfig, env: CommandContext['env']): Promise<Finding[]> {
  const { databaseUrl, databasePath, storagePath = defaultStoragePath } = config;
  const bucket = s3Settings('', config);
  const agentBucket = readAgentBucket(env);
  return [
    ...(databaseUrl === undefined
      ? [await checkFolder('data folder', databasePath, { isPrivate: true })]
      : []),
    ...(databaseUrl !== undefined && bucket === undefined
      ? [await checkFolder('storage folder', storagePath, { isPrivate: false })]
      : []),
    ...(bucket === undefined ? [] : [await checkBucket('bucket', '', bucket)]),
    ...(agentBucket === undefined ? [] : [await checkBucket('agent bucket', 'AGENT_', agentBucket)]),
  ];
}

/** An agent is optional, so its failures are warnings. */
async function checkAgent(env: CommandContext['env'], runningUrl: string | null): Promise<Finding> {
  if (runningUrl !== null) return ok('port agent', `The running agent listens at ${runningUrl}.`);
  const defaultPort = agentSettings.port.fallback;
  // `||`, because an empty string counts as absent, as in the settings.
  const port = Number(env['AGENT_PORT'] || defaultPort);
  const finding = await checkPort('agent', {
    host: env['AGENT_HOST'] || agentSettings.host.fallback,
    port: Number.isInteger(port) ? port : defaultPort,
    setting: 'AGENT_PORT',
  });
  if (finding.state === 'fail') return { ...finding, state: 'warn' };
  const { dataDir } = readAgentData({}, env);
  const dataSentence = existsSync(dataDir) ? ` Its data is in ${dataDir}.` : '';
  return { ...finding, message: finding.message + dataSentence };
}
