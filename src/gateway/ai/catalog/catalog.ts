// The catalog: which models there are, which of them can be called now, and how a user and an administrator see
// them. It is a snapshot that is replaced as a whole, so that one request never sees two states of it.
import { watch } from 'node:fs';
import { basename, dirname } from 'node:path';
import type { Model, ModelList } from '../../../contract/gateway/types.gen.ts';
import type { Log } from '../../../kernel/log.ts';
import { Problem } from '../../../kernel/problem.ts';
import type { Requirement } from '../../service.ts';
import {
  createModelsFileReader,
  type ExistingEntries,
  type ModelEntry,
  type ModelsFile,
  type Modality,
  type ProviderEntry,
} from './models-file.ts';
import { priceLines } from './rates.ts';

/** A model and the provider that runs it. */
export interface CatalogModel extends ModelEntry {
  providerEntry: ProviderEntry;
}

/** Whose eyes the catalog is seen with; a user may be held to some models. */
export type Viewer = { kind: 'admin' } | { kind: 'user'; models?: readonly string[] | undefined };

/** The view of who is asking. */
export function viewerOf(identity: { kind: 'guest' | 'user' | 'admin'; models?: readonly string[] }): Viewer {
  return identity.kind === 'admin' ? { kind: 'admin' } : { kind: 'user', models: identity.models };
}

export interface Catalog {
  list(view: Viewer): ModelList;
  /** Throws a 404 for a model that is not there, or that this view does not show. */
  get(view: Viewer, id: string): Model;
  /** The model, ready to be called in this way. Throws 404 for a model that cannot be called now, 422 for the wrong way. */
  callableModel(view: Viewer, id: string, modality?: Modality): CatalogModel;
  /** The model as `callable` gives it, then those of its fallbacks that can be called in the same way now. */
  chain(view: Viewer, id: string, modality?: Modality): CatalogModel[];
  /** All models of the view that can be called in this way now. */
  callableModels(view: Viewer, modality: Modality): CatalogModel[];
  /** Every model, whether it can be called or not. */
  all(): CatalogModel[];
  /** What the providers of all models ask of the environment, each key once. */
  requirements(): Requirement[];
  close(): void;
}

export interface CatalogNeeds {
  env: { get(key: string): string | undefined };
  /** What runs in this process. */
  builtin: ModelsFile;
  /** What every gateway knows; the operator's file may replace a provider or a model of the same id. */
  curated: ModelsFile;
  modelsFile: string | undefined;
  log: Log;
}

type Snapshot = ReadonlyMap<string, CatalogModel>;

// Editors and deployments touch a file several times in a row; one reading is enough.
const settleMs = 100;

/** What a models file may refer to without declaring it. */
function knownEntries(builtin: ModelsFile, curated: ModelsFile): ExistingEntries {
  return {
    providers: [...builtin.providers, ...curated.providers],
    models: [...builtin.models, ...curated.models].map((model) => model.id),
    localModels: builtin.models.map((model) => model.upstream_model),
  };
}

/** Reads a models file and drops it. Throws a ModelsFileError when `openCatalog` would. */
export async function checkModelsFile(path: string, builtin: ModelsFile, curated: ModelsFile): Promise<void> {
  (await createModelsFileReader()(path)).parse(knownEntries(builtin, curated));
}

