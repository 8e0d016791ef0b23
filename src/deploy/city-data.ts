// Locates the data of a deployed City for commands that need it.
import { stat } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { cityFolder } from './supervisor/city-folder.ts';
import { readDeclaration } from './declaration.ts';
import { databaseOf, embeddedName } from './plan.ts';

export interface CityData {
  name: string;
  /** The settings that tell its gateway where the data is. */
  settings: { JOURNAL_PATH: string } & ({ DATABASE_PATH: string } | { DATABASE_URL: string });
}

/**
 * The data of the City that was last deployed from a folder; null when nothing was deployed from it. `env` is
 * the environment of its deployment.
 */
export async function cityData(
  directory: string,
  env: Readonly<Record<string, string | undefined>>,
): Promise<CityData | null> {
  // Check this first: cityFolder throws for long paths, which are a problem only in projects.
  if ((await stat(join(resolve(directory), '.townhall/city.json')).catch(() => undefined)) === undefined)
    return null;
  const folder = cityFolder(directory);
  const state = await folder.readState();
  if (state === null) return null;
  // The declaration in the folder may have changed since the deployment.
  const declaration = await readDeclaration(folder.versionPath(state.version));
  const url = env['DATABASE_URL'];
  const database = databaseOf(declaration, url === '' ? undefined : url);
  const journalPath = env['JOURNAL_PATH'] ?? '';
  return {
    name: state.name,
    settings: {
      JOURNAL_PATH: journalPath === '' ? folder.journalPath : journalPath,
      ...(database === null
        ? { DATABASE_PATH: folder.dataPath(embeddedName(declaration)) }
        : { DATABASE_URL: database.url }),
    },
  };
}
