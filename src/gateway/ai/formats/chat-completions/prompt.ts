// Converts the messages of a chat-completions request to a prompt of the hub.
import type { ChatCompletionRequest } from '../../../../contract/gateway/types.gen.ts';
import type { Prompt } from '../../hub/language-model.ts';
import {
  invalidMember,
  readList,
  readObject,
  readString,
  readToolName,
  unsupportedMember,
} from './members.ts';

type Message = ChatCompletionRequest['messages'][number];
type PromptMessage = Prompt[number];
type UserPart = Extract<PromptMessage, { role: 'user' }>['content'][number];
type AssistantPart = Extract<PromptMessage, { role: 'assistant' }>['content'][number];

/** Throws a 400 for a member of the wrong shape and a 422 for content that the hub cannot carry. */
export function toPrompt(messages: readonly Message[]): Prompt {
  // A tool message names only the id of its call; the hub also wants the tool's name.
  const toolNames = new Map<string, string>();
  return messages.map((message, index): PromptMessage => {
    const path = `messages[${index}]`;
    refuseProviderMembers(message, path);
    const { content } = message as { content?: unknown };
    switch (message.role) {
      case 'system':
      case 'developer':
        return { role: 'system', content: readText(content, path) };
      case 'user':
        return { role: 'user', content: toUserContent(content, path) };
      case 'assistant':
        return { role: 'assistant', content: toAssistantContent(message, path, toolNames) };
      case 'tool':
        return toToolMessage(message, path, toolNames);
      default:
        throw unsupportedMember(
          `${path}.role`,
          'Messages of the role function are not supported by this model; use tool.',
        );
    }
  });
}

function refuseProviderMembers(message: Message, path: string): void {
  const name = ['audio', 'function_call'].find(
    (member) => ((message as Readonly<Record<string, unknown>>)[member] ?? null) !== null,
  );
  if (name === undefined) return;
  throw unsupportedMember(
    `${path}.${name}`,
    `This model does not take the member ${name} of an earlier message; leave it out.`,
  );
}

function toToolMessage(
  message: Message,
  path: string,
  toolNames: ReadonlyMap<string, string>,
): PromptMessage {
  const { tool_call_id: id, content } = message as { tool_call_id?: unknown; content?: unknown };
  const toolCallId = readString(id, `${path}.tool_call_id`);
  const toolName = toolNames.get(toolCallId);
  if (toolName === undefined)
    throw invalidMember(`${path}.tool_call_id`, 'names no tool call of an earlier message');
  const output = { type: 'text' as const, value: readText(content, path) };
  return { role: 'tool', content: [{ type: 'tool-result', toolCallId, toolName, output }] };
}

function toUserContent(content: unknown, path: string): UserPart[] {
  if (typeof content === 'string') return [{ type: 'text', text: content }];
  return readList(content, `${path}.content`).map((part, index) =>
    toUserPart(part, `${path}.content[${index}]`),
  );
}

function toUserPart(part: unknown, path: string): UserPart {
  const { type, ...members } = readObject(part, path);
  switch (type) {
    case 'image_url': {
      const { url } = readObject(members['image_url'], `${path}.image_url`);
      const urlPath = `${path}.image_url.url`;
      return toFilePart(readString(url, urlPath), { path: urlPath, mediaType: 'image/*' });
    }
    case 'input_audio': {
      const { data, format } = readObject(members['input_audio'], `${path}.input_audio`);
      const mediaType = `audio/${readString(format, `${path}.input_audio.format`).replace('mp3', 'mpeg')}`;
      const audio = readString(data, `${path}.input_audio.data`);
      return { type: 'file', mediaType, data: { type: 'data', data: audio } };
    }
    case 'file':
      return toUploadedFile(members['file'], `${path}.file`);
    default:
      return { type: 'text', text: readTextPart(part, path) };
  }
}

function toUploadedFile(file: unknown, path: string): UserPart {
  const { file_data: data, filename, file_id: fileId } = readObject(file, path);
  if (fileId !== undefined)
    throw unsupportedMember(
      `${path}.file_id`,
      'This model cannot read files that are stored at another provider; send file_data.',
    );
  const dataPath = `${path}.file_data`;
  const part = toFilePart(readString(data, dataPath), { path: dataPath, mediaType: 'application/pdf' });
  return typeof filename === 'string' ? { ...part, filename } : part;
}

// A data URL carries its bytes and media type. The provider fetches any other URL itself.
function toFilePart(
  url: string,
  { path, mediaType }: { path: string; mediaType: string },
): Extract<UserPart, { type: 'file' }> {
  // The optional group must start with a semicolon: two adjacent runs of the same characters would backtrack
  // quadratically.
  const inline = /^data:([^;,]+)(?:;[^,]*)?;base64,/i.exec(url);
  if (inline)
    return {
      type: 'file',
      mediaType: inline[1] ?? mediaType,
      data: { type: 'data', data: url.slice(inline[0].length) },
    };
  if (/^https?:\/\//i.test(url) && URL.canParse(url))
    return { type: 'file', mediaType, data: { type: 'url', url: new URL(url) } };
  throw invalidMember(path, 'must be a data URL in base64 or an http or https address');
}

function toAssistantContent(message: Message, path: string, toolNames: Map<string, string>): AssistantPart[] {
  const {
    content,
    refusal,
    tool_calls: calls,
    reasoning_content: reasoning,
  } = message as { content?: unknown; refusal?: unknown; tool_calls?: unknown; reasoning_content?: unknown };
  const parts: AssistantPart[] = [];
  if (typeof reasoning === 'string') parts.push({ type: 'reasoning', text: reasoning });
  if (content !== undefined && content !== null) parts.push({ type: 'text', text: readText(content, path) });
  // In answers, and in messages copied from them, `refusal` has the text and `content` is null.
  if (typeof refusal === 'string' && refusal !== '') parts.push({ type: 'text', text: refusal });
  for (const [index, call] of readList(calls ?? [], `${path}.tool_calls`).entries()) {
    const part = toToolCall(call, `${path}.tool_calls[${index}]`);
    toolNames.set(part.toolCallId, part.toolName);
    parts.push(part);
  }
  return parts;
}

function toToolCall(call: unknown, path: string): Extract<AssistantPart, { type: 'tool-call' }> {
  const { id, type = 'function', function: calledFunction } = readObject(call, path);
  if (type !== 'function')
    throw unsupportedMember(
      `${path}.type`,
      `This model takes tool calls of the type function only, not ${readString(type, `${path}.type`)}.`,
    );
  const { name, arguments: input } = readObject(calledFunction, `${path}.function`);
  return {
    type: 'tool-call',
    toolCallId: readString(id, `${path}.id`),
    toolName: readToolName(name, `${path}.function.name`),
    input: parseToolInput(readString(input ?? '', `${path}.function.arguments`)),
  };
}

// A model may have written arguments that are not JSON; they go back as they are. Providers want an object where there
// are none.
function parseToolInput(text: string): unknown {
  if (text.trim() === '') return {};
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

function readText(content: unknown, path: string): string {
  if (typeof content === 'string') return content;
  return readList(content, `${path}.content`)
    .map((part, index) => readTextPart(part, `${path}.content[${index}]`))
    .join('');
}

function readTextPart(part: unknown, path: string): string {
  const { type, text, refusal } = readObject(part, path);
  if (type === 'text') return readString(text, `${path}.text`);
  if (type === 'refusal') return readString(refusal, `${path}.refusal`);
  throw unsupportedMember(path, 'This model takes text only.');
}
