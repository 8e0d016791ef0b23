// The models that every gateway has by default; scripts/catalog.ts generates catalog.json.
import catalog from './catalog.json' with { type: 'json' };
import { withDefaults, type ModelsFile, type ModelsFileInput } from './models-file.ts';

/**
 * The entries with their defaults. They are not validated at startup, because a test validates the file
 * against the schema.
 */
export function curatedModels(): ModelsFile {
  return withDefaults(catalog as ModelsFileInput);
}
