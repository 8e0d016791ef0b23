// Converts the messages of a chat-completions request to a prompt of the hub.
import type {
  ChatAssistantMessage,
  ChatAudioPart,
  ChatContent,
  ChatFile,
  ChatFilePart,
  ChatImagePart,
  ChatMessage,
  ChatRefusalPart,
  ChatTextPart,
  ChatToolCall,
  ChatToolMessage,
} from '../../../../contract/gateway/types.gen.ts';
import { asRecord, parseToolInput } from '../../../../kernel/json-value.ts';
import type { ProviderEntry } from '../../catalog/models-file.ts';
import type {
  Prompt,
  ProviderOptions,
  AssistantPart,
  PromptMessage,
  UserPart,
} from '../../hub/language-model.ts';
import { parseDataUrl } from '../../media/data-url.ts';
import { cacheMarkOf } from '../translation/cache-mark.ts';
import { decodeReplay } from '../translation/replay.ts';
import { invalidMember, readList, readObject, readString, readToolName } from '../translation/members.ts';
import { unsupportedMember } from '../../hub/problems.ts';

/** The part types of the contract; a part of another type reaches the default of each switch. */
type ContentPart = ChatTextPart | ChatImagePart | ChatAudioPart | ChatFilePart | ChatRefusalPart;

/**
 * Throws a 400 for a missing member that is optional in the schema but required by the hub, and a 422 for
 * content that the hub cannot express.
 */
export function toPrompt(messages: readonly ChatMessage[], provider: Pick<ProviderEntry, 'kind'>): Prompt {
  // A tool message names only the id of its call; the hub also requires the tool's name.
  const toolNames = new Map<string, string>();
  return messages.map((message, index): PromptMessage => {
    const path = `messages[${index}]`;
    refuseProviderMembers(message, path);
    switch (message.role) {
      case 'system':
      case 'developer':
        return {
          role: 'system',
          content: readText(message.content, path),
          ...lastCacheMark(message, provider, path),
        };
      case 'user':
        return { role: 'user', content: toUserContent(message.content, provider, path) };
      case 'assistant':
        return {
          role: 'assistant',
          content: toAssistantContent(message, path, toolNames),
          ...lastCacheMark(message, provider, path),
        };
      case 'tool':
        return { ...toToolMessage(message, path, toolNames), ...lastCacheMark(message, provider, path) };
      case 'function':
        throw unsupportedMember(
          `${path}.role`,
          'This model does not support messages with the role function; use the role tool.',
        );
    }
  });
}

function refuseProviderMembers(message: Readonly<Record<string, unknown>>, path: string): void {
  const name = ['audio', 'function_call'].find((member) => (message[member] ?? null) !== null);
  if (name === undefined) return;
  throw unsupportedMember(
    `${path}.${name}`,
    `This model does not support the member ${name} in an earlier message; leave it out.`,
  );
}

function toToolMessage(
  { tool_call_id: toolCallId, content }: ChatToolMessage,
  path: string,
  toolNames: ReadonlyMap<string, string>,
): PromptMessage {
  if (toolCallId === undefined) throw invalidMember(`${path}.tool_call_id`, 'is required');
  const toolName = toolNames.get(toolCallId);
  if (toolName === undefined)
    throw invalidMember(`${path}.tool_call_id`, 'names no tool call of an earlier message');
  if (content === undefined || content === null) throw invalidMember(`${path}.content`, 'is required');
  const output = { type: 'text' as const, value: readText(content, path) };
  return { role: 'tool', content: [{ type: 'tool-result', toolCallId, toolName, output }] };
}

function toUserContent(
  content: ChatContent,
  provider: Pick<ProviderEntry, 'kind'>,
  path: string,
): UserPart[] {
  if (typeof content === 'string') return [{ type: 'text', text: content }];
  return content.map((part, index) => {
    const partPath = `${path}.content[${index}]`;
    return {
      ...toUserPart(part as ContentPart, partPath),
      ...cacheMarkOf(part as Record<string, unknown>, provider, partPath),
    };
  });
}

function toUserPart(part: ContentPart, path: string): UserPart {
  switch (part.type) {
    case 'image_url': {
      const { image_url: image } = part;
      const isText = typeof image === 'string';
      const urlPath = isText ? `${path}.image_url` : `${path}.image_url.url`;
      return toFilePart(isText ? image : image.url, { path: urlPath, mediaType: 'image/*' });
    }
    case 'input_audio': {
      const { input_audio: audio } = part;
      if (typeof audio === 'string' || audio.format === undefined)
        throw invalidMember(`${path}.input_audio.format`, 'is required');
      const mediaType = `audio/${audio.format.replace('mp3', 'mpeg')}`;
      return { type: 'file', mediaType, data: { type: 'data', data: audio.data } };
    }
    case 'file':
      return toUploadedFile(part.file, `${path}.file`);
    default:
      return { type: 'text', text: readTextPart(part, path) };
  }
}

