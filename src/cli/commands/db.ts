// `townhall db migrate|backup|restore|compact`: maintains a database on either engine, the gateway's
// or, with --agent, an agent's. Where the two share one PostgreSQL, a backup contains both.
import { agentSettings, readAgentData } from '../../agent/config.ts';
import { readGatewayConfig } from '../../gateway/config.ts';
import { envStore } from '../../gateway/env/index.ts';
import { migrate } from '../../kernel/data/database.ts';
import { SettingError } from '../../kernel/settings.ts';
import {
  action,
  settingOption,
  type ActionCall,
  type Command,
  type CommandContext,
} from '../command-line/command.ts';
import { stderrLog } from '../command-line/stderr-log.ts';
import { backUp, restore } from '../data/backup.ts';
import { compact, formatMegabytes } from '../data/compact.ts';
import {
  agentDatabase,
  gatewayDatabase,
  readRunningFacts,
  requireDatabase,
  withDatabase,
  type DatabaseLocation,
} from '../data/database-location.ts';
import { dataNotes, dataOptions, readConfigHere } from '../data/gateway-config.ts';
import { checkMasterKey, type MasterKeyVerdict, type SealSurvey } from '../data/gateway-data.ts';

const dbOptions = {
  'database-path': dataOptions['database-path'],
  agent: { kind: 'switch', summary: "The agent's database instead of the gateway's." },
  'data-dir': {
    ...settingOption(agentSettings.dataDir, 'PATH'),
    summary: `With --agent: the agent's data folder (${agentSettings.dataDir.shownDefault}).`,
  },
  'database-url': {
    ...settingOption(agentSettings.databaseUrl, 'URL'),
    summary: 'With --agent: its PostgreSQL, which AGENT_DATABASE_URL also names.',
  },
  json: dataOptions.json,
} as const;

type DbOptions = ActionCall<typeof dbOptions>['options'];

export const command: Command = {
  description: [
    'A backup contains secrets only in their sealed form. Keep the master key apart from it: without the key a restored',
    'database does not start. A restore checks the key first and changes nothing when it is the wrong one.',
    '',
    'A backup does not contain files: images and videos in the storage folder or bucket; attachments, workspace and',
    "token file in an agent's data folder or bucket. With PostgreSQL pg_dump and pg_restore are needed here.",
    '',
    'Compacting needs as much free disk as the largest table has. A running server reuses the space of deleted rows by',
    'itself, so compact a database only to give space back to the disk.',
  ],
  actions: [
    action({
      path: 'migrate',
      summary: 'Apply new migrations without starting a server.',
      options: dbOptions,
      run: async ({ options, ...context }) =>
        report(context, options, await migrateDatabase(await findTarget(options, context))),
    }),
    action({
      path: 'backup',
      summary: 'Write the whole database into one new file, even while a server runs.',
      arguments: { file: { placeholder: 'FILE' } },
      options: dbOptions,
      run: async ({ arguments: { file }, options, ...context }) =>
        report(context, options, await runBackup(await findTarget(options, context), file, context)),
    }),
    action({
      path: 'restore',
      summary: 'Restore a backup into an empty database or a new folder.',
      arguments: { file: { placeholder: 'FILE' } },
      options: dbOptions,
      run: async ({ arguments: { file }, options, ...context }) =>
        report(context, options, await runRestore(await findTarget(options, context), file, context)),
    }),
    action({
      path: 'compact',
      summary: 'Shrink the embedded database of a stopped server to what its rows need.',
      options: dbOptions,
      run: async ({ options, ...context }) =>
        report(context, options, await runCompact(await findTarget(options, context), context)),
    }),
  ],
  notes: [
    'The master key is TOWNHALL_MASTER_KEY or TOWNHALL_MASTER_KEY_FILE, else master.key in the data folder.',
    ...dataNotes,
  ],
};

/** The database that the command works on, and the check of the master key against its sealed values. */
interface Target {
  location: DatabaseLocation;
  checkKey(survey: SealSurvey): Promise<MasterKeyVerdict>;
}

