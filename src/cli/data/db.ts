// `townhall db migrate|backup|restore`: the care of the gateway's database, on either engine.
import { gatewaySettings, readGatewayConfig } from '../../gateway/config.ts';
import type { GatewayConfig } from '../../gateway/config.ts';
import { envStore } from '../../gateway/env/index.ts';
import { migrate } from '../../kernel/data/database.ts';
import { SettingError } from '../../kernel/settings.ts';
import { backUp, restore } from './backup.ts';
import { parseFlags } from '../command.ts';
import type { Command, CommandInput } from '../command.ts';
import { askServer, checkMasterKey, commandLog, gatewayMigrations, hasDatabase, withDatabase, type GatewayFacts } from './gateway-data.ts';

export const dbCommand: Command = {
  help: () =>
    [
      'Usage: townhall db migrate [OPTIONS]         brings the database up to date, without serving',
      '       townhall db backup FILE [OPTIONS]     writes all of it into one new file, also beside a running server',
      '       townhall db restore FILE [OPTIONS]    puts a backup into an empty database or a folder without one',
      '',
      'A backup holds secrets only as they are sealed: keep the master key apart from it, since without the key a restored',
      'database does not start. A restore tries the key first and changes nothing when it is another one. Images and videos',
      'are files in the storage folder and not part of it. A PostgreSQL needs its programs pg_dump and pg_restore here.',
      '',
      '  --database-path PATH   folder of the embedded database (./data/townhall.db)',
      '  --json                 print the result as JSON',
      '',
      'DATABASE_URL in the environment names a PostgreSQL instead of the folder; TOWNHALL_MASTER_KEY or',
      'TOWNHALL_MASTER_KEY_FILE give the master key, else master.key in the folder is it.',
    ].join('\n'),
  async run(input) {
    const { flags, words } = parseFlags(input.arguments, { flags: ['database-path'], switches: ['json'] });
    const [action, file, ...surplus] = words;
    const config = readGatewayConfig({ [gatewaySettings.databasePath.flag ?? '']: flags['database-path'] }, input.env);
    const asJson = flags['json'] === 'true';
    if (action === 'migrate' && file === undefined) return report(input, asJson, await migrateHere(config));
    if (action === 'backup' && file !== undefined && surplus.length === 0) return report(input, asJson, await runBackup(input, config, file));
    if (action === 'restore' && file !== undefined && surplus.length === 0) return report(input, asJson, await runRestore(input, config, file));
    throw new SettingError('say "townhall db migrate", "townhall db backup FILE" or "townhall db restore FILE"; see --help.');
  },
};

interface Report {
  result: object;
  line: string;
}

function report(input: CommandInput, asJson: boolean, { result, line }: Report): number {
  input.print(asJson ? JSON.stringify(result) : line);
  return 0;
}

async function runBackup(input: CommandInput, config: GatewayConfig, file: string): Promise<Report> {
  const done = await backUp(config, file, { env: input.env, progress: (step) => input.complain(`  ${step} …`) });
  return { result: done, line: `The database is backed up: ${done.file}, ${(done.bytes / 1e6).toFixed(1)} MB. Keep the master key elsewhere.` };
}

async function runRestore(input: CommandInput, config: GatewayConfig, file: string): Promise<Report> {
  const done = await restore(config, file, { env: input.env, progress: (step) => input.complain(`  ${step} …`) });
  const result = { file: done.file, engine: done.engine, master_key: done.masterKey === 'fits' ? 'fits' : 'nothing_sealed' };
  const key = done.masterKey === 'fits' ? 'The master key fits.' : 'Nothing in it is sealed, so no master key was needed.';
  return { result, line: `The database is restored. ${key} Start the gateway; it brings the database up to date.` };
}

async function migrateHere(config: GatewayConfig): Promise<Report> {
  const served = (await askServer(config, 'db.facts', null)) as GatewayFacts | undefined;
  if (served !== undefined) {
    return { result: { applied: [], pending: served.migrations.pending }, line: 'A running server holds the database; its start has brought it up to date.' };
  }
  if (!hasDatabase(config)) throw new Error(`There is no database at ${config.databasePath}; the first start of a gateway makes one.`);
  const { log } = commandLog();
  const { applied } = await withDatabase(config, async (database) => {
    await checkMasterKey(config, await envStore(database).survey());
    return migrate(database, { ...gatewayMigrations, log });
  });
  return { result: { applied }, line: applied.length === 0 ? 'The database is up to date.' : `Applied: ${applied.join(', ')}.` };
}

