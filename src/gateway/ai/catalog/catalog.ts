// The model catalog: all models, the models that can be called now, and their views for users and
// administrators. It is an immutable snapshot that is replaced as a whole, so that a request sees one
// consistent state.
import { existsSync, watch } from 'node:fs';
import { basename, dirname } from 'node:path';
import type { Model, ModelList } from '../../../contract/gateway/types.gen.ts';
import type { Log } from '../../../kernel/log.ts';
import { Problem } from '../../../kernel/problem.ts';
import type { Requirement } from '../../service.ts';
import { catalogFileKind, overlay } from './catalog-document.ts';
import {
  createModelsFileReader,
  ModelsFileError,
  type ExistingEntries,
  type ModelsFileEntry,
  type ModelsFile,
  type ModelsFileReader,
  type Modality,
  type ProviderEntry,
} from './models-file.ts';
import { toModelEntry } from './client-models.ts';
import { hasUsableKey, missingKeys, keyEnvs } from './provider-keys.ts';
import { priceLines } from './rates.ts';

/** A model with the entry of its provider. */
export interface CatalogModel extends ModelsFileEntry {
  providerEntry: ProviderEntry;
}

/** The reader of the catalog. A user may be limited to some models. */
export type Viewer = { kind: 'admin' } | { kind: 'user'; models?: readonly string[] | undefined };

export function viewerOf(identity: { kind: 'guest' | 'user' | 'admin'; models?: readonly string[] }): Viewer {
  return identity.kind === 'admin' ? { kind: 'admin' } : { kind: 'user', models: identity.models };
}

export interface Catalog {
  list(viewer: Viewer): ModelList;
  /** The models of the list, with all data of the catalog. */
  visibleModels(viewer: Viewer): CatalogModel[];
  /** Throws like `get`. */
  find(viewer: Viewer, id: string): CatalogModel;
  /** Throws a 404 for a model that does not exist or that the viewer may not see. */
  get(viewer: Viewer, id: string): Model;
  /** Throws a 404 for a model that cannot be called now, and a 422 for one without the modality. */
  callableModel(viewer: Viewer, id: string, modality?: Modality): CatalogModel;
  /**
   * The model, then its fallbacks that can be called with the modality now. Throws like `callableModel` for
   * the model; leaves out a fallback that cannot be called.
   */
  chain(viewer: Viewer, id: string, modality?: Modality): CatalogModel[];
  /** All models that the viewer can call with the modality now. */
  callableModels(viewer: Viewer, modality: Modality): CatalogModel[];
  /** Every model, whether it can be called or not. */
  all(): CatalogModel[];
  /** The environment variables that the providers need, each key once. */
  requirements(): Requirement[];
  close(): void;
}

export interface CatalogOptions {
  env: { get(key: string): string | undefined };
  /** The models that run in this process. */
  builtin: ModelsFile;
  /** The models of every gateway. The operator's file can replace a provider or model by its id. */
  curated: ModelsFile;
  /**
   * The file that `townhall models update` writes; it need not exist. It replaces curated entries
   * by their id.
   */
  catalogFile?: string | undefined;
  modelsFile: string | undefined;
  log: Log;
}

type Snapshot = ReadonlyMap<string, CatalogModel>;

// Editors and deployments write a file in several steps. A reload waits until the last step is done.
const settleMs = 100;

/** The entries that a models file may refer to without declaring them. */
function existingEntries(builtin: ModelsFile, curated: ModelsFile): ExistingEntries {
  return {
    providers: [...builtin.providers, ...curated.providers],
    models: [...builtin.models, ...curated.models].map((model) => model.id),
    localModels: builtin.models.map((model) => model.upstream_model),
  };
}

interface ModelsFiles {
  builtin: ModelsFile;
  curated: ModelsFile;
  catalogFile?: string | undefined;
  modelsFile?: string | undefined;
}

/** Validates the files. Throws a ModelsFileError if `openCatalog` would. */
export async function checkModelsFiles(files: ModelsFiles): Promise<void> {
  (await createFilesReader(files)()).parse();
}

/**
 * Opens the catalog. Throws a ModelsFileError for an invalid file. If a file becomes invalid later, the last
 * valid entries stay in use.
 */
export async function openCatalog(options: CatalogOptions): Promise<Catalog> {
  return new SnapshotCatalog(options.env, await openSnapshots(options));
}

interface FileContents {
  /** The texts of both files, to detect a change. */
  text: string;
  parse(): Snapshot;
}