function toUploadedFile({ file_data: data, filename, file_id: fileId }: ChatFile, path: string): UserPart {
  if (typeof fileId === 'string')
    throw unsupportedMember(
      `${path}.file_id`,
      'This model cannot read files that are stored at another provider; send file_data.',
    );
  const dataPath = `${path}.file_data`;
  if (data === undefined || data === null) throw invalidMember(dataPath, 'is required');
  const part = toFilePart(data, { path: dataPath, mediaType: 'application/pdf' });
  return typeof filename === 'string' ? { ...part, filename } : part;
}

// A data URL carries its bytes and media type. The provider fetches any other URL itself.
function toFilePart(
  url: string,
  { path, mediaType }: { path: string; mediaType: string },
): Extract<UserPart, { type: 'file' }> {
  const inlineData = parseDataUrl(url);
  if (inlineData !== undefined && inlineData.mediaType !== '')
    return { type: 'file', mediaType: inlineData.mediaType, data: { type: 'data', data: inlineData.data } };
  if (/^https?:\/\//i.test(url) && URL.canParse(url))
    return { type: 'file', mediaType, data: { type: 'url', url: new URL(url) } };
  throw invalidMember(path, 'must be a data URL in base64 or an http or https address');
}

function toAssistantContent(
  { content, refusal, tool_calls: calls, reasoning_content: reasoning, ...members }: ChatAssistantMessage,
  path: string,
  toolNames: Map<string, string>,
): AssistantPart[] {
  const parts: AssistantPart[] = [];
  const details = toReasoning(members['reasoning_details'], `${path}.reasoning_details`);
  if (details.length > 0) parts.push(...details);
  else if (typeof reasoning === 'string') parts.push({ type: 'reasoning', text: reasoning });
  if (content !== undefined && content !== null) parts.push({ type: 'text', text: readText(content, path) });
  // In answers, and in messages copied from them, `refusal` has the text and `content` is null.
  if (typeof refusal === 'string' && refusal !== '') parts.push({ type: 'text', text: refusal });
  for (const [index, call] of (calls ?? []).entries()) {
    const part = toToolCall(call, `${path}.tool_calls[${index}]`);
    toolNames.set(part.toolCallId, part.toolName);
    parts.push(part);
  }
  return parts;
}

// The replay metadata of the reasoning, as `serializeCompletion` sends it. Details
// of other servers are dropped: their text is also in `reasoning_content`.
function toReasoning(details: unknown, path: string): AssistantPart[] {
  if (details === undefined || details === null) return [];
  return readList(details, path).flatMap((item, index): AssistantPart[] => {
    const { type, text, signature } = readObject(item, `${path}[${index}]`);
    const replay = typeof signature === 'string' ? decodeReplay(signature) : undefined;
    if (type !== 'reasoning.text' || replay === undefined) return [];
    return [
      { type: 'reasoning', text: typeof text === 'string' ? text : '', providerOptions: replay.options },
    ];
  });
}

function toToolCall(
  { id: toolCallId, type, function: calledFunction, ...members }: ChatToolCall,
  path: string,
): Extract<AssistantPart, { type: 'tool-call' }> {
  if ((type ?? 'function') !== 'function')
    throw unsupportedMember(
      `${path}.type`,
      `This model supports only tool calls of the type function, not ${readString(type, `${path}.type`)}.`,
    );
  if (typeof toolCallId !== 'string') throw invalidMember(`${path}.id`, 'is required');
  const { name: toolName, arguments: input } = calledFunction ?? {};
  if (toolName === undefined) throw invalidMember(`${path}.function.name`, 'is required');
  return {
    type: 'tool-call',
    toolCallId,
    toolName: readToolName(toolName, `${path}.function.name`),
    input: typeof input === 'string' ? parseToolInput(input) : (input ?? {}),
    ...toSignature(members['extra_content']),
  };
}

function toSignature(extraContent: unknown): { providerOptions?: ProviderOptions } {
  const signature = asRecord(asRecord(extraContent)['google'])['thought_signature'];
  if (typeof signature !== 'string') return {};
  const replay = decodeReplay(signature);
  return { providerOptions: replay?.options ?? { google: { thoughtSignature: signature } } };
}

/**
 * The cache mark of the last marked part as that of the message: the hub has the texts of a system, assistant
 * or tool message as one, so its parts keep no marks of their own. Empty without a marked part.
 */
function lastCacheMark(
  message: ChatMessage,
  provider: Pick<ProviderEntry, 'kind'>,
  path: string,
): { providerOptions?: ProviderOptions } {
  const { content } = message as { content?: unknown };
  if (!Array.isArray(content)) return {};
  const index = content.findLastIndex((part) => (asRecord(part)['cache_control'] ?? null) !== null);
  return cacheMarkOf(asRecord(content[index]), provider, `${path}.content[${index}]`);
}

function readText(content: ChatContent, path: string): string {
  if (typeof content === 'string') return content;
  return content
    .map((part, index) => readTextPart(part as ContentPart, `${path}.content[${index}]`))
    .join('');
}

function readTextPart(part: ContentPart, path: string): string {
  if (part.type === 'text') return part.text;
  if (part.type === 'refusal') return part.refusal;
  throw unsupportedMember(path, 'This model accepts only text here.');
}