async function findTarget(options: DbOptions, context: CommandContext): Promise<Target> {
  const gatewayOptions = ['database-path'] as const;
  const agentOptions = ['data-dir', 'database-url'] as const;
  const optionsOfOther = options.agent ? gatewayOptions : agentOptions;
  const misplacedOption = optionsOfOther.find((name) => options[name] !== undefined);
  if (misplacedOption !== undefined)
    throw new SettingError(
      `--${misplacedOption} ${options.agent ? 'cannot be combined with' : 'needs'} --agent; see --help.`,
    );
  if (!options.agent) {
    const config = await readConfigHere({ 'database-path': options['database-path'] }, context);
    return { location: gatewayDatabase(config), checkKey: (survey) => checkMasterKey(config, survey) };
  }
  const { 'data-dir': dataDir, 'database-url': databaseUrl } = options;
  const location = agentDatabase(
    readAgentData({ 'data-dir': dataDir, 'database-url': databaseUrl }, context.env),
  );
  // An agent's database contains a gateway's secrets only if the two share one PostgreSQL.
  return {
    location,
    checkKey: (survey) =>
      checkMasterKey({ ...readGatewayConfig({}, context.env), databaseUrl: location.databaseUrl }, survey),
  };
}

interface Report {
  result: object;
  line: string;
}

function report({ print }: CommandContext, { json }: DbOptions, { result, line }: Report): number {
  print(json ? JSON.stringify(result) : line);
  return 0;
}

async function runBackup(
  { location }: Target,
  file: string,
  { env, printError }: CommandContext,
): Promise<Report> {
  const backup = await backUp(location, file, { env, progress: (step) => printError(`  ${step} …`) });
  const advice =
    location.surface === 'agent'
      ? "Attachments and the workspace are files of the agent's data folder: copy them too."
      : 'Keep the master key elsewhere.';
  return {
    result: backup,
    line: `The database is backed up: ${backup.file}, ${formatMegabytes(backup.bytes)}. ${advice}`,
  };
}

async function runRestore(
  { location, checkKey }: Target,
  path: string,
  { env, printError }: CommandContext,
): Promise<Report> {
  const { file, engine, masterKey } = await restore(location, path, {
    env,
    progress: (step) => printError(`  ${step} …`),
    checkKey,
  });
  const keySentence =
    masterKey === 'fits' ? 'The master key fits.' : 'Nothing in it is sealed, so no master key was needed.';
  return {
    result: { file, engine, master_key: masterKey === 'fits' ? 'fits' : 'nothing_sealed' },
    line: `The database is restored. ${keySentence} Start the ${location.surface}; it brings the database up to date.`,
  };
}

async function runCompact({ location }: Target, { printError }: CommandContext): Promise<Report> {
  const { bytesBefore, bytesAfter } = await compact(location, (step) => printError(`  ${step}`));
  return {
    result: { bytes_before: bytesBefore, bytes_after: bytesAfter },
    line: `The database is compacted: ${formatMegabytes(bytesBefore)} before, ${formatMegabytes(bytesAfter)} after.`,
  };
}

async function migrateDatabase({ location, checkKey }: Target): Promise<Report> {
  const facts = await readRunningFacts(location);
  if (facts !== undefined) {
    // Files that came with an upgrade after the server's start are pending until its next start.
    const { pending } = facts.migrations;
    const state =
      pending.length === 0
        ? 'all its migrations are applied.'
        : `restart it to apply what is new since its start: ${pending.join(', ')}.`;
    return { result: { applied: [], pending }, line: `A running server holds the database; ${state}` };
  }
  requireDatabase(location);
  const { applied } = await withDatabase(location, async (database) => {
    // Like a start of the gateway, this throws, before anything is changed, when values are sealed and the
    // key is missing or wrong. The agent's migrations concern only its own schema, which has no sealed
    // values.
    if (location.surface === 'gateway') await checkKey(await envStore(database).survey());
    return migrate(database, { ...location.migrations, log: stderrLog().log });
  });
  return {
    result: { applied },
    line: applied.length === 0 ? 'The database is up to date.' : `Applied: ${applied.join(', ')}.`,
  };
}
