// `townhall db migrate|backup|restore`: the care of a database on either engine, the gateway's or, with --agent, an
// agent's. Where the two share one PostgreSQL, a backup of it holds both.
import { agentSettings, readAgentData } from '../../agent/config.ts';
import { readGatewayConfig } from '../../gateway/config.ts';
import { envStore } from '../../gateway/env/index.ts';
import { migrate } from '../../kernel/data/database.ts';
import type { DatabaseFacts } from '../../kernel/data/database-facts.ts';
import { SettingError } from '../../kernel/settings.ts';
import { backUp, restore } from '../data/backup.ts';
import { parseFlags } from '../command-line/command.ts';
import type { Command, CommandInput } from '../command-line/command.ts';
import { checkMasterKey, type Survey } from '../data/gateway-data.ts';
import { gatewayConfigHere, hereHelp } from '../data/gateway-config.ts';
import {
  agentPlace,
  askServer,
  commandLog,
  gatewayPlace,
  requireDatabase,
  withDatabase,
  type DatabasePlace,
} from '../data/database-location.ts';

export const dbCommand: Command = {
  help: () =>
    [
      'Usage: townhall db migrate [OPTIONS]         brings the database up to date, without serving',
      '       townhall db backup FILE [OPTIONS]     writes all of it into one new file, also beside a running server',
      '       townhall db restore FILE [OPTIONS]    puts a backup into an empty database or a folder without one',
      '',
      "Looks after the gateway's database or, with --agent, an agent's. Where both share one PostgreSQL, one backup holds both.",
      '',
      'A backup holds secrets only as they are sealed: keep the master key apart from it, since without the key a restored',
      'database does not start. A restore tries the key first and changes nothing when it is another one. Not part of a',
      "backup are files: images and videos in the storage folder; an agent's attachments, workspace and token file in its",
      'data folder. A PostgreSQL needs its programs pg_dump and pg_restore here.',
      '',
      '  --database-path PATH   folder of the embedded database (./data/townhall.db)',
      "  --agent                the agent's database instead of the gateway's",
      "  --data-dir PATH        with --agent: the agent's data folder (./data/agent)",
      '  --database-url URL     with --agent: its PostgreSQL, which AGENT_DATABASE_URL also names',
      '  --json                 print the result as JSON',
      '',
      'TOWNHALL_MASTER_KEY or TOWNHALL_MASTER_KEY_FILE give the master key, else master.key in the folder is it.',
      ...hereHelp,
    ].join('\n'),
  async run(input) {
    const { flags, words } = parseFlags(input.arguments, {
      flags: ['database-path', 'data-dir', 'database-url'],
      switches: ['agent', 'json'],
    });
    const [action, file, ...surplus] = words;
    const asJson = flags['json'] === 'true';
    if (action === 'migrate' && file === undefined)
      return report(input, asJson, await migrateHere(await subjectOf(flags, input)));
    if (action === 'backup' && file !== undefined && surplus.length === 0)
      return report(input, asJson, await runBackup(input, await subjectOf(flags, input), file));
    if (action === 'restore' && file !== undefined && surplus.length === 0)
      return report(input, asJson, await runRestore(input, await subjectOf(flags, input), file));
    throw new SettingError(
      'say "townhall db migrate", "townhall db backup FILE" or "townhall db restore FILE"; see --help.',
    );
  },
};

/** The database in question, and how the master key is tried on what of it is sealed. */
interface Subject {
  place: DatabasePlace;
  checkKey(survey: Survey): Promise<'fits' | 'nothing sealed'>;
}

async function subjectOf(
  flags: Readonly<Record<string, string | undefined>>,
  input: CommandInput,
): Promise<Subject> {
  const isAgent = flags['agent'] === 'true';
  const foreign = (isAgent ? ['database-path'] : ['data-dir', 'database-url']).find(
    (name) => flags[name] !== undefined,
  );
  if (foreign !== undefined)
    throw new SettingError(`--${foreign} ${isAgent ? 'does not go with' : 'needs'} --agent; see --help.`);
  if (!isAgent) {
    const config = await gatewayConfigHere({ 'database-path': flags['database-path'] }, input);
    return { place: gatewayPlace(config), checkKey: (survey) => checkMasterKey(config, survey) };
  }
  const { dataDir, databaseUrl } = agentSettings;
  const place = agentPlace(
    readAgentData(
      { [dataDir.flag ?? '']: flags['data-dir'], [databaseUrl.flag ?? '']: flags['database-url'] },
      input.env,
    ),
  );
  // A gateway's secrets are in it only where the two share a PostgreSQL.
  return {
    place,
    checkKey: (survey) =>
      checkMasterKey({ ...readGatewayConfig({}, input.env), databaseUrl: place.databaseUrl }, survey),
  };
}

interface Report {
  result: object;
  line: string;
}

function report(input: CommandInput, asJson: boolean, { result, line }: Report): number {
  input.print(asJson ? JSON.stringify(result) : line);
  return 0;
}

async function runBackup(input: CommandInput, { place }: Subject, file: string): Promise<Report> {
  const done = await backUp(place, file, {
    env: input.env,
    progress: (step) => input.complain(`  ${step} …`),
  });
  const rest =
    place.surface === 'agent'
      ? "Attachments and the workspace are files of the agent's data folder: copy them too."
      : 'Keep the master key elsewhere.';
  return {
    result: done,
    line: `The database is backed up: ${done.file}, ${(done.bytes / 1e6).toFixed(1)} MB. ${rest}`,
  };
}

async function runRestore(input: CommandInput, { place, checkKey }: Subject, file: string): Promise<Report> {
  const done = await restore(place, file, {
    env: input.env,
    progress: (step) => input.complain(`  ${step} …`),
    checkKey,
  });
  const result = {
    file: done.file,
    engine: done.engine,
    master_key: done.masterKey === 'fits' ? 'fits' : 'nothing_sealed',
  };
  const key =
    done.masterKey === 'fits'
      ? 'The master key fits.'
      : 'Nothing in it is sealed, so no master key was needed.';
  return {
    result,
    line: `The database is restored. ${key} Start the ${place.surface}; it brings the database up to date.`,
  };
}

async function migrateHere({ place, checkKey }: Subject): Promise<Report> {
  const served = (await askServer(place, 'db.facts', null)) as DatabaseFacts | undefined;
  if (served !== undefined) {
    return {
      result: { applied: [], pending: served.migrations.pending },
      line: 'A running server holds the database; its start has brought it up to date.',
    };
  }
  requireDatabase(place);
  const { log } = commandLog();
  const { applied } = await withDatabase(place, async (database) => {
    if (place.surface === 'gateway') await checkKey(await envStore(database).survey());
    return migrate(database, { ...place.migrations, log });
  });
  return {
    result: { applied },
    line: applied.length === 0 ? 'The database is up to date.' : `Applied: ${applied.join(', ')}.`,
  };
}
