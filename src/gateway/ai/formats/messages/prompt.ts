// Converts the system prompt and the messages of Anthropic's format to a prompt of the hub.
import type { MessageRequest } from '../../../../contract/gateway/types.gen.ts';
import { asRecord } from '../../../../kernel/json-value.ts';
import type {
  Prompt,
  ProviderOptions,
  AssistantPart,
  PromptMessage,
  ToolPart,
  UserPart,
} from '../../hub/language-model.ts';
import { invalidMember, readList, readObject, readString, readToolName } from '../translation/members.ts';
import { cacheMark } from '../translation/cache-mark.ts';
import {
  fileOfData,
  fileOfAddress,
  type PromptContext,
  toToolOutput,
  ToolNames,
} from '../translation/prompt-parts.ts';
import { decodeReplay } from '../translation/replay.ts';
import { unsupportedMember } from '../../hub/problems.ts';

interface ReadContext extends PromptContext {
  toolNames: ToolNames;
}

type JsonObject = Record<string, unknown>;

/**
 * Throws a 400 for a missing member that is optional in the schema but required by the hub, and a 422 for
 * content that the hub cannot express.
 */
export function toPrompt({ system, messages }: MessageRequest, options: PromptContext): Prompt {
  const context: ReadContext = { ...options, toolNames: new ToolNames() };
  return [
    ...toSystemMessages(system ?? undefined, 'system', context),
    ...messages.flatMap((message, index): PromptMessage[] => {
      const path = `messages[${index}]`;
      const { role, content } = message as { role: unknown; content?: unknown };
      switch (role) {
        case 'user':
          return toUserMessages(content, `${path}.content`, context);
        case 'assistant':
          return [{ role: 'assistant', content: toAssistantContent(content, `${path}.content`, context) }];
        case 'system':
          return toSystemMessages(content, `${path}.content`, context);
        default:
          throw invalidMember(`${path}.role`, 'must be user, assistant or system');
      }
    }),
  ];
}

function toSystemMessages(content: unknown, path: string, context: ReadContext): PromptMessage[] {
  if (content === undefined || content === '') return [];
  if (typeof content === 'string') return [{ role: 'system', content }];
  return readList(content, path).map((item, index): PromptMessage => {
    const block = readBlock(item, `${path}[${index}]`);
    return {
      role: 'system',
      content: readText(block, `${path}[${index}]`),
      ...cacheMark(block, { ...context, path: `${path}[${index}]` }),
    };
  });
}

// In the hub, tool results are separate messages; the user's other parts keep their order around them.
function toUserMessages(content: unknown, path: string, context: ReadContext): PromptMessage[] {
  if (typeof content === 'string') return [{ role: 'user', content: [{ type: 'text', text: content }] }];
  const messages: PromptMessage[] = [];
  for (const [index, item] of readList(content, path).entries()) {
    const block = readBlock(item, `${path}[${index}]`);
    const lastMessage = messages.at(-1);
    if (block['type'] === 'tool_result') {
      const part = toToolResult(block, `${path}[${index}]`, context);
      if (lastMessage?.role === 'tool') lastMessage.content.push(part);
      else messages.push({ role: 'tool', content: [part] });
    } else {
      const part = toUserPart(block, `${path}[${index}]`, context);
      if (lastMessage?.role === 'user') lastMessage.content.push(part);
      else messages.push({ role: 'user', content: [part] });
    }
  }
  return messages;
}

function toUserPart(block: JsonObject, path: string, context: ReadContext): UserPart {
  switch (block['type']) {
    case 'text':
      return { type: 'text', text: readText(block, path), ...cacheMark(block, { ...context, path }) };
    case 'image':
    case 'document':
      return toFilePart(block, path, context);
    default:
      throw unsupportedBlock(block, path);
  }
}

function toFilePart(block: JsonObject, path: string, context: ReadContext): UserPart {
  const { model } = context;
  const source = readObject(block['source'], `${path}.source`);
  const type = readString(source['type'], `${path}.source.type`);
  const isImage = block['type'] === 'image';
  const title = block['title'];
  const filename = typeof title === 'string' && !isImage ? { filename: title } : {};
  const mark = cacheMark(block, { ...context, path });
  addDocumentHints(block, type, context);
  if (type === 'text' && !isImage)
    return { type: 'text', text: readString(source['data'], `${path}.source.data`), ...mark };
  if (type === 'content' && !isImage)
    return { type: 'text', text: readTexts(source['content'], `${path}.source.content`), ...mark };
  if (type === 'base64') {
    const mediaType = readString(source['media_type'], `${path}.source.media_type`);
    const data = readString(source['data'], `${path}.source.data`);
    return { type: 'file', ...fileOfData(model, data, { path, mediaType }), ...filename, ...mark };
  }
  if (type === 'url') {
    const url = readString(source['url'], `${path}.source.url`);
    const mediaType = isImage ? 'image/*' : 'application/pdf';
    const file = fileOfAddress(model, url, { path: `${path}.source.url`, mediaType });
    return { type: 'file', ...file, ...filename, ...mark };
  }
  if (type === 'file')
    throw unsupportedMember(
      `${path}.source.file_id`,
      'This model cannot read files that are stored at another provider; send the source as base64.',
    );
  throw invalidMember(`${path}.source.type`, 'must be base64, url, text or content');
}

