// The catalog document: providers and models that replace built-in ones. Operators publish it with
// a signature, `townhall models update` writes it to the catalog file, and gateways read that file.
import type { JsonSchema } from '../../../kernel/contract/schema.ts';
import { modelsFileSchema } from './models-file-schema.ts';
import {
  type ExistingEntries,
  type ModelsFile,
  type ModelsFileInput,
  type ModelsFileKind,
  ModelsFileError,
  createModelsParser,
} from './models-file.ts';

/** An entry of the catalog that updates do not change: the whole model, or only its rates. */
export interface Pin {
  id: string;
  member: 'model' | 'price';
}

export interface CatalogDocument extends ModelsFileInput {
  /** When the document was published; an update refuses an older document than its own. */
  published_at?: string;
  /** Only the catalog file has pins: a published document cannot pin anything. */
  pins?: Pin[];
}

const schema: JsonSchema = {
  ...modelsFileSchema,
  properties: {
    ...modelsFileSchema.properties,
    published_at: { type: 'string', pattern: '^\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d(\\.\\d{1,9})?Z$' },
    pins: {
      type: 'array',
      items: {
        type: 'object',
        required: ['id', 'member'],
        properties: {
          id: modelsFileSchema.properties.models.items.properties.id,
          member: { enum: ['model', 'price'] },
        },
        additionalProperties: false,
      },
    },
  },
};

export const catalogFileKind: ModelsFileKind = { setting: 'MODELS_CATALOG_FILE', schema };

/** The entries of all `files`, to which a document or a models file may refer. */
export function entriesOf(...files: readonly ModelsFile[]): ExistingEntries {
  return {
    providers: files.flatMap((file) => file.providers),
    models: files.flatMap((file) => file.models.map((model) => model.id)),
    localModels: [],
  };
}

/** Merges two files. An entry of `upperFile` replaces the entry with the same id in `lowerFile`. */
export function overlay(lowerFile: ModelsFile, upperFile: ModelsFile): ModelsFile {
  return {
    providers: replaceById(lowerFile.providers, upperFile.providers),
    models: replaceById(lowerFile.models, upperFile.models),
  };
}

function replaceById<Entry extends { id: string }>(
  first: readonly Entry[],
  second: readonly Entry[],
): Entry[] {
  return [...new Map([...first, ...second].map((entry) => [entry.id, entry])).values()];
}

/**
 * Parses and checks a document against the built-in catalog. Throws a ModelsFileError whose message
 * begins with `name`.
 */
export function parseCatalogDocument(text: string, name: string, builtIn: ModelsFile): CatalogDocument {
  createModelsParser(schema)(text, name, entriesOf(builtIn));
  const document = JSON.parse(text) as CatalogDocument;
  if (document.published_at !== undefined && Number.isNaN(Date.parse(document.published_at)))
    throw new ModelsFileError(`${name}: published_at: there is no such time as ${document.published_at}`);
  return document;
}
