// The models that a gateway knows without being told, as scripts/catalog.ts wrote them down.
import written from './catalog.json' with { type: 'json' };
import { withDefaults, type ModelsFile, type ModelsFileInput } from './models-file.ts';

/** The entries, each complete. The file is held against the schema by a test rather than at each start. */
export function curatedModels(): ModelsFile {
  return withDefaults(written as ModelsFileInput);
}