/** Reads the catalog file, if it exists, and the models file. */
function createFilesReader({
  builtin,
  curated,
  catalogFile,
  modelsFile,
}: ModelsFiles): () => Promise<FileContents> {
  // The schema is compiled at the first use: most gateways start without a file.
  let readCatalog: ModelsFileReader | undefined;
  let readModels: ModelsFileReader | undefined;
  return async () => {
    const hasCatalog = catalogFile !== undefined && existsSync(catalogFile);
    const catalogSource = hasCatalog
      ? await (readCatalog ??= createModelsFileReader(catalogFileKind))(catalogFile)
      : undefined;
    const modelsSource =
      modelsFile === undefined ? undefined : await (readModels ??= createModelsFileReader())(modelsFile);
    return {
      text: JSON.stringify([catalogSource?.text, modelsSource?.text]),
      parse() {
        const sharedEntries =
          catalogSource === undefined
            ? curated
            : overlay(curated, catalogSource.parse(existingEntries(builtin, curated)));
        const layers = [builtin, sharedEntries];
        if (modelsSource !== undefined)
          layers.push(modelsSource.parse(existingEntries(builtin, sharedEntries)));
        return mergeFiles(layers);
      },
    };
  };
}

interface SnapshotSource {
  current(): Snapshot;
  close(): void;
}

// Reads the files, and reads them again whenever one of them changes.
async function openSnapshots({ log, ...files }: CatalogOptions): Promise<SnapshotSource> {
  const read = createFilesReader(files);
  const contents = await read();
  let currentText = contents.text;
  let snapshot = contents.parse();

  async function reload(): Promise<void> {
    try {
      const next = await read();
      if (next.text === currentText) return;
      currentText = next.text;
      snapshot = next.parse();
      log.info({ models: snapshot.size }, 'models files reloaded');
    } catch (error) {
      log.error({ err: error }, 'a models file is invalid; the last valid entries stay in use');
    }
  }

  if (files.catalogFile !== undefined && !existsSync(dirname(files.catalogFile))) {
    throw new ModelsFileError(
      `MODELS_CATALOG_FILE ${files.catalogFile}: its folder does not exist; create it first.`,
    );
  }
  const paths = [files.catalogFile, files.modelsFile].filter((path) => path !== undefined);
  // Reloads run one after another: otherwise a slow read of older files could replace newer entries.
  let lastReload = Promise.resolve();
  const stopWatching = paths.map((path) =>
    watchFile(path, () => {
      lastReload = lastReload.then(reload);
    }),
  );
  // A file may have changed after it was read and before its watcher started.
  await reload();
  return {
    current: () => snapshot,
    close() {
      for (const stop of stopWatching) stop();
    },
  };
}

/**
 * The catalog on the current snapshot. Keys are looked up at each call, so a new key takes effect at once.
 */
class SnapshotCatalog implements Catalog {
  readonly #env: CatalogOptions['env'];
  readonly #source: SnapshotSource;

  constructor(env: CatalogOptions['env'], source: SnapshotSource) {
    this.#env = env;
    this.#source = source;
  }

  list(viewer: Viewer): ModelList {
    return toModelList(this.visibleModels(viewer), viewer);
  }

