// Which gateway's data a command is about: that of the City that was deployed from this folder, else what the
// environment and the options say.
import { cityData } from '../../deploy/index.ts';
import { readGatewayConfig } from '../../gateway/config.ts';
import type { GatewayConfig } from '../../gateway/config.ts';
import type { CommandInput } from '../command-line/command.ts';

/** For the help of the commands. */
export const hereHelp = [
  'DATABASE_URL in the environment names a PostgreSQL instead of the folder. In the folder of a deployed project it is',
  'the database of its City, unless --database-path or DATABASE_PATH says otherwise; give the environment of the deployment.',
];

/** Reads the settings as `townhall gateway` does, and says on standard error when they are those of a City. */
export async function gatewayConfigHere(
  flags: Readonly<Record<string, string | undefined>>,
  { env, complain }: Pick<CommandInput, 'env' | 'complain'>,
): Promise<GatewayConfig> {
  const isNamed = flags['database-path'] !== undefined || (env['DATABASE_PATH'] ?? '') !== '';
  const city = isNamed ? null : await cityData('.', env);
  if (city === null) return readGatewayConfig(flags, env);
  complain(`This is about ${city.name}, which was deployed from this folder.`);
  const { DATABASE_URL: _url, ...rest } = env;
  return readGatewayConfig(flags, { ...rest, ...city.settings });
}
