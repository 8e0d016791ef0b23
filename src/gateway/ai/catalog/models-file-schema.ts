// The JSON Schema of the operator's MODELS_FILE.
import { providerKinds } from '../providers/adapters.ts';
import { passthroughFormatNames, videoFormats } from '../providers/adapter/provider-adapter.ts';
import { credentialSchemas, environmentKey } from './credentials.ts';
import { maxKeysAtEndpoints } from './provider-keys.ts';
import { videoResolutions } from './rates.ts';

const text = { type: 'string' };
const name = { type: 'string', minLength: 1 };
const identifier = { type: 'string', pattern: '^[a-z0-9][a-z0-9._-]{0,63}$' };
// The same as ModelId of the contract.
const modelId = { type: 'string', pattern: '^[A-Za-z0-9][A-Za-z0-9._:@/-]{0,255}$' };
const member = { type: 'string', pattern: '^[A-Za-z_][A-Za-z0-9_]{0,63}$' };
const count = { type: 'integer', minimum: 1, maximum: Number.MAX_SAFE_INTEGER };
const credits = { type: 'integer', minimum: 0, maximum: Number.MAX_SAFE_INTEGER };
const weight = { type: 'integer', minimum: 1, maximum: 1000 };
const rateKinds = [
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
  properties: Object.fromEntries(rateKinds.map((kind) => [kind, credits])),
  additionalProperties: false,
};
// A list of types instead of `anyOf`, because errors of `anyOf` name a branch and not the invalid value.
const optionalCount = { ...count, type: ['integer', 'null'] };

// Conditions instead of `oneOf`, because errors of `oneOf` name a branch and not the invalid value.
const credentialsSchema = {
  type: 'object',
  required: ['type'],
  properties: { type: { enum: Object.keys(credentialSchemas) } },
  allOf: Object.entries(credentialSchemas).map(([type, schema]) => ({
    if: { required: ['type'], properties: { type: { const: type } } },
    then: schema,
  })),
};

/** The JSON Schema of MODELS_FILE. */
export const modelsFileSchema = {
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
          kind: { type: 'string', pattern: `^(${providerKinds.join('|')})$` },
          base_url: { type: 'string', pattern: '^https?://' },
          api_key_env: environmentKey,
          keys: {
            type: 'array',
            minItems: 1,
            maxItems: maxKeysAtEndpoints,
            items: {
              type: 'object',
              required: ['env'],
              properties: { env: environmentKey, weight },
              additionalProperties: false,
            },
          },
          endpoints: {
            type: 'array',
            minItems: 1,
            maxItems: maxKeysAtEndpoints,
            items: {
              type: 'object',
              required: ['base_url'],
              properties: {
                base_url: { type: 'string', pattern: '^https?://' },
                weight,
                api_key_env: environmentKey,
              },
              additionalProperties: false,
            },
          },
          // The adapter of the kind decides which of these it needs.
          region: { type: 'string', pattern: '^[a-z0-9-]{1,32}$' },
          resource: { type: 'string', pattern: '^[A-Za-z0-9-]{1,64}$' },
          project: { type: 'string', pattern: '^[a-z0-9.:-]{1,64}$' },
          location: { type: 'string', pattern: '^[a-z0-9-]{1,32}$' },
          credentials: credentialsSchema,
          usage: { enum: ['ask', 'none'] },
          output_limit_member: member,
          unpriced_members: { type: 'array', items: member },
          formats: {
            type: 'array',
            uniqueItems: true,
            items: { enum: passthroughFormatNames },
          },
          video_format: { enum: videoFormats },
        },
        if: {
          properties: { kind: { const: 'openai-compatible' } },
          not: { required: ['endpoints'] },
        },
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
            items: {
              enum: ['text', 'stream', 'openai', 'image', 'video', 'tts', 'asr', 'embedding', 'moderation'],
            },
          },
          tags: { type: 'array', items: text },
          created: { type: 'integer', minimum: 0 },
          meta: { type: 'object' },
          context_window: optionalCount,
          max_output_tokens: optionalCount,
          inputs: { type: 'array', items: { enum: ['text', 'image', 'audio', 'video', 'file'] } },
          covered_options: { type: 'array', uniqueItems: true, items: member },
          idle_timeout_s: { type: 'integer', minimum: 1, maximum: 3600 },
          first_content_s: { type: 'integer', minimum: 1, maximum: 600 },
          min_bytes_per_s: { type: 'integer', minimum: 1, maximum: 10_000 },
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
          route_by: { enum: ['weight', 'price', 'latency'] },
          weight,
        },
        additionalProperties: false,
      },
    },
  },
  additionalProperties: false,
} as const;
