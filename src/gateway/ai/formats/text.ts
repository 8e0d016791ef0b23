// `POST /v1/ai/text` to and from the hub: a prompt or a conversation in, one message out.
import type { GenerateTextRequest, TextMessage } from '../../../contract/gateway/types.gen.ts';
import { Problem } from '../../../kernel/problem.ts';
import {
  formatSourceList,
  validTokenCount,
  type Answer,
  type ModelCall,
  type Prompt,
  type Usage,
  type Warning,
} from '../hub/language-model.ts';

type Turn = NonNullable<GenerateTextRequest['messages']>[number];
type UserTurn = Extract<Turn, { role: 'user' }>;
type AssistantTurn = Extract<Turn, { role: 'assistant' }>;
type ToolTurn = Extract<Turn, { role: 'tool' }>;
type UserPart = Extract<Prompt[number], { role: 'user' }>['content'][number];
type AssistantPart = Extract<Prompt[number], { role: 'assistant' }>['content'][number];
type ToolPart = Extract<Prompt[number], { role: 'tool' }>['content'][number];

/** The hub call that the request asks for. Throws a 400 for a tool's result without its call, and for an address that is none. */
export function toModelCall(body: GenerateTextRequest, signal: AbortSignal): ModelCall {
  return {
    prompt: promptOf(body),
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
    toolChoice: toolChoice(body.tool_choice),
    reasoningEffort: undefined,
    signal,
    memberNames: {
      prompt: body.messages === undefined ? 'prompt' : 'messages',
      responseSchema: 'response_format.schema',
      toolSchema: 'input_schema',
    },
  };
}

/** The answer as the message that the caller gets; sources stand as a list under the text. */
export function serializeMessage(
  answer: Answer,
  { id, ran }: { id: string; ran: Pick<TextMessage['metadata'], 'model' | 'attempts' | 'credits'> },
): TextMessage {
  const parts: TextMessage['parts'] = [];
  for (const part of answer.content) {
    if ((part.type === 'text' || part.type === 'reasoning') && part.text !== '')
      parts.push({ type: part.type, text: part.text });
    else if (part.type === 'tool-call')
      parts.push({
        type: 'tool-call',
        tool_call_id: part.toolCallId,
        tool_name: part.toolName,
        input: toolInput(part.input),
      });
  }
  const list = formatSourceList(answer.content.filter((part) => part.type === 'source'));
  const last = parts.findLast((part) => part.type === 'text');
  if (list !== '' && last) last.text += list;
  const { unified } = answer.finishReason;
  const warnings = answer.warnings.map(describeWarning);
  return {
    id,
    role: 'assistant',
    parts,
    metadata: {
      model: ran.model,
      finish_reason: unified === 'interrupted' ? 'error' : unified,
      usage: usageOf(answer.usage),
      credits: ran.credits,
      attempts: ran.attempts,
      ...(warnings.length === 0 ? {} : { warnings }),
    },
  };
}

function promptOf(body: GenerateTextRequest): Prompt {
  const toolNames = new Map<string, string>();
  const turns: readonly Turn[] = body.messages ?? [{ role: 'user', content: body.prompt ?? '' }];
  return [
    ...(body.system === undefined ? [] : [{ role: 'system' as const, content: body.system }]),
    ...turns.map((turn, index): Prompt[number] => {
      if (turn.role === 'user')
        return { role: 'user', content: userParts(turn.content, `messages[${index}].content`) };
      if (turn.role === 'assistant')
        return { role: 'assistant', content: assistantParts(turn.content, toolNames) };
      return {
        role: 'tool',
        content: turn.content.map((part, position) =>
          toolPart(part, toolNames, `messages[${index}].content[${position}]`),
        ),
      };
    }),
  ];
}

function userParts(content: UserTurn['content'], place: string): UserPart[] {
  if (typeof content === 'string') return [{ type: 'text', text: content }];
  return content.map((part, position): UserPart => {
    if (part.type === 'text') return part;
    const { media_type: mediaType, filename, data, url } = part;
    if (url !== undefined && !URL.canParse(url)) throw invalid(`${place}[${position}].url`, 'is no address');
    const source =
      url === undefined
        ? { type: 'data' as const, data: data ?? '' }
        : { type: 'url' as const, url: new URL(url) };
    return { type: 'file', mediaType, ...(filename === undefined ? {} : { filename }), data: source };
  });
}

function assistantParts(content: AssistantTurn['content'], toolNames: Map<string, string>): AssistantPart[] {
  if (typeof content === 'string') return [{ type: 'text', text: content }];
  return content.map((part): AssistantPart => {
    if (part.type !== 'tool-call') return part;
    toolNames.set(part.tool_call_id, part.tool_name);
    return { type: 'tool-call', toolCallId: part.tool_call_id, toolName: part.tool_name, input: part.input };
  });
}

function toolPart(
  part: ToolTurn['content'][number],
  toolNames: ReadonlyMap<string, string>,
  place: string,
): ToolPart {
  const { tool_call_id: toolCallId, output, is_error: isError } = part;
  const toolName = toolNames.get(toolCallId);
  if (toolName === undefined)
    throw invalid(`${place}.tool_call_id`, 'names no tool call of an earlier message');
  const value =
    typeof output === 'string'
      ? ({ type: isError ? 'error-text' : 'text', value: output } as const)
      : ({ type: isError ? 'error-json' : 'json', value: output as never } as const);
  return { type: 'tool-result', toolCallId, toolName, output: value };
}

function invalid(path: string, message: string): Problem {
  return new Problem(
    'bad_request',
    'invalid_request',
    `The request does not match the format: ${path} ${message}.`,
    { param: path, details: [{ path, message }] },
  );
}

function toolChoice(choice: GenerateTextRequest['tool_choice']): ModelCall['toolChoice'] {
  if (choice === undefined) return undefined;
  return typeof choice === 'string' ? { type: choice } : { type: 'tool', toolName: choice.tool_name };
}

// A model may write something that is no JSON; the caller gets it as it is.
function toolInput(text: string): unknown {
  if (text === '') return {};
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** One warning in words. */
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

// Kinds apart, as prices are: what the provider counts in a total and does not break down is plain input or output.
function usageOf({ inputTokens, outputTokens }: Usage): TextMessage['metadata']['usage'] {
  const cached = validTokenCount(inputTokens.cacheRead) ?? 0;
  const written = validTokenCount(inputTokens.cacheWrite) ?? 0;
  const reasoning = validTokenCount(outputTokens.reasoning) ?? 0;
  return {
    input_tokens:
      validTokenCount(inputTokens.noCache) ??
      Math.max((validTokenCount(inputTokens.total) ?? 0) - cached - written, 0),
    cached_input_tokens: cached,
    cache_write_tokens: written,
    output_tokens:
      validTokenCount(outputTokens.text) ??
      Math.max((validTokenCount(outputTokens.total) ?? 0) - reasoning, 0),
    reasoning_tokens: reasoning,
  };
}
