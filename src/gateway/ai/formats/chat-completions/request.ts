// Converts a chat-completions request to a call of the hub, for models whose provider does not speak the format
// itself. A member that the hub cannot express is refused, never ignored.
import type { ChatCompletionRequest } from '../../../../contract/gateway/types.gen.ts';
import type { ProviderEntry } from '../../catalog/models-file.ts';
import type { ModelCall } from '../../hub/language-model.ts';
import { providerOptionsFor } from '../../providers/provider-options.ts';
import { labelMembers } from './dropped-members.ts';
import {
  invalidMember,
  readBoolean,
  readList,
  readNumber,
  readObject,
  readString,
  unsupportedMember,
} from './members.ts';
import { toPrompt } from './prompt.ts';

export interface ModelCallOptions {
  /** The provider of the model that runs. */
  provider: ProviderEntry;
  effort: string | undefined;
  signal: AbortSignal;
}

/** Throws a 400 for a member of the wrong shape and a 422 for one that the model cannot honour. */
export function toModelCall(
  body: ChatCompletionRequest,
  { provider, effort, signal }: ModelCallOptions,
): ModelCall {
  refuseUnsupported(body);
  const read = memberReader(body);
  const format = toResponseFormat(read('response_format'));
  return {
    prompt: toPrompt(body.messages),
    maxOutputTokens: body.max_completion_tokens ?? body.max_tokens ?? undefined,
    temperature: readNumber(read('temperature'), 'temperature'),
    topP: readNumber(read('top_p'), 'top_p'),
    topK: readNumber(read('top_k'), 'top_k'),
    presencePenalty: readNumber(read('presence_penalty'), 'presence_penalty'),
    frequencyPenalty: readNumber(read('frequency_penalty'), 'frequency_penalty'),
    seed: readNumber(read('seed'), 'seed'),
    stopSequences: toStopSequences(read('stop')),
    responseFormat: format?.responseFormat,
    tools: toTools(read('tools')),
    toolChoice: toToolChoice(read('tool_choice')),
    reasoningEffort: effort,
    providerOptions: providerOptionsFor(provider, {
      parallelToolCalls: readBoolean(read('parallel_tool_calls'), 'parallel_tool_calls'),
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

/** The format that the request wants its answer in. Throws a 400 for a member of the wrong shape. */
export function parseResponseFormat(body: ChatCompletionRequest): ModelCall['responseFormat'] {
  return toResponseFormat(memberReader(body)('response_format'))?.responseFormat;
}

// The members that reach a model of the hub, or that the serializer of the answer reads.
const supportedMembers = new Set([
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
  if ((body.n ?? 1) > 1) throw unsupportedMember('n', 'This model gives one choice a call; leave n out.');
  if (read('logprobs') === true) throw unsupportedMember('logprobs', 'This model has no log probabilities.');
  if (!['auto', 'default', undefined].includes(read('service_tier') as string | undefined))
    throw unsupportedMember('service_tier', 'This model has no such tier; use auto or default.');
  const modalities = readList(read('modalities') ?? ['text'], 'modalities');
  if (modalities.some((modality) => modality !== 'text'))
    throw unsupportedMember('modalities', 'This model answers in text.');
}

function toStopSequences(stop: unknown): string[] | undefined {
  if (stop === undefined) return undefined;
  const sequences = typeof stop === 'string' ? [stop] : readList(stop, 'stop');
  return sequences.map((sequence, index) => readString(sequence, `stop[${index}]`));
}

// A schema without `strict` only guides the model, in this format.
function toResponseFormat(
  format: unknown,
): { responseFormat: ModelCall['responseFormat']; isStrict?: boolean } | undefined {
  if (format === undefined) return undefined;
  const { type, json_schema: jsonSchema } = readObject(format, 'response_format');
  if (type === 'text') return { responseFormat: { type: 'text' } };
  if (type === 'json_object') return { responseFormat: { type: 'json' } };
  if (type !== 'json_schema')
    throw invalidMember('response_format.type', 'must be text, json_object or json_schema');
  const path = 'response_format.json_schema';
  const { schema, name, description, strict } = readObject(jsonSchema, path);
  return {
    responseFormat: {
      type: 'json',
      schema: readObject(schema ?? {}, `${path}.schema`),
      ...(typeof name === 'string' ? { name } : {}),
      ...(typeof description === 'string' ? { description } : {}),
    },
    isStrict: readBoolean(strict ?? undefined, `${path}.strict`) ?? false,
  };
}

function toTools(tools: unknown): ModelCall['tools'] {
  if (tools === undefined) return undefined;
  return readList(tools, 'tools').map((tool, index) => {
    const path = `tools[${index}]`;
    const { type, function: definition } = readObject(tool, path);
    if (type !== 'function')
      throw unsupportedMember(
        `${path}.type`,
        `This model knows tools of the type function only, not ${readString(type, `${path}.type`)}.`,
      );
    const { name, description, parameters, strict } = readObject(definition, `${path}.function`);
    return {
      type: 'function',
      name: readString(name, `${path}.function.name`),
      ...(typeof description === 'string' ? { description } : {}),
      ...(typeof strict === 'boolean' ? { strict } : {}),
      inputSchema: readObject(
        parameters ?? { type: 'object', properties: {} },
        `${path}.function.parameters`,
      ),
    };
  });
}

function toToolChoice(choice: unknown): ModelCall['toolChoice'] {
  if (choice === undefined) return undefined;
  if (choice === 'auto' || choice === 'none' || choice === 'required') return { type: choice };
  const { type, function: chosenFunction } = readObject(choice, 'tool_choice');
  if (type !== undefined && type !== 'function')
    throw unsupportedMember('tool_choice.type', 'This model can be given the choice of a function only.');
  const { name } = readObject(chosenFunction, 'tool_choice.function');
  return { type: 'tool', toolName: readString(name, 'tool_choice.function.name') };
}

// Reads members beyond those that the contract describes. In this format null is the same as absent.
function memberReader(body: ChatCompletionRequest): (name: string) => unknown {
  return (name) => (body as Readonly<Record<string, unknown>>)[name] ?? undefined;
}
