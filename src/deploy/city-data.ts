// Where the data of a deployed City lies, for the commands that look after data.
import { stat } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { cityFolder } from './city-folder.ts';
import { readDeclaration } from './declaration.ts';
import { databaseOf, embeddedName } from './plan.ts';

export interface CityData {
  name: string;
  /** The settings of its gateway that say where the data is: one of the two. */
  settings: { DATABASE_PATH: string } | { DATABASE_URL: string };
}

/** The data of the City that was deployed from a folder last; null when none was. `env` is that of its deployment. */
export async function cityData(
  directory: string,
  env: Readonly<Record<string, string | undefined>>,
): Promise<CityData | null> {
  // Most folders are no project, and their paths may be as long as they like.
  if ((await stat(join(resolve(directory), '.townhall/city.json')).catch(() => undefined)) === undefined)
    return null;
  const folder = cityFolder(directory);
  const state = await folder.readState();
  if (state === null) return null;
  // As it was deployed, and not as it may be by now.
  const declaration = await readDeclaration(folder.versionPath(state.version));
  const url = env['DATABASE_URL'];
  const database = databaseOf(declaration, url === '' ? undefined : url);
  return {
    name: state.name,
    settings:
      database === null
        ? { DATABASE_PATH: folder.dataPath(embeddedName(declaration)) }
        : { DATABASE_URL: database.url },
  };
}
