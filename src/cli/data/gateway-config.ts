// Selects the gateway's data for a command: the data of the City deployed from this folder, or the data
// that the options and the environment name.
import { cityData } from '../../deploy/index.ts';
import { gatewaySettings, readGatewayConfig } from '../../gateway/config.ts';
import type { GatewayConfig } from '../../gateway/config.ts';
import { jsonOption, settingOption, type CommandContext } from '../command-line/command.ts';

/** The options of every command about a gateway's data. */
export const dataOptions = {
  'database-path': settingOption(gatewaySettings.databasePath, 'PATH'),
  json: jsonOption,
};

/** Notes for the help of these commands. */
export const dataNotes: readonly string[] = [
  'DATABASE_URL in the environment names a PostgreSQL instead of the folder. In the folder of a deployed project the',
  'command uses the database of its City, unless --database-path or DATABASE_PATH is given; run it with the environment',
  'of the deployment.',
];

/**
 * Reads the settings like `townhall gateway`. Prints a line to standard error when it uses the settings of
 * a City.
 */
export async function readConfigHere(
  flags: Readonly<Record<string, string | undefined>>,
  { env, printError }: Pick<CommandContext, 'env' | 'printError'>,
): Promise<GatewayConfig> {
  const isPathSet = flags['database-path'] !== undefined || (env['DATABASE_PATH'] ?? '') !== '';
  const city = isPathSet ? null : await cityData('.', env);
  if (city === null) return readGatewayConfig(flags, env);
  printError(`Using the data of the City ${city.name}, deployed from this folder.`);
  const { DATABASE_URL: _url, ...rest } = env;
  return readGatewayConfig(flags, { ...rest, ...city.settings });
}
