// Reads files of providers and models, such as the operator's MODELS_FILE. An invalid file is
// rejected as a whole, with the path of the first invalid value.
import { readFile } from 'node:fs/promises';
import { compileSchema, type JsonSchema } from '../../../kernel/contract/schema.ts';
import { isMissing } from '../../../kernel/file-errors.ts';
import { SettingError } from '../../../kernel/settings.ts';
import { adapterOfKind, type ProviderKind } from '../providers/adapters.ts';
import type {
  AddressMembers,
  PassthroughFormatName,
  VideoFormat,
} from '../providers/adapter/provider-adapter.ts';
import { modelsFileSchema } from './models-file-schema.ts';
import type { ProviderKeys } from './provider-keys.ts';
import { checkAccess, withAddresses } from './provider-rules.ts';
import type { Rates, Tier } from './rates.ts';
import type { Reasoning } from './reasoning.ts';

export interface ProviderEntry extends ProviderKeys, AddressMembers {
  id: string;
  name: string;
  kind: ProviderKind;
  /**
   * The base URL without a trailing slash; absent for local models. An environment variable can
   * replace it (`baseUrlKey`).
   */
  base_url?: string;
  /**
   * `ask`: streamed calls of the chat format request their usage (`stream_options.include_usage`).
   */
  usage: 'ask' | 'none';
  /** The request member that limits the output, if a limit has to be sent. */
  output_limit_member?: string;
  /** Request members whose cost is not in the rates; requests with them are refused. */
  unpriced_members: string[];
  /** The formats that the provider supports itself; calls in them pass through unchanged. */
  formats: PassthroughFormatName[];
  /** The format of its asynchronous video jobs; absent if it has none. */
  video_format?: VideoFormat;
}

export type Modality =
  | 'text'
  | 'stream'
  | 'openai'
  | 'image'
  | 'video'
  | 'tts'
  | 'asr'
  | 'embedding'
  | 'moderation';

export interface ModelsFileEntry {
  id: string;
  name: string;
  description: string;
  provider: string;
  upstream_model: string;
  modalities: Modality[];
  tags: string[];
  created: number;
  meta: Record<string, unknown>;
  context_window: number | null;
  max_output_tokens: number | null;
  /** The media types that the model accepts; undefined if the file does not name them. */
  inputs?: string[];
  idle_timeout_s?: number;
  /**
   * A streamed call without content after this time is sent to another key, endpoint or model, if
   * one is left.
   */
  first_content_s?: number;
  /** A stream is aborted if its text arrives more slowly than this after the first content. */
  min_bytes_per_s?: number;
  /**
   * Options of images and videos that do not change the price, or whose most expensive value the rates
   * already cover.
   */
  covered_options?: string[];
  rates: Rates | null;
  tiers: Tier[];
  reasoning?: Reasoning;
  fallbacks: string[];
  /**
   * How the model and its fallbacks are ordered for each call; absent: the model first, then its
   * fallbacks.
   */
  route_by?: 'weight' | 'price' | 'latency';
  /** Its share of the calls when a chain is ordered by weight; 1 by default. */
  weight?: number;
}

export interface ModelsFile {
  providers: ProviderEntry[];
  models: ModelsFileEntry[];
}

/**
 * The models file is invalid. The message names the file, the path of the invalid
 * value and the error, for the operator.
 */
export class ModelsFileError extends SettingError {
  override readonly name = 'ModelsFileError';
}

/** The file before defaults are applied. */
export interface ModelsFileInput {
  providers?: (Partial<ProviderEntry> & Pick<ProviderEntry, 'id' | 'kind'>)[];
  models?: (Partial<ModelsFileEntry> & Pick<ModelsFileEntry, 'id' | 'provider' | 'rates'>)[];
}

export type ModelsFileReader = (
  path: string,
) => Promise<{ text: string; parse(existing: ExistingEntries): ModelsFile }>;

/** The entries that the file may refer to without declaring them. */
export interface ExistingEntries {
  /** Providers of the kind `local` cannot be declared again; the file may replace all others. */
  providers: readonly Pick<ProviderEntry, 'id' | 'kind'>[];
  models: readonly string[];
  /** The names of local models, as in `upstream_model`. */
  localModels: readonly string[];
}

/** A file with providers and models: the operator's, or the catalog that updates write. */
export interface ModelsFileKind {
  /** The setting with its path; errors name it. */
  setting: string;
  schema: JsonSchema;
}

const operatorFile: ModelsFileKind = { setting: 'MODELS_FILE', schema: modelsFileSchema };

/** Compiles the schema once. Reading and parsing throw a ModelsFileError. */
export function createModelsFileReader(kind: ModelsFileKind = operatorFile): ModelsFileReader {
  const parse = createModelsParser(kind.schema);
  return async (path) => {
    const name = `${kind.setting} ${path}`;
    const text = await readText(path, name);
    return { text, parse: (existing) => parse(text, name, existing) };
  };
}

async function readText(path: string, name: string): Promise<string> {
  try {
    return await readFile(path, 'utf8');
  } catch (error) {
    const reason = isMissing(error) ? 'there is no such file' : 'it cannot be read';
    throw new ModelsFileError(`${name}: ${reason}.`, { cause: error });
  }
}

