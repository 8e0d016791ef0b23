// The operator's MODELS_FILE: what it may say, and reading it. A file with a fault is refused as a whole, with
// the place named; nothing of it is guessed.
import { readFile } from 'node:fs/promises';
import { compileSchema } from '../../../kernel/contract/schema.ts';
import { SettingError } from '../../../kernel/settings.ts';
import { videoResolutions, type Rates, type Tier } from './rates.ts';
import type { Reasoning } from './reasoning.ts';

export interface ProviderEntry {
  id: string;
  name: string;
  kind: ProviderKind;
  /** Without a trailing slash; absent for local models. The environment may say another (provider-models.ts). */
  base_url?: string;
  /** The environment variable with its key; absent where no key is needed. */
  api_key_env?: string;
  /** `ask`: a streamed call has to ask for its usage. */
  usage: 'ask' | 'none';
  /** The request member that limits the output, where one has to be sent. */
  output_limit_member?: string;
  /** Request members whose use would cost what the rates do not say. */
  unpriced_members: string[];
  /** The foreign formats that it speaks itself, in which a call passes through as it came. */
  formats: PassthroughFormatName[];
  /** The format in which it takes orders for films; absent where it makes none. */
  video_format?: VideoFormat;
}

export type VideoFormat = 'openai' | 'google' | 'xai';
export type ProviderKind = 'openai-compatible' | 'openai' | 'anthropic' | 'google' | 'local';
export type PassthroughFormatName = 'chat' | 'embeddings' | 'responses' | 'messages' | 'rerank';

// What each kind is known for where the file does not say: its address, the formats that it speaks, what it bills
// otherwise than by the tokens of a request, and the member that limits its output.
const kindDefaults: Record<
  ProviderKind,
  Pick<ProviderEntry, 'base_url' | 'formats' | 'video_format' | 'unpriced_members' | 'output_limit_member'>
> = {
  'openai-compatible': { formats: ['chat', 'embeddings'], video_format: 'openai', unpriced_members: [] },
  openai: {
    base_url: 'https://api.openai.com/v1',
    formats: ['chat', 'embeddings', 'responses'],
    video_format: 'openai',
    unpriced_members: ['service_tier', 'web_search_options'],
    output_limit_member: 'max_completion_tokens',
  },
  anthropic: {
    base_url: 'https://api.anthropic.com/v1',
    formats: ['messages'],
    unpriced_members: ['service_tier', 'speed', 'inference_geo', 'container', 'mcp_servers', 'fallbacks'],
    output_limit_member: 'max_tokens',
  },
  google: {
    base_url: 'https://generativelanguage.googleapis.com/v1beta',
    formats: [],
    video_format: 'google',
    unpriced_members: ['serviceTier', 'cachedContent'],
    output_limit_member: 'maxOutputTokens',
  },
  local: { formats: [], unpriced_members: [] },
};

// The words for effort that the packages of these two translate for each of their models.
const translatedEfforts = ['none', 'minimal', 'low', 'medium', 'high', 'xhigh', 'max'];

export type Modality = 'text' | 'stream' | 'openai' | 'image' | 'video' | 'tts' | 'asr' | 'embedding';

export interface ModelEntry {
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
  /** The media that it takes in; undefined when the file does not say. */
  inputs?: string[];
  idle_timeout_s?: number;
  rates: Rates | null;
  tiers: Tier[];
  reasoning?: Reasoning;
  fallbacks: string[];
}

export interface ModelsFile {
  providers: ProviderEntry[];
  models: ModelEntry[];
}

const text = { type: 'string' };
const name = { type: 'string', minLength: 1 };
const identifier = { type: 'string', pattern: '^[a-z0-9][a-z0-9._-]{0,63}$' };
// The contract's ModelId.
const modelId = { type: 'string', pattern: '^[A-Za-z0-9][A-Za-z0-9._:@/-]{0,255}$' };
const member = { type: 'string', pattern: '^[A-Za-z_][A-Za-z0-9_]{0,63}$' };
const count = { type: 'integer', minimum: 1, maximum: Number.MAX_SAFE_INTEGER };
const credits = { type: 'integer', minimum: 0, maximum: Number.MAX_SAFE_INTEGER };
const kinds = [
  'input',
  'cached_input',
  'cache_write',
  'cache_write_1h',
  'output',
  'reasoning',
  'image',
  'video_second',
  ...videoResolutions.map((lines) => `video_second_${lines}`),
  'speech_character',
  'audio_second',
];
const rates = {
  properties: Object.fromEntries(kinds.map((kind) => [kind, credits])),
  additionalProperties: false,
};
// One type list rather than `anyOf`, so that a fault is named where it lies and not as a branch that failed.
const optionalCount = { ...count, type: ['integer', 'null'] };