/** Reads the catalog. Throws a ModelsFileError when the file is bad now; a change to a bad one later keeps what stands. */
export async function openCatalog(needs: CatalogNeeds): Promise<Catalog> {
  const { env, builtin, curated, modelsFile, log } = needs;
  const known = knownEntries(builtin, curated);
  let snapshot = merged([builtin, curated]);
  let stopWatching = () => {};

  if (modelsFile !== undefined) {
    const read = createModelsFileReader();
    const first = await read(modelsFile);
    let current = first.text;
    snapshot = merged([builtin, curated, first.parse(known)]);
    stopWatching = onChange(modelsFile, async () => {
      try {
        const next = await read(modelsFile);
        if (next.text === current) return;
        current = next.text;
        snapshot = merged([builtin, curated, next.parse(known)]);
        log.info({ models: snapshot.size }, 'models file read again');
      } catch (error) {
        log.error({ err: error }, 'models file refused; the last good one stays');
      }
    });
  }

  function ready(model: CatalogModel): boolean {
    const key = model.providerEntry.api_key_env;
    return key === undefined || (env.get(key) ?? '') !== '';
  }

  const allows = (view: Viewer, id: string): boolean =>
    view.kind === 'admin' || view.models === undefined || view.models.includes(id);

  function find(view: Viewer, id: string): CatalogModel {
    const model = snapshot.get(id);
    if (model === undefined || !allows(view, id) || (view.kind === 'user' && !ready(model))) {
      throw new Problem(
        'not_found',
        'model_not_found',
        `There is no model ${id} that you can call; GET /v1/ai/models lists them.`,
        { param: 'model' },
      );
    }
    return model;
  }

  function callableModel(view: Viewer, id: string, modality?: Modality): CatalogModel {
    const model = find(view, id);
    if (!ready(model)) {
      throw new Problem(
        'not_found',
        'model_not_found',
        `The model ${id} cannot be called: ${model.providerEntry.api_key_env} is not set.`,
        { param: 'model' },
      );
    }
    if (!isCalledBy(model, modality)) {
      throw new Problem(
        'impossible',
        'unsupported_by_model',
        `The model ${id} cannot be called in this way; its modalities are ${model.modalities.join(', ')}.`,
        {
          param: 'model',
        },
      );
    }
    return model;
  }

  return {
    list(view) {
      const shown = [...snapshot.values()].filter(
        (model) => view.kind === 'admin' || (ready(model) && allows(view, model.id)),
      );
      return {
        object: 'list',
        items: shown.map((model) => item(model, view)),
        data: shown.map(({ id, created, provider }) => ({
          id,
          object: 'model',
          created,
          owned_by: provider,
        })),
      };
    },
    get: (view, id) => item(find(view, id), view),
    callableModel,
    chain(view, id, modality) {
      const model = callableModel(view, id, modality);
      const fallbacks = model.fallbacks.flatMap((fallback) => snapshot.get(fallback) ?? []);
      return [
        model,
        ...fallbacks.filter(
          (fallback) => ready(fallback) && allows(view, fallback.id) && isCalledBy(fallback, modality),
        ),
      ];
    },
    callableModels: (view, modality) =>
      [...snapshot.values()].filter(
        (model) => ready(model) && allows(view, model.id) && isCalledBy(model, modality),
      ),
    all: () => [...snapshot.values()],
    requirements() {
      const byKey = new Map<string, Requirement>();
      for (const model of snapshot.values()) {
        for (const requirement of requirementsOf(model)) {
          const models = [...(byKey.get(requirement.key)?.models ?? []), model.id];
          byKey.set(requirement.key, { ...requirement, models });
        }
      }
      return [...byKey.values()];
    },
    close: () => stopWatching(),
  };
}

function isCalledBy(model: CatalogModel, modality: Modality | undefined): boolean {
  return modality === undefined || model.modalities.includes(modality);
}

// A later file wins over an earlier one.
function merged(files: readonly ModelsFile[]): Snapshot {
  const providers = new Map(
    files.flatMap((file) => file.providers).map((provider) => [provider.id, provider]),
  );
  const models = new Map<string, CatalogModel>();
  for (const model of files.flatMap((file) => file.models)) {
    const by = providers.get(model.provider);
    if (by) models.set(model.id, { ...model, providerEntry: by });
  }
  return models;
}

function requirementsOf(model: CatalogModel): Requirement[] {
  const { api_key_env: key, name } = model.providerEntry;
  return key === undefined
    ? []
    : [{ key, description: `Key of the model provider ${name}.`, required: true }];
}

function item(model: CatalogModel, view: Viewer): Model {
  return {
    id: model.id,
    object: 'model',
    created: model.created,
    owned_by: model.provider,
    name: model.name,
    description: model.description,
    modalities: model.modalities,
    tags: model.tags,
    price: priceLines(model.rates, model.tiers),
    meta: model.meta,
    context_window: model.context_window,
    max_output_tokens: model.max_output_tokens,
    ...(view.kind === 'user' && model.reasoning ? { reasoning: model.reasoning } : {}),
    ...(view.kind === 'admin' ? { env_requirements: requirementsOf(model) } : {}),
  };
}

// The folder is watched and not the file, because most programs replace a file by renaming another over it, and
// mounted configuration is swapped by a link beside it. Every event of the folder counts; the reader compares content.
function onChange(file: string, changed: () => Promise<void>): () => void {
  let timer: NodeJS.Timeout | undefined;
  let reading = Promise.resolve();
  const watcher = watch(dirname(file), { persistent: false }, (_event, name) => {
    // A name in another folder's swap says nothing about our file; only plainly foreign files are passed over.
    if (name !== null && name !== basename(file) && !name.startsWith('..')) return;
    clearTimeout(timer);
    timer = setTimeout(() => {
      reading = reading.then(changed);
    }, settleMs);
    timer.unref();
  });
  // A folder that goes away ends the watching, not the server; the last good catalog stays.
  watcher.on('error', () => watcher.close());
  return () => {
    clearTimeout(timer);
    watcher.close();
  };
}
