// Opens the catalog file for a command. A new content is written only after a check that a gateway with
// these settings would start with it.
import {
  curatedModels,
  readCatalogFile,
  requireModelsFiles,
  writeCatalogFile,
  type CatalogDocument,
} from '../../gateway/ai/index.ts';
import { catalogFile, gatewaySettings, type GatewayConfig } from '../../gateway/config.ts';
import { assetPath } from '../../kernel/assets.ts';
import { systemClock } from '../../kernel/clock.ts';
import { errorText } from '../../kernel/error-text.ts';
import { SettingError } from '../../kernel/settings.ts';
import { settingOption, type CommandContext } from '../command-line/command.ts';
import { dataOptions, readConfigHere } from '../data/gateway-config.ts';

export const catalogOptions = {
  'models-catalog-file': settingOption(gatewaySettings.modelsCatalogFile, 'FILE'),
  'models-file': settingOption(gatewaySettings.modelsFile, 'FILE'),
  ...dataOptions,
};

export interface CatalogStore {
  file: string;
  config: GatewayConfig;
  builtIn: ReturnType<typeof curatedModels>;
  current: CatalogDocument | undefined;
  /** Writes a new content and keeps the previous one for a rollback. */
  replace(next: CatalogDocument): Promise<void>;
  /** Writes a change of pins, which a rollback does not undo. */
  amend(next: CatalogDocument): Promise<void>;
}

/** Throws a SettingError when there is no catalog file in the settings, or an invalid one. */
export async function openCatalogStore(
  flags: Readonly<Record<string, string | undefined>>,
  context: Pick<CommandContext, 'env' | 'printError'>,
): Promise<CatalogStore> {
  const config = await readConfigHere(flags, context);
  const file = catalogFile(config);
  if (file === undefined)
    throw new SettingError(
      'With DATABASE_URL, set MODELS_CATALOG_FILE to a file that every gateway reads, such as one in a shared folder.',
    );
  const builtIn = curatedModels();
  const current = await readCatalogFile(file, builtIn);
  const check = (path: string) => requireUsable(path, config);
  return {
    file,
    config,
    builtIn,
    current,
    replace: (next) => writeCatalogFile(file, { next, current, keepsFormer: true, check }),
    amend: (next) => writeCatalogFile(file, { next, current, keepsFormer: false, check }),
  };
}

async function requireUsable(path: string, { modelsFile }: GatewayConfig): Promise<void> {
  const guideDirectory = assetPath('docs/guides');
  try {
    await requireModelsFiles({ catalogFile: path, modelsFile, clock: systemClock, guideDirectory });
  } catch (error) {
    throw new Error(`A gateway would not start with this catalog: ${errorText(error)} Nothing was changed.`, {
      cause: error,
    });
  }
}