export type ModelsParser = (text: string, name: string, existing: ExistingEntries) => ModelsFile;

/**
 * Compiles the schema and returns a parser for its files. The parser throws a ModelsFileError whose message
 * begins with the name of the file.
 */
export function createModelsParser(schema: JsonSchema): ModelsParser {
  const check = compileSchema(schema);
  return (text, name, existing) => {
    const refuse: Refuse = (valuePath, reason) => {
      throw new ModelsFileError(`${name}: ${valuePath === '' ? '' : `${valuePath}: `}${reason}`);
    };
    let value: unknown;
    try {
      value = JSON.parse(text);
    } catch (error) {
      return refuse('', `is not valid JSON (${(error as Error).message})`);
    }
    const result = check(value);
    if (!result.ok) {
      const [firstDetail] = result.details;
      return refuse(firstDetail?.path ?? '', firstDetail?.message ?? 'is not valid');
    }
    const file = withDefaults(value as ModelsFileInput);
    checkProviders(file, existing, refuse);
    checkModels(file, existing, refuse);
    return file;
  };
}

/** Fills in the defaults. */
export function withDefaults(input: ModelsFileInput): ModelsFile {
  return {
    providers: (input.providers ?? []).map((provider) => ({
      name: provider.id,
      // Without usage a streamed call is charged by the gateway's own count, which
      // misses hidden reasoning.
      usage: 'ask',
      ...adapterOfKind(provider.kind).defaults,
      ...withAddresses(provider),
    })),
    models: (input.models ?? []).map((model) => ({
      name: model.id,
      description: '',
      // `fast` for `acme/fast`; an id without a slash is used as it is.
      upstream_model: model.id.slice(model.id.indexOf('/') + 1),
      modalities: ['text', 'stream', 'openai'],
      tags: [],
      created: 0,
      meta: {},
      context_window: null,
      max_output_tokens: null,
      tiers: [],
      fallbacks: [],
      ...model,
    })),
  };
}

type Refuse = (valuePath: string, reason: string) => never;

function checkProviders(file: ModelsFile, existing: ExistingEntries, refuse: Refuse): void {
  const ids = new Set<string>();
  for (const [index, provider] of file.providers.entries()) {
    const { id } = provider;
    const path = `providers[${index}]`;
    if (existing.providers.some((provider) => provider.id === id && isLocal(provider.kind)))
      refuse(`${path}.id`, `"${id}" is built in and cannot be declared`);
    if (ids.has(id)) refuse(`${path}.id`, `"${id}" is declared twice`);
    ids.add(id);
    checkAccess(provider, (member, reason) => refuse(`${path}.${member}`, reason));
  }
}

function isLocal(kind: ProviderKind): boolean {
  return adapterOfKind(kind).isLocal === true;
}

function checkModels(file: ModelsFile, existing: ExistingEntries, refuse: Refuse): void {
  const providerKinds = new Map(
    [...existing.providers, ...file.providers].map(({ id, kind }): [string, ProviderKind] => [id, kind]),
  );
  const allIds = new Set([...existing.models, ...file.models.map(({ id }) => id)]);
  const ids = new Set<string>();
  for (const [index, model] of file.models.entries()) {
    const path = `models[${index}]`;
    if (ids.has(model.id)) refuse(`${path}.id`, `"${model.id}" is declared twice`);
    ids.add(model.id);
    const kind = providerKinds.get(model.provider);
    if (kind === undefined) refuse(`${path}.provider`, `there is no provider "${model.provider}"`);
    if (kind !== undefined && isLocal(kind) && !existing.localModels.includes(model.upstream_model)) {
      refuse(
        `${path}.upstream_model`,
        existing.localModels.length === 0
          ? 'cannot run: LOCAL_MODELS is off'
          : `must be one of ${existing.localModels.join(', ')}`,
      );
    }
    checkReasoning(model, kind, (member, reason) => refuse(`${path}.reasoning.${member}`, reason));
    if (model.route_by !== undefined && model.fallbacks.length === 0)
      refuse(`${path}.route_by`, 'has no effect without `fallbacks`, from which it chooses');
    for (const [position, fallback] of model.fallbacks.entries()) {
      if (fallback === model.id || !allIds.has(fallback))
        refuse(`${path}.fallbacks[${position}]`, `there is no other model "${fallback}"`);
    }
  }
}

function checkReasoning(
  { reasoning }: ModelsFileEntry,
  kind: ProviderKind | undefined,
  refuse: Refuse,
): void {
  if (reasoning === undefined) return;
  const efforts = reasoning.efforts.map((effort) => effort.id);
  const supportedEfforts = kind && adapterOfKind(kind).efforts;
  const unknownIndex =
    supportedEfforts === undefined ? -1 : efforts.findIndex((effort) => !supportedEfforts.includes(effort));
  if (supportedEfforts !== undefined && unknownIndex >= 0)
    refuse(`efforts[${unknownIndex}].id`, `must be one of ${supportedEfforts.join(', ')}`);
  if (new Set(efforts).size < efforts.length) refuse('efforts', 'has an id twice');
  if (!efforts.includes(reasoning.default_effort))
    refuse('default_effort', `must be one of ${efforts.join(', ')}`);
}
