// The format of `POST /v1/ai/text`: converts a prompt or a conversation to a call of
// the hub, and its answer to one message.
import type {
  GenerateTextRequest,
  TextAssistantTurn,
  TextMessage,
  TextToolResultPart,
  TextTurn,
  TextUserTurn,
} from '../../../contract/gateway/types.gen.ts';
import { parseToolInput } from '../../../kernel/json-value.ts';
import {
  formatSourceList,
  validTokenCount,
  type Answer,
  type ModelCall,
  type Prompt,
  type Usage,
  type Warning,
  type AssistantPart,
  type PromptMessage,
  type ToolPart,
  type UserPart,
} from '../hub/language-model.ts';
import { invalidMember, readToolName } from './translation/members.ts';

/**
 * Throws a 400 for a tool result without its call, a tool name of more than 128
 * characters, and an invalid file URL.
 */
export function toModelCall(body: GenerateTextRequest, signal: AbortSignal): ModelCall {
  return {
    prompt: toPrompt(body),
    maxOutputTokens: body.max_output_tokens,
    temperature: body.temperature,
    stopSequences: body.stop,
    seed: body.seed,
    responseFormat: body.response_format as ModelCall['responseFormat'],
    tools: body.tools?.map(({ input_schema: inputSchema, ...tool }) => ({
      type: 'function',
      ...tool,
      inputSchema,
    })),
    toolChoice: toToolChoice(body.tool_choice),
    reasoningEffort: undefined,
    signal,
    memberNames: {
      prompt: 'messages' in body ? 'messages' : 'prompt',
      responseSchema: 'response_format.schema',
      toolSchema: 'input_schema',
    },
  };
}

/**
 * The answer as a message. Sources become a list at the end of its last text. Tool calls that the provider
 * runs itself are left out: callers run every call of the message.
 */
export function serializeMessage(
  answer: Answer,
  { id, result }: { id: string; result: Pick<TextMessage['metadata'], 'model' | 'attempts' | 'credits'> },
): TextMessage {
  const parts: TextMessage['parts'] = [];
  for (const part of answer.content) {
    if ((part.type === 'text' || part.type === 'reasoning') && part.text !== '')
      parts.push({ type: part.type, text: part.text });
    else if (part.type === 'tool-call' && part.providerExecuted !== true)
      parts.push({
        type: 'tool-call',
        tool_call_id: part.toolCallId,
        tool_name: part.toolName,
        input: parseToolInput(part.input),
      });
  }
  const sourceList = formatSourceList(answer.content.filter((part) => part.type === 'source'));
  const lastText = parts.findLast((part) => part.type === 'text');
  if (sourceList !== '' && lastText) lastText.text += sourceList;
  const { unified } = answer.finishReason;
  const warnings = answer.warnings.map(describeWarning);
  return {
    id,
    role: 'assistant',
    parts,
    metadata: {
      model: result.model,
      finish_reason: unified === 'interrupted' ? 'error' : unified,
      usage: serializeUsage(answer.usage),
      credits: result.credits,
      attempts: result.attempts,
      ...(warnings.length === 0 ? {} : { warnings }),
    },
  };
}

function toPrompt(body: GenerateTextRequest): Prompt {
  const toolNames = new Map<string, string>();
  const messages: readonly TextTurn[] =
    'messages' in body ? body.messages : [{ role: 'user', content: body.prompt }];
  return [
    ...(body.system === undefined ? [] : [{ role: 'system' as const, content: body.system }]),
    ...messages.map((message, index): PromptMessage => {
      const path = `messages[${index}].content`;
      if (message.role === 'user') return { role: 'user', content: toUserParts(message.content, path) };
      if (message.role === 'assistant')
        return { role: 'assistant', content: toAssistantParts(message.content, path, toolNames) };
      return {
        role: 'tool',
        content: message.content.map((part, partIndex) =>
          toToolPart(part, toolNames, `${path}[${partIndex}]`),
        ),
      };
    }),
  ];
}

function toUserParts(content: TextUserTurn['content'], path: string): UserPart[] {
  if (typeof content === 'string') return [{ type: 'text', text: content }];
  return content.map((part, partIndex): UserPart => {
    if (part.type === 'text') return part;
    const { media_type: mediaType, filename } = part;
    const source =
      'url' in part
        ? { type: 'url' as const, url: parseUrl(part.url, `${path}[${partIndex}].url`) }
        : { type: 'data' as const, data: part.data };
    return { type: 'file', mediaType, ...(filename === undefined ? {} : { filename }), data: source };
  });
}

// The contract's pattern checks only the scheme, so the URL is parsed here.
function parseUrl(url: string, path: string): URL {
  if (!URL.canParse(url)) throw invalidMember(path, 'is not a valid URL');
  return new URL(url);
}

function toAssistantParts(
  content: TextAssistantTurn['content'],
  path: string,
  toolNames: Map<string, string>,
): AssistantPart[] {
  if (typeof content === 'string') return [{ type: 'text', text: content }];
  return content.map((part, partIndex): AssistantPart => {
    if (part.type !== 'tool-call') return part;
    const { tool_call_id: toolCallId, tool_name: name, input } = part;
    const toolName = readToolName(name, `${path}[${partIndex}].tool_name`);
    toolNames.set(toolCallId, toolName);
    return { type: 'tool-call', toolCallId, toolName, input };
  });
}

function toToolPart(
  part: TextToolResultPart,
  toolNames: ReadonlyMap<string, string>,
  path: string,
): ToolPart {
  const { tool_call_id: toolCallId, output, is_error: isError } = part;
  const toolName = toolNames.get(toolCallId);
  if (toolName === undefined)
    throw invalidMember(`${path}.tool_call_id`, 'names no tool call of an earlier message');
  const value =
    typeof output === 'string'
      ? ({ type: isError ? 'error-text' : 'text', value: output } as const)
      : ({ type: isError ? 'error-json' : 'json', value: output as never } as const);
  return { type: 'tool-result', toolCallId, toolName, output: value };
}

function toToolChoice(choice: GenerateTextRequest['tool_choice']): ModelCall['toolChoice'] {
  if (choice === undefined) return undefined;
  return typeof choice === 'string' ? { type: choice } : { type: 'tool', toolName: choice.tool_name };
}

/** One warning as a line of text. */
export function describeWarning(warning: Warning): string {
  switch (warning.type) {
    case 'unsupported':
    case 'compatibility':
      return `${warning.feature}: ${warning.details ?? 'is not supported by this model'}`;
    case 'deprecated':
      return `${warning.setting}: ${warning.message}`;
    case 'other':
      return warning.message;
  }
}

// The counts do not overlap, as each kind has its own price. A total without a
// breakdown counts as plain input or output.
function serializeUsage({ inputTokens, outputTokens }: Usage): TextMessage['metadata']['usage'] {
  const cachedTokens = validTokenCount(inputTokens.cacheRead) ?? 0;
  const cacheWrite = validTokenCount(inputTokens.cacheWrite) ?? 0;
  const reasoning = validTokenCount(outputTokens.reasoning) ?? 0;
  return {
    input_tokens:
      validTokenCount(inputTokens.noCache) ??
      Math.max((validTokenCount(inputTokens.total) ?? 0) - cachedTokens - cacheWrite, 0),
    cached_input_tokens: cachedTokens,
    cache_write_tokens: cacheWrite,
    output_tokens:
      validTokenCount(outputTokens.text) ??
      Math.max((validTokenCount(outputTokens.total) ?? 0) - reasoning, 0),
    reasoning_tokens: reasoning,
  };
}