/** Warns of the members of a document that its text or file does not carry. */
function addDocumentHints(block: JsonObject, sourceType: string, { hints }: ReadContext): void {
  const isText = sourceType === 'text' || sourceType === 'content';
  const dropped = {
    citations: asRecord(block['citations'])['enabled'] === true,
    context: typeof block['context'] === 'string',
    // The title of a file becomes its name.
    title: typeof block['title'] === 'string' && isText,
  };
  for (const [member, isDropped] of Object.entries(dropped))
    if (isDropped) hints.add(member, 'is not sent to this model with a document');
}

function toToolResult(block: JsonObject, path: string, context: ReadContext): ToolPart {
  const call = context.toolNames.find(block['tool_use_id'], `${path}.tool_use_id`);
  const parts = readResultParts(block['content'], `${path}.content`, context);
  const output = toToolOutput(parts, block['is_error'] === true);
  // In the hub, the parts of a result have no marks: the last marked one marks the result.
  const { providerOptions: partMark } = parts.findLast((part) => part.providerOptions !== undefined) ?? {};
  return {
    type: 'tool-result',
    ...call,
    output,
    ...(partMark === undefined ? {} : { providerOptions: partMark }),
    ...cacheMark(block, { ...context, path }),
  };
}

function readResultParts(content: unknown, path: string, context: ReadContext): UserPart[] {
  if (typeof content === 'string') return [{ type: 'text', text: content }];
  return readList(content ?? [], path).map((item, index) => {
    const partPath = `${path}[${index}]`;
    return toUserPart(readBlock(item, partPath), partPath, context);
  });
}

function toAssistantContent(content: unknown, path: string, context: ReadContext): AssistantPart[] {
  if (typeof content === 'string') return content === '' ? [] : [{ type: 'text', text: content }];
  const parts: AssistantPart[] = [];
  // The replay metadata of a tool call is in a block of its own, before or after the call.
  const replays = new Map<string, ProviderOptions>();
  for (const [index, item] of readList(content, path).entries()) {
    const blockPath = `${path}[${index}]`;
    const block = readBlock(item, blockPath);
    const part = toAssistantPart(block, blockPath, { context, replays });
    if (part !== undefined) parts.push(part);
  }
  return parts.map((part) => {
    const replay = part.type === 'tool-call' ? replays.get(part.toolCallId) : undefined;
    return replay === undefined ? part : { ...part, providerOptions: { ...part.providerOptions, ...replay } };
  });
}

function toAssistantPart(
  block: JsonObject,
  path: string,
  { context, replays }: { context: ReadContext; replays: Map<string, ProviderOptions> },
): AssistantPart | undefined {
  switch (block['type']) {
    case 'text':
      return { type: 'text', text: readText(block, path), ...cacheMark(block, { ...context, path }) };
    case 'thinking':
      return toReasoning(readString(block['thinking'], `${path}.thinking`), block['signature'] ?? '');
    case 'redacted_thinking': {
      const data = readString(block['data'], `${path}.data`);
      const replay = decodeReplay(data);
      if (replay?.toolCallId !== undefined) {
        replays.set(replay.toolCallId, replay.options);
        return undefined;
      }
      const options = replay?.options ?? { anthropic: { redactedData: data } };
      return { type: 'reasoning', text: '', providerOptions: options };
    }
    case 'tool_use': {
      const toolCallId = readString(block['id'], `${path}.id`);
      const toolName = readToolName(block['name'], `${path}.name`);
      context.toolNames.add(toolCallId, toolName);
      const input = block['input'] ?? {};
      return { type: 'tool-call', toolCallId, toolName, input, ...cacheMark(block, { ...context, path }) };
    }
    default:
      throw unsupportedBlock(block, path);
  }
}

// A signature without the gateway's prefix is Anthropic's own: a conversation may
// move from one model to another.
function toReasoning(text: string, signature: unknown): AssistantPart {
  if (typeof signature !== 'string' || signature === '') return { type: 'reasoning', text };
  const options = decodeReplay(signature)?.options ?? { anthropic: { signature } };
  return { type: 'reasoning', text, providerOptions: options };
}

function readBlock(value: unknown, path: string): JsonObject {
  const block = readObject(value, path);
  readString(block['type'], `${path}.type`);
  return block;
}

function readText(block: JsonObject, path: string): string {
  if (block['type'] !== 'text') throw unsupportedBlock(block, path);
  return readString(block['text'], `${path}.text`);
}

function readTexts(content: unknown, path: string): string {
  if (typeof content === 'string') return content;
  return readList(content, path)
    .map((item, index) => readText(readBlock(item, `${path}[${index}]`), `${path}[${index}]`))
    .join('\n');
}

function unsupportedBlock(block: JsonObject, path: string): Error {
  return unsupportedMember(
    `${path}.type`,
    `This model does not support blocks of the type ${readString(block['type'], `${path}.type`).slice(0, 64)} here.`,
  );
}
