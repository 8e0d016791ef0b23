// Stops what a City serves, for `townhall city stop` and `townhall deploy --stop`.
import { supervisorClient, type CityFolder } from '../../deploy/index.ts';
import type { CommandContext } from '../command-line/command.ts';

/** Returns the exit code, which is 0 even if nothing was running. */
export async function stopCity(
  folder: CityFolder,
  { print, isJson }: Pick<CommandContext, 'print'> & { isJson: boolean },
): Promise<number> {
  const isStopped = await supervisorClient(folder).stop();
  if (isJson) print(JSON.stringify({ stopped: isStopped }));
  else print(isStopped ? 'Stopped.' : 'Nothing is running.');
  return 0;
}