  visibleModels(viewer: Viewer): CatalogModel[] {
    return this.all().filter(
      (model) => viewer.kind === 'admin' || (this.#isReady(model) && isAllowed(viewer, model.id)),
    );
  }

  find(viewer: Viewer, id: string): CatalogModel {
    const model = this.#source.current().get(id);
    if (model === undefined || !isAllowed(viewer, id) || (viewer.kind === 'user' && !this.#isReady(model)))
      throw modelNotFound(`There is no model ${id} that you can call; GET /v1/ai/models lists them.`);
    return model;
  }

  get(viewer: Viewer, id: string): Model {
    return toModel(this.find(viewer, id), viewer);
  }

  callableModel(viewer: Viewer, id: string, modality?: Modality): CatalogModel {
    const model = this.find(viewer, id);
    if (!this.#isReady(model))
      throw modelNotFound(
        `The model ${id} cannot be called: ${missingKeys(model.providerEntry, this.#env)}.`,
      );
    if (!hasModality(model, modality)) {
      throw new Problem(
        'impossible',
        'unsupported_by_model',
        `The model ${id} cannot be called in this way; its modalities are ${model.modalities.join(', ')}.`,
        { param: 'model' },
      );
    }
    return model;
  }

  chain(viewer: Viewer, id: string, modality?: Modality): CatalogModel[] {
    const model = this.callableModel(viewer, id, modality);
    const models = this.#source.current();
    const fallbacks = model.fallbacks.flatMap((fallback) => models.get(fallback) ?? []);
    return [model, ...fallbacks.filter((fallback) => this.#isCallable(viewer, fallback, modality))];
  }

  callableModels(viewer: Viewer, modality: Modality): CatalogModel[] {
    return this.all().filter((model) => this.#isCallable(viewer, model, modality));
  }

  all(): CatalogModel[] {
    return [...this.#source.current().values()];
  }

  requirements(): Requirement[] {
    return allRequirements(this.all());
  }

  close(): void {
    this.#source.close();
  }

  #isReady({ providerEntry }: CatalogModel): boolean {
    return hasUsableKey(providerEntry, this.#env);
  }

  #isCallable(viewer: Viewer, model: CatalogModel, modality: Modality | undefined): boolean {
    return this.#isReady(model) && isAllowed(viewer, model.id) && hasModality(model, modality);
  }
}

function modelNotFound(message: string): Problem {
  return new Problem('not_found', 'model_not_found', message, { param: 'model' });
}

function isAllowed(viewer: Viewer, id: string): boolean {
  return viewer.kind === 'admin' || viewer.models === undefined || viewer.models.includes(id);
}

function hasModality(model: CatalogModel, modality: Modality | undefined): boolean {
  return modality === undefined || model.modalities.includes(modality);
}

// An entry of a later file replaces the entry with the same id in an earlier file.
function mergeFiles(files: readonly ModelsFile[]): Snapshot {
  const providers = new Map(
    files.flatMap((file) => file.providers).map((provider) => [provider.id, provider]),
  );
  const models = new Map<string, CatalogModel>();
  for (const model of files.flatMap((file) => file.models)) {
    const providerEntry = providers.get(model.provider);
    if (providerEntry) models.set(model.id, { ...model, providerEntry });
  }
  return models;
}

function requirementsOf(model: CatalogModel): Requirement[] {
  const { name, credentials } = model.providerEntry;
  const envs = keyEnvs(model.providerEntry);
  return envs.map((key) => {
    if (credentials !== undefined)
      return { key, description: `Credentials of the model provider ${name}.`, required: true };
    if (envs.length === 1) return { key, description: `Key of the model provider ${name}.`, required: true };
    return {
      key,
      description: `One of ${envs.length} keys of the model provider ${name}; at least one of them is required.`,
      required: false,
    };
  });
}

// One requirement for each key, with all models that need it.
function allRequirements(models: Iterable<CatalogModel>): Requirement[] {
  const byKey = new Map<string, Requirement>();
  for (const model of models) {
    for (const requirement of requirementsOf(model)) {
      const ids = [...(byKey.get(requirement.key)?.models ?? []), model.id];
      byKey.set(requirement.key, { ...requirement, models: ids });
    }
  }
  return [...byKey.values()];
}

function toModelList(models: readonly CatalogModel[], viewer: Viewer): ModelList {
  return {
    object: 'list',
    items: models.map((model) => toModel(model, viewer)),
    // The same list in the format that OpenAI's clients read.
    data: models.map(toModelEntry),
  };
}

function toModel(model: CatalogModel, viewer: Viewer): Model {
  return {
    id: model.id,
    object: 'model',
    created: model.created,
    owned_by: model.provider,
    name: model.name,
    description: model.description,
    // The released contract has a closed list of modalities without `moderation`; `/v1/models` has it as the
    // type of the model.
    modalities: model.modalities.filter((modality) => modality !== 'moderation'),
    tags: model.tags,
    price: priceLines(model.rates, model.tiers),
    meta: model.meta,
    context_window: model.context_window,
    max_output_tokens: model.max_output_tokens,
    ...(model.inputs === undefined ? {} : { inputs: model.inputs as NonNullable<Model['inputs']> }),
    ...(viewer.kind === 'user' && model.reasoning ? { reasoning: model.reasoning } : {}),
    ...(viewer.kind === 'admin' ? { env_requirements: requirementsOf(model) } : {}),
  };
}

// Watches the folder of the file: most programs replace a file by a rename, and Kubernetes
// swaps a symbolic link beside a mounted file. Returns the function that stops watching.
function watchFile(file: string, onChange: () => void): () => void {
  let timer: NodeJS.Timeout | undefined;
  const watcher = watch(dirname(file), { persistent: false }, (_event, name) => {
    // Names that begin with two dots belong to swaps of links, which may change the file.
    if (name !== null && name !== basename(file) && !name.startsWith('..')) return;
    clearTimeout(timer);
    timer = setTimeout(onChange, settleMs);
    timer.unref();
  });
  // If the folder is removed, the catalog keeps its last entries.
  watcher.on('error', () => watcher.close());
  return () => {
    clearTimeout(timer);
    watcher.close();
  };
}
