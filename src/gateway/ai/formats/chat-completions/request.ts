// The chat-completions format to and from the hub, for models whose provider does not speak it itself. What the
// format has and the hub has not is refused rather than ignored.
import type {
  ChatCompletion,
  ChatCompletionChunk,
  ChatCompletionRequest,
} from '../../../../contract/gateway/types.gen.ts';
import { Problem } from '../../../../kernel/problem.ts';
import type { ProviderEntry } from '../../catalog/models-file.ts';
import {
  formatSourceList,
  validTokenCount,
  type Answer,
  type FinishReason,
  type ModelCall,
  type Prompt,
  type Source,
  type StreamPart,
  type Usage,
  type Warning,
} from '../../hub/language-model.ts';
import { providerOptionsFor } from '../../providers/provider-options.ts';
import { labelMembers } from './dropped-members.ts';

type Message = ChatCompletionRequest['messages'][number];
type UserPart = Extract<Prompt[number], { role: 'user' }>['content'][number];
type AssistantPart = Extract<Prompt[number], { role: 'assistant' }>['content'][number];

export interface CallTerms {
  /** Whose model runs. */
  provider: ProviderEntry;
  effort: string | undefined;
  signal: AbortSignal;
}

/** The hub call that the request asks for. Throws a 400 for a member of the wrong shape, a 422 for what cannot be done. */
export function toModelCall(body: ChatCompletionRequest, { provider, effort, signal }: CallTerms): ModelCall {
  const read = reader(body);
  for (const name of Object.keys(body)) {
    if (!told.has(name) && !labelMembers.has(name) && read(name) !== undefined)
      throw unsupported(name, `The member ${name} is not supported by this model.`);
  }
  if ((body.n ?? 1) > 1) throw unsupported('n', 'This model gives one choice a call.');
  if (read('logprobs') === true) throw unsupported('logprobs', 'This model has no log probabilities.');
  if (!['auto', 'default', undefined].includes(read('service_tier') as string | undefined))
    throw unsupported('service_tier', 'This model has no such tier.');
  if (list(read('modalities') ?? ['text'], 'modalities').some((modality) => modality !== 'text'))
    throw unsupported('modalities', 'This model answers in text.');
  const format = responseFormat(read('response_format'));
  return {
    prompt: promptOf(body.messages),
    maxOutputTokens: body.max_completion_tokens ?? body.max_tokens ?? undefined,
    temperature: number(read('temperature'), 'temperature'),
    topP: number(read('top_p'), 'top_p'),
    topK: number(read('top_k'), 'top_k'),
    presencePenalty: number(read('presence_penalty'), 'presence_penalty'),
    frequencyPenalty: number(read('frequency_penalty'), 'frequency_penalty'),
    seed: number(read('seed'), 'seed'),
    stopSequences: stopSequences(read('stop')),
    responseFormat: format?.call,
    tools: tools(read('tools')),
    toolChoice: toolChoice(read('tool_choice')),
    reasoningEffort: effort,
    providerOptions: providerOptionsFor(provider, {
      parallelToolCalls: boolean(read('parallel_tool_calls'), 'parallel_tool_calls'),
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

/** The format of the answer that the request asks for. Throws a 400 for a member of the wrong shape. */
export function parseResponseFormat(body: ChatCompletionRequest): ModelCall['responseFormat'] {
  return responseFormat(reader(body)('response_format'))?.call;
}

// What a model behind the hub is told, here and at the other ends of this file.
const told = new Set([
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

export interface ChatOptions {
  modelId: string;
  /** `chatcmpl-…`. */
  completionId: string;
  createdSeconds: number;
}

/** The whole answer as one `chat.completion`. Throws for one that came to nothing, which the format has no word for. */
export function serializeCompletion(
  answer: Answer,
  { modelId, completionId, createdSeconds }: ChatOptions,
): ChatCompletion {
  refuseFailed(answer.finishReason);
  const texts = answer.content.flatMap((part) => (part.type === 'text' ? [part.text] : []));
  const reasoning = answer.content.flatMap((part) => (part.type === 'reasoning' ? [part.text] : [])).join('');
  const calls = answer.content.flatMap((part) => (part.type === 'tool-call' ? [toolCall(part)] : []));
  const text = texts.join('') + formatSourceList(answer.content.filter((part) => part.type === 'source'));
  return {
    id: completionId,
    object: 'chat.completion',
    created: createdSeconds,
    model: modelId,
    choices: [
      {
        index: 0,
        message: {
          role: 'assistant',
          content: text === '' && calls.length > 0 ? null : text,
          refusal: null,
          ...(reasoning === '' ? {} : { reasoning_content: reasoning }),
          ...(calls.length === 0 ? {} : { tool_calls: calls }),
        },
        logprobs: null,
        finish_reason: finishReason(answer.finishReason),
      },
    ],
    usage: usageOf(answer.usage),
  };
}

export interface ChunkOptions extends ChatOptions {
  includeUsage: boolean;
  /** Hears what of the call could not be honoured, before the first chunk. */
  onWarnings: (warnings: readonly Warning[]) => void;
}

/** The parts as chunks; the last carries the usage where the caller asked for it. Throws what the parts throw. */
export async function* serializeChunks(
  parts: AsyncIterable<StreamPart>,
  { modelId, completionId, createdSeconds, includeUsage, onWarnings }: ChunkOptions,
): AsyncGenerator<ChatCompletionChunk> {
  const common = {
    id: completionId,
    object: 'chat.completion.chunk' as const,
    created: createdSeconds,
    model: modelId,
  };
  const chunk = (delta: Record<string, unknown>, finish: string | null = null): ChatCompletionChunk => ({
    ...common,
    choices: [{ index: 0, delta, logprobs: null, finish_reason: finish }],
    ...(includeUsage ? { usage: null } : {}),
  });
  const sources: Source[] = [];
  const toolIndex = new Map<string, number>();
  let begun = false;
  const withRole = (delta: Record<string, unknown>) => {
    const first = begun ? {} : { role: 'assistant', refusal: null };
    begun = true;
    return { ...first, ...delta };
  };
  for await (const part of parts) {
    switch (part.type) {
      case 'stream-start':
        onWarnings(part.warnings);
        break;
      case 'text-start':
        if (!begun) yield chunk(withRole({ content: '' }));
        break;
      case 'text-delta':
        yield chunk(withRole({ content: part.delta }));
        break;
      case 'reasoning-delta':
        yield chunk(withRole({ reasoning_content: part.delta }));
        break;
      case 'tool-input-start':
        toolIndex.set(part.id, toolIndex.size);
        yield chunk(
          withRole({
            tool_calls: [
              {
                index: toolIndex.get(part.id),
                id: part.id,
                type: 'function',
                function: { name: part.toolName, arguments: '' },
              },
            ],
          }),
        );
        break;
      case 'tool-input-delta':
        yield chunk({
          tool_calls: [{ index: toolIndex.get(part.id) ?? 0, function: { arguments: part.delta } }],
        });
        break;
      case 'tool-call':
        // Its input has been streamed already where the model streams it.
        if (toolIndex.has(part.toolCallId)) break;
        toolIndex.set(part.toolCallId, toolIndex.size);
        yield chunk(withRole({ tool_calls: [{ index: toolIndex.get(part.toolCallId), ...toolCall(part) }] }));
        break;
      case 'source':
        sources.push(part);
        break;
      case 'error':
        throw part.error;
      case 'finish': {
        refuseFailed(part.finishReason);
        const list = formatSourceList(sources);
        if (list !== '') yield chunk(withRole({ content: list }));
        yield chunk(withRole({}), finishReason(part.finishReason));
        if (includeUsage) yield { ...common, choices: [], usage: usageOf(part.usage) };
        return;
      }
      default:
        // The remaining kinds have no place in this format.
        break;
    }
  }
  throw new Problem(
    'upstream_failed',
    'upstream_truncated',
    'The model broke off before its answer was complete.',
  );
}

function toolCall(part: { toolCallId: string; toolName: string; input: string }): object {
  return { id: part.toolCallId, type: 'function', function: { name: part.toolName, arguments: part.input } };
}

// With any of the format's words for an end it would look like an answer that is whole.
function refuseFailed({ unified, raw = 'error' }: FinishReason): void {
  if (unified === 'error')
    throw new Problem(
      'upstream_failed',
      'upstream_failed',
      `The model gave its answer up (${raw.slice(0, 64)}).`,
    );
}

function finishReason({ unified }: FinishReason): string {
  switch (unified) {
    case 'length':
      return 'length';
    case 'content-filter':
      return 'content_filter';
    case 'tool-calls':
      return 'tool_calls';
    default:
      // The format has no word for the rest.
      return 'stop';
  }
}

function usageOf({ inputTokens, outputTokens }: Usage): NonNullable<ChatCompletion['usage']> {
  const prompt = validTokenCount(inputTokens.total) ?? 0;
  const output = validTokenCount(outputTokens.total) ?? 0;
  return {
    prompt_tokens: prompt,
    completion_tokens: output,
    total_tokens: prompt + output,
    prompt_tokens_details: { cached_tokens: validTokenCount(inputTokens.cacheRead) ?? 0 },
    completion_tokens_details: { reasoning_tokens: validTokenCount(outputTokens.reasoning) ?? 0 },
  };
}

function promptOf(messages: readonly Message[]): Prompt {
  const toolNames = new Map<string, string>();
  return messages.map((message, index): Prompt[number] => {
    const path = `messages[${index}]`;
    const content = (message as { content?: unknown }).content;
    const foreign = ['audio', 'function_call'].find(
      (name) => ((message as Readonly<Record<string, unknown>>)[name] ?? null) !== null,
    );
    if (foreign !== undefined)
      throw unsupported(
        `${path}.${foreign}`,
        `This model cannot be told the ${foreign} of an earlier message.`,
      );
    switch (message.role) {
      case 'system':
      case 'developer':
        return { role: 'system', content: textContent(content, path) };
      case 'user':
        return { role: 'user', content: userContent(content, path) };
      case 'assistant':
        return { role: 'assistant', content: assistantContent(message, path, toolNames) };
      case 'tool': {
        const toolCallId = string(
          (message as { tool_call_id?: unknown }).tool_call_id,
          `${path}.tool_call_id`,
        );
        const toolName = toolNames.get(toolCallId);
        if (toolName === undefined)
          throw invalid(`${path}.tool_call_id`, 'names no tool call of an earlier message');
        return {
          role: 'tool',
          content: [
            {
              type: 'tool-result',
              toolCallId,
              toolName,
              output: { type: 'text', value: textContent(content, path) },
            },
          ],
        };
      }
      default:
        throw unsupported(
          `${path}.role`,
          'Messages of the role function are not supported by this model; use tool.',
        );
    }
  });
}

function userContent(content: unknown, path: string): UserPart[] {
  if (typeof content === 'string') return [{ type: 'text', text: content }];
  return list(content, `${path}.content`).map((part, index) => userPart(part, `${path}.content[${index}]`));
}

function userPart(part: unknown, path: string): UserPart {
  const { type, ...members } = object(part, path);
  switch (type) {
    case 'image_url': {
      const { url } = object(members['image_url'], `${path}.image_url`);
      return fileAt(string(url, `${path}.image_url.url`), {
        path: `${path}.image_url.url`,
        mediaType: 'image/*',
      });
    }
    case 'input_audio': {
      const { data, format } = object(members['input_audio'], `${path}.input_audio`);
      const mediaType = `audio/${string(format, `${path}.input_audio.format`).replace('mp3', 'mpeg')}`;
      return {
        type: 'file',
        mediaType,
        data: { type: 'data', data: string(data, `${path}.input_audio.data`) },
      };
    }
    case 'file': {
      const { file_data: data, filename, file_id: fileId } = object(members['file'], `${path}.file`);
      if (fileId !== undefined)
        throw unsupported(
          `${path}.file.file_id`,
          'Files that another provider keeps cannot be given to this model; send file_data.',
        );
      const file = fileAt(string(data, `${path}.file.file_data`), {
        path: `${path}.file.file_data`,
        mediaType: 'application/pdf',
      });
      return typeof filename === 'string' ? { ...file, filename } : file;
    }
    default:
      return { type: 'text', text: textPart(part, path) };
  }
}

// A data URL brings its bytes and their kind along; any other address is left to the provider to fetch.
function fileAt(
  url: string,
  { path, mediaType }: { path: string; mediaType: string },
): Extract<UserPart, { type: 'file' }> {
  // What follows the kind begins with a semicolon; without it the two runs share their characters in every possible way.
  const inline = /^data:([^;,]+)(?:;[^,]*)?;base64,/i.exec(url);
  if (inline)
    return {
      type: 'file',
      mediaType: inline[1] ?? mediaType,
      data: { type: 'data', data: url.slice(inline[0].length) },
    };
  if (/^https?:\/\//i.test(url) && URL.canParse(url))
    return { type: 'file', mediaType, data: { type: 'url', url: new URL(url) } };
  throw invalid(path, 'must be a data URL in base64 or an http or https address');
}

function assistantContent(message: Message, path: string, toolNames: Map<string, string>): AssistantPart[] {
  const {
    content,
    refusal,
    tool_calls: calls,
    reasoning_content: reasoning,
  } = message as { content?: unknown; refusal?: unknown; tool_calls?: unknown; reasoning_content?: unknown };
  const parts: AssistantPart[] = [];
  if (typeof reasoning === 'string') parts.push({ type: 'reasoning', text: reasoning });
  if (content !== undefined && content !== null)
    parts.push({ type: 'text', text: textContent(content, path) });
  // A refusal stands beside a content that is null, in answers as in what comes back of them.
  if (typeof refusal === 'string' && refusal !== '') parts.push({ type: 'text', text: refusal });
  for (const [index, call] of list(calls ?? [], `${path}.tool_calls`).entries()) {
    const place = `${path}.tool_calls[${index}]`;
    const {
      id,
      type = 'function',
      function: called,
    } = object(call, place) as { id?: unknown; type?: unknown; function?: unknown };
    if (type !== 'function')
      throw unsupported(`${place}.type`, `This model cannot be told of calls of the type ${String(type)}.`);
    const { name, arguments: input } = object(called, `${place}.function`) as {
      name?: unknown;
      arguments?: unknown;
    };
    const toolCallId = string(id, `${place}.id`);
    const toolName = string(name, `${place}.function.name`);
    toolNames.set(toolCallId, toolName);
    parts.push({
      type: 'tool-call',
      toolCallId,
      toolName,
      input: toolInput(string(input ?? '', `${place}.function.arguments`)),
    });
  }
  return parts;
}

// A model may have written arguments that are not JSON; they go back to it as they were. None at all are an empty
// object, which is what its provider wants to read.
function toolInput(text: string): unknown {
  if (text.trim() === '') return {};
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

function textContent(content: unknown, path: string): string {
  if (typeof content === 'string') return content;
  return list(content, `${path}.content`)
    .map((part, index) => textPart(part, `${path}.content[${index}]`))
    .join('');
}

function textPart(part: unknown, path: string): string {
  const { type, text, refusal } = object(part, path) as { type?: unknown; text?: unknown; refusal?: unknown };
  if (type === 'text') return string(text, `${path}.text`);
  if (type === 'refusal') return string(refusal, `${path}.refusal`);
  throw unsupported(path, 'This model takes text only.');
}

function stopSequences(stop: unknown): string[] | undefined {
  if (stop === undefined) return undefined;
  const sequences = typeof stop === 'string' ? [stop] : list(stop, 'stop');
  return sequences.map((sequence, index) => string(sequence, `stop[${index}]`));
}

// A schema that does not say how strictly it binds only guides, in this format.
function responseFormat(
  format: unknown,
): { call: ModelCall['responseFormat']; isStrict?: boolean } | undefined {
  if (format === undefined) return undefined;
  const { type, json_schema: schema } = object(format, 'response_format') as {
    type?: unknown;
    json_schema?: unknown;
  };
  if (type === 'text') return { call: { type: 'text' } };
  if (type === 'json_object') return { call: { type: 'json' } };
  if (type !== 'json_schema')
    throw invalid('response_format.type', 'must be text, json_object or json_schema');
  const named = object(schema, 'response_format.json_schema') as {
    schema?: unknown;
    name?: unknown;
    description?: unknown;
    strict?: unknown;
  };
  return {
    call: {
      type: 'json',
      schema: object(named.schema ?? {}, 'response_format.json_schema.schema'),
      ...(typeof named.name === 'string' ? { name: named.name } : {}),
      ...(typeof named.description === 'string' ? { description: named.description } : {}),
    },
    isStrict: boolean(named.strict ?? undefined, 'response_format.json_schema.strict') ?? false,
  };
}

function tools(given: unknown): ModelCall['tools'] {
  if (given === undefined) return undefined;
  return list(given, 'tools').map((tool, index) => {
    const path = `tools[${index}]`;
    const { type, function: called } = object(tool, path) as { type?: unknown; function?: unknown };
    if (type !== 'function')
      throw unsupported(
        `${path}.type`,
        `This model knows tools of the type function only, not ${String(type)}.`,
      );
    const { name, description, parameters, strict } = object(called, `${path}.function`) as {
      name?: unknown;
      description?: unknown;
      parameters?: unknown;
      strict?: unknown;
    };
    return {
      type: 'function',
      name: string(name, `${path}.function.name`),
      ...(typeof description === 'string' ? { description } : {}),
      ...(typeof strict === 'boolean' ? { strict } : {}),
      inputSchema: object(parameters ?? { type: 'object', properties: {} }, `${path}.function.parameters`),
    };
  });
}

function toolChoice(choice: unknown): ModelCall['toolChoice'] {
  if (choice === undefined) return undefined;
  if (choice === 'auto' || choice === 'none' || choice === 'required') return { type: choice };
  const { type, function: called } = object(choice, 'tool_choice') as { type?: unknown; function?: unknown };
  if (type !== undefined && type !== 'function')
    throw unsupported('tool_choice.type', 'This model can be given the choice of a function only.');
  return {
    type: 'tool',
    toolName: string(
      (object(called, 'tool_choice.function') as { name?: unknown }).name,
      'tool_choice.function.name',
    ),
  };
}

// The members beyond those that the contract describes; null is the same as absent in this format.
function reader(body: ChatCompletionRequest): (name: string) => unknown {
  return (name) => (body as Readonly<Record<string, unknown>>)[name] ?? undefined;
}

function number(value: unknown, path: string): number | undefined {
  if (value === undefined || typeof value === 'number') return value;
  throw invalid(path, 'must be a number');
}

function boolean(value: unknown, path: string): boolean | undefined {
  if (value === undefined || typeof value === 'boolean') return value;
  throw invalid(path, 'must be true or false');
}

function string(value: unknown, path: string): string {
  if (typeof value === 'string') return value;
  throw invalid(path, 'must be a string');
}

function list(value: unknown, path: string): unknown[] {
  if (Array.isArray(value)) return value;
  throw invalid(path, 'must be a list');
}

function object(value: unknown, path: string): Record<string, unknown> {
  if (typeof value === 'object' && value !== null && !Array.isArray(value))
    return value as Record<string, unknown>;
  throw invalid(path, 'must be an object');
}

function invalid(path: string, message: string): Problem {
  return new Problem(
    'bad_request',
    'invalid_request',
    `The request does not match the format: ${path} ${message}.`,
    {
      param: path,
      details: [{ path, message }],
    },
  );
}

function unsupported(param: string, message: string): Problem {
  return new Problem('impossible', 'unsupported_by_model', message, { param });
}