// The JSON Schema of the file.
const modelsFileSchema = {
  $schema: 'https://json-schema.org/draft/2020-12/schema',
  type: 'object',
  properties: {
    $schema: text,
    providers: {
      type: 'array',
      items: {
        type: 'object',
        required: ['id', 'kind'],
        properties: {
          id: identifier,
          name,
          kind: { type: 'string', pattern: '^(openai-compatible|openai|anthropic|google|local)$' },
          base_url: { type: 'string', pattern: '^https?://' },
          api_key_env: { type: 'string', pattern: '^[A-Z][A-Z0-9_]{0,127}$' },
          usage: { enum: ['ask', 'none'] },
          output_limit_member: member,
          unpriced_members: { type: 'array', items: member },
          formats: {
            type: 'array',
            uniqueItems: true,
            items: { enum: ['chat', 'embeddings', 'responses', 'messages', 'rerank'] },
          },
          video_format: { enum: ['openai', 'google', 'xai'] },
        },
        if: { properties: { kind: { const: 'openai-compatible' } } },
        then: { required: ['base_url'] },
        additionalProperties: false,
      },
    },
    models: {
      type: 'array',
      items: {
        type: 'object',
        required: ['id', 'provider', 'rates'],
        properties: {
          id: modelId,
          name,
          description: text,
          provider: identifier,
          upstream_model: name,
          modalities: {
            type: 'array',
            uniqueItems: true,
            items: { enum: ['text', 'stream', 'openai', 'image', 'video', 'tts', 'asr', 'embedding'] },
          },
          tags: { type: 'array', items: text },
          created: { type: 'integer', minimum: 0 },
          meta: { type: 'object' },
          context_window: optionalCount,
          max_output_tokens: optionalCount,
          inputs: { type: 'array', items: { enum: ['text', 'image', 'audio', 'video', 'file'] } },
          idle_timeout_s: { type: 'integer', minimum: 1, maximum: 3600 },
          rates: { ...rates, type: ['object', 'null'] },
          tiers: {
            type: 'array',
            items: {
              type: 'object',
              required: ['above_input_tokens', 'rates'],
              properties: { above_input_tokens: count, rates: { ...rates, type: 'object' } },
              additionalProperties: false,
            },
          },
          reasoning: {
            type: 'object',
            required: ['efforts', 'default_effort'],
            properties: {
              efforts: {
                type: 'array',
                minItems: 1,
                items: {
                  type: 'object',
                  required: ['id', 'name'],
                  properties: { id: name, name },
                  additionalProperties: false,
                },
              },
              default_effort: name,
            },
            additionalProperties: false,
          },
          fallbacks: { type: 'array', items: modelId },
        },
        additionalProperties: false,
      },
    },
  },
  additionalProperties: false,
} as const;

/** A file that cannot be used. The message names the file's place and what is wrong there, for the operator. */
export class ModelsFileError extends SettingError {
  override readonly name = 'ModelsFileError';
}

/** The file as it may be written, what has a default left out. */
export interface ModelsFileInput {
  providers?: (Partial<ProviderEntry> & Pick<ProviderEntry, 'id' | 'kind'>)[];
  models?: (Partial<ModelEntry> & Pick<ModelEntry, 'id' | 'provider' | 'rates'>)[];
}

export type ModelsFileReader = (
  path: string,
) => Promise<{ text: string; parse(known: ExistingEntries): ModelsFile }>;

/** What the file may refer to without declaring it. */
export interface ExistingEntries {
  /** Those of this process cannot be declared again; all others can. */
  providers: readonly Pick<ProviderEntry, 'id' | 'kind'>[];
  models: readonly string[];
  /** The models that run in this process, by the name that `upstream_model` gives. */
  localModels: readonly string[];
}

