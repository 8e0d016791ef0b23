// Converts a chat-completions request to a call of the hub, for models whose provider does
// not support the format. A member that the hub cannot express is rejected, never ignored.
import type {
  ChatCompletionRequest,
  ChatFunctionTool,
  ChatSchemaFormat,
  ChatTool,
  ChatToolChoice,
} from '../../../../contract/gateway/types.gen.ts';
import type { ProviderEntry } from '../../catalog/models-file.ts';
import type { ModelCall } from '../../hub/language-model.ts';
import { providerOptionsFor } from '../../providers/provider-options.ts';
import { labelMembers } from './dropped-members.ts';
import { invalidMember } from '../translation/members.ts';
import { cacheMarkOf } from '../translation/cache-mark.ts';
import { toPrompt } from './prompt.ts';
import { unsupportedMember } from '../../hub/problems.ts';

export interface ModelCallOptions {
  /** The provider of the called model. */
  provider: ProviderEntry;
  effort: string | undefined;
  signal: AbortSignal;
}

/** Throws a 400 for a missing or invalid member and a 422 for one that the model does not support. */
export function toModelCall(
  body: ChatCompletionRequest,
  { provider, effort, signal }: ModelCallOptions,
): ModelCall {
  refuseUnsupported(body);
  const format = toResponseFormat(body.response_format ?? undefined);
  return {
    prompt: toPrompt(body.messages, provider),
    maxOutputTokens: body.max_completion_tokens ?? body.max_tokens ?? undefined,
    temperature: body.temperature ?? undefined,
    topP: body.top_p ?? undefined,
    topK: body.top_k ?? undefined,
    presencePenalty: body.presence_penalty ?? undefined,
    frequencyPenalty: body.frequency_penalty ?? undefined,
    seed: body.seed ?? undefined,
    stopSequences: typeof body.stop === 'string' ? [body.stop] : (body.stop ?? undefined),
    responseFormat: format?.responseFormat,
    tools: body.tools?.map((tool, index) => toTool(tool, index, provider)),
    toolChoice: toToolChoice(body.tool_choice ?? undefined),
    reasoningEffort: effort,
    providerOptions: providerOptionsFor(provider, {
      parallelToolCalls: body.parallel_tool_calls ?? undefined,
      strictSchema: format?.isStrict,
    }),
    signal,
    memberNames: {
      prompt: 'messages',
      responseSchema: 'response_format.json_schema.schema',
      toolSchema: 'function.parameters',
    },
  };
}

/** The requested format of the answer. Throws a 400 for a format that the hub does not have. */
export function parseResponseFormat(body: ChatCompletionRequest): ModelCall['responseFormat'] {
  return toResponseFormat(body.response_format ?? undefined)?.responseFormat;
}

/**
 * The members that reach a model of the hub, that the serializer of the answer reads, or of which
 * `refuseUnsupported` accepts the values that request what every model does anyway (`n: 1`).
 */
export const supportedMembers: ReadonlySet<string> = new Set([
  'model',
  'messages',
  'stream',
  'stream_options',
  'n',
  'max_tokens',
  'max_completion_tokens',
  'temperature',
  'top_p',
  'top_k',
  'presence_penalty',
  'frequency_penalty',
  'seed',
  'stop',
  'response_format',
  'tools',
  'tool_choice',
  'parallel_tool_calls',
  'reasoning_effort',
  'logprobs',
  'service_tier',
  'modalities',
]);

function refuseUnsupported(body: ChatCompletionRequest): void {
  const read = memberReader(body);
  for (const name of Object.keys(body)) {
    if (!supportedMembers.has(name) && !labelMembers.has(name) && read(name) !== undefined)
      throw unsupportedMember(name, `The member ${name} is not supported by this model.`);
  }
  if ((body.n ?? 1) > 1) throw unsupportedMember('n', 'This model returns one choice per call; leave out n.');
  if (read('logprobs') === true)
    throw unsupportedMember('logprobs', 'This model does not report log probabilities.');
  if (!['auto', 'default', undefined].includes(read('service_tier') as string | undefined))
    throw unsupportedMember('service_tier', 'This model has no such tier; use auto or default.');
  if (body.modalities?.some((modality) => modality !== 'text') === true)
    throw unsupportedMember('modalities', 'This model answers only in text.');
}

// In this format a schema without `strict` is only a hint to the model.
function toResponseFormat(
  format: ChatCompletionRequest['response_format'],
): { responseFormat: ModelCall['responseFormat']; isStrict?: boolean } | undefined {
  if (format === undefined || format === null) return undefined;
  const { type } = format;
  if (type === 'text') return { responseFormat: { type: 'text' } };
  if (type === 'json_object') return { responseFormat: { type: 'json' } };
  if (type !== 'json_schema')
    throw invalidMember('response_format.type', 'must be text, json_object or json_schema');
  const { json_schema: jsonSchema } = format as ChatSchemaFormat;
  if (jsonSchema === undefined) throw invalidMember('response_format.json_schema', 'is required');
  const { schema, name, description, strict } = jsonSchema;
  return {
    responseFormat: {
      type: 'json',
      schema: schema ?? {},
      ...(typeof name === 'string' ? { name } : {}),
      ...(typeof description === 'string' ? { description } : {}),
    },
    isStrict: strict ?? false,
  };
}

function toTool(
  tool: ChatTool,
  index: number,
  provider: ProviderEntry,
): NonNullable<ModelCall['tools']>[number] {
  if (tool.type !== 'function')
    throw unsupportedMember(
      `tools[${index}].type`,
      `This model supports only tools of the type function, not ${String(tool.type)}.`,
    );
  const { name, description, parameters, strict } = (tool as ChatFunctionTool).function;
  return {
    type: 'function',
    name,
    ...(typeof description === 'string' ? { description } : {}),
    ...(typeof strict === 'boolean' ? { strict } : {}),
    ...cacheMarkOf(tool, provider, `tools[${index}]`),
    inputSchema: parameters ?? { type: 'object', properties: {} },
  };
}

function toToolChoice(choice: ChatToolChoice | undefined): ModelCall['toolChoice'] {
  if (choice === undefined || choice === null) return undefined;
  if (choice === 'auto' || choice === 'none' || choice === 'required') return { type: choice };
  if (typeof choice === 'string')
    throw invalidMember('tool_choice', 'must be auto, none, required or a function');
  const { type, function: chosenFunction } = choice;
  if (type !== undefined && type !== 'function')
    throw unsupportedMember('tool_choice.type', 'For this model, tool_choice can only name a function.');
  if (chosenFunction === undefined) throw invalidMember('tool_choice.function', 'is required');
  return { type: 'tool', toolName: chosenFunction.name };
}

// Reads members beyond those that the contract describes. In this format null is the same as absent.
function memberReader(body: ChatCompletionRequest): (name: string) => unknown {
  return (name) => (body as Readonly<Record<string, unknown>>)[name] ?? undefined;
}