/** Makes the reader; the schema is compiled once. Reading throws a ModelsFileError where the file cannot be read. */
export function createModelsFileReader(): ModelsFileReader {
  const check = compileSchema(modelsFileSchema);
  return async (path) => {
    let content: string;
    try {
      content = await readFile(path, 'utf8');
    } catch (error) {
      const reason =
        (error as NodeJS.ErrnoException).code === 'ENOENT' ? 'there is no such file' : 'it cannot be read';
      throw new ModelsFileError(`MODELS_FILE ${path}: ${reason}.`, { cause: error });
    }
    return {
      text: content,
      parse(known) {
        const refuse = (place: string, fault: string): never => {
          throw new ModelsFileError(`MODELS_FILE ${path}: ${place === '' ? '' : `${place}: `}${fault}`);
        };
        let value: unknown;
        try {
          value = JSON.parse(content);
        } catch (error) {
          return refuse('', `is not valid JSON (${(error as Error).message})`);
        }
        const verdict = check(value);
        if (!verdict.ok) {
          const [first] = verdict.details;
          return refuse(first?.path ?? '', first?.message ?? 'is not valid');
        }
        const file = withDefaults(value as ModelsFileInput);
        refuseContradictions(file, known, refuse);
        return file;
      },
    };
  };
}

/** The entries with the default of whatever was left out. */
export function withDefaults(written: ModelsFileInput): ModelsFile {
  return {
    providers: (written.providers ?? []).map((provider) => ({
      name: provider.id,
      usage: 'none',
      ...kindDefaults[provider.kind],
      ...provider,
      ...(provider.base_url === undefined ? {} : { base_url: provider.base_url.replace(/\/+$/, '') }),
    })),
    models: (written.models ?? []).map((model) => ({
      name: model.id,
      description: '',
      // What follows the provider in `acme/fast`, or the whole id.
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

function refuseContradictions(
  file: ModelsFile,
  known: ExistingEntries,
  refuse: (place: string, fault: string) => never,
): void {
  const providers = new Map<string, ProviderEntry['kind']>(known.providers.map(({ id, kind }) => [id, kind]));
  const declared = new Set<string>();
  for (const [index, provider] of file.providers.entries()) {
    const place = `providers[${index}]`;
    if (known.providers.some(({ id, kind }) => id === provider.id && kind === 'local'))
      refuse(`${place}.id`, `"${provider.id}" is built in and cannot be declared`);
    if (declared.has(provider.id)) refuse(`${place}.id`, `"${provider.id}" is declared twice`);
    declared.add(provider.id);
    providers.set(provider.id, provider.kind);
    if (provider.kind === 'local') continue;
    const url = URL.canParse(provider.base_url ?? '') ? new URL(provider.base_url ?? '') : undefined;
    if (
      url === undefined ||
      url.username !== '' ||
      url.password !== '' ||
      url.search !== '' ||
      url.hash !== ''
    ) {
      refuse(`${place}.base_url`, 'must be an http or https address without credentials, query and fragment');
    }
  }
  const models = new Set(file.models.map((model) => model.id));
  const seen = new Set<string>();
  for (const [index, model] of file.models.entries()) {
    const place = `models[${index}]`;
    if (seen.has(model.id)) refuse(`${place}.id`, `"${model.id}" is declared twice`);
    seen.add(model.id);
    const kind = providers.get(model.provider);
    if (kind === undefined) refuse(`${place}.provider`, `there is no provider "${model.provider}"`);
    if (kind === 'local' && !known.localModels.includes(model.upstream_model)) {
      refuse(
        `${place}.upstream_model`,
        known.localModels.length === 0
          ? 'cannot run: LOCAL_MODELS is off'
          : `must be one of ${known.localModels.join(', ')}`,
      );
    }
    const efforts = model.reasoning?.efforts.map((effort) => effort.id) ?? [];
    const unknown =
      kind === 'anthropic' || kind === 'google'
        ? efforts.findIndex((effort) => !translatedEfforts.includes(effort))
        : -1;
    if (unknown >= 0)
      refuse(`${place}.reasoning.efforts[${unknown}].id`, `must be one of ${translatedEfforts.join(', ')}`);
    if (new Set(efforts).size < efforts.length) refuse(`${place}.reasoning.efforts`, 'has an id twice');
    if (model.reasoning && !efforts.includes(model.reasoning.default_effort)) {
      refuse(`${place}.reasoning.default_effort`, `must be one of ${efforts.join(', ')}`);
    }
    for (const [position, fallback] of model.fallbacks.entries()) {
      const exists = fallback !== model.id && (models.has(fallback) || known.models.includes(fallback));
      if (!exists) refuse(`${place}.fallbacks[${position}]`, `there is no other model "${fallback}"`);
    }
  }
}
