// Converts the instructions and the input of the responses format to a prompt of the hub.
import type { ResponseRequest } from '../../../../contract/gateway/types.gen.ts';
import { parseToolInput } from '../../../../kernel/json-value.ts';
import type {
  Prompt,
  ProviderOptions,
  AssistantPart,
  ToolOutput,
  UserPart,
} from '../../hub/language-model.ts';
import { invalidMember, readList, readObject, readString } from '../translation/members.ts';
import {
  fileOfData,
  fileOfUrl,
  toToolOutput,
  ToolNames,
  type PromptContext,
} from '../translation/prompt-parts.ts';
import { decodeReplay } from '../translation/replay.ts';
import type { ToolTable } from './tool-table.ts';
import { readChosenTool, toCustomInput } from './tools.ts';
import { unsupportedMember } from '../../hub/problems.ts';

type JsonObject = Record<string, unknown>;
type ToolCallPart = Extract<AssistantPart, { type: 'tool-call' }>;

export interface ResponsePromptContext extends PromptContext {
  table: ToolTable;
}

/**
 * Throws a 400 for a missing member that is optional in the schema but required by the hub, and a 422 for
 * content that the hub cannot express.
 */
export function toPrompt({ instructions, input }: ResponseRequest, context: ResponsePromptContext): Prompt {
  const builder = new PromptBuilder(context);
  if (typeof instructions === 'string') builder.addSystem(instructions);
  else if (Array.isArray(instructions)) builder.addItems(instructions, 'instructions');
  if (typeof input === 'string') builder.addUser([{ type: 'text', text: input }]);
  else if (Array.isArray(input)) builder.addItems(input, 'input');
  else throw invalidMember('input', 'is required by this model');
  return builder.finish();
}

/**
 * Merges adjacent items into one message: a model's reasoning, text and tool calls, or the results of tools.
 */
class PromptBuilder {
  readonly #context: ResponsePromptContext;
  readonly #prompt: Prompt = [];
  readonly #toolNames = new ToolNames();
  readonly #toolCalls = new Map<string, ToolCallPart>();
  /** The replay metadata of a tool call is in a reasoning item of its own, before or after the call. */
  readonly #replays = new Map<string, ProviderOptions>();

  constructor(context: ResponsePromptContext) {
    this.#context = context;
  }

  addSystem(content: string): void {
    if (content !== '') this.#prompt.push({ role: 'system', content });
  }

  addUser(content: UserPart[]): void {
    this.#prompt.push({ role: 'user', content });
  }

  addItems(items: readonly unknown[], name: string): void {
    for (const [index, item] of items.entries()) {
      const path = `${name}[${index}]`;
      this.#addItem(readObject(item, path), path);
    }
  }

  finish(): Prompt {
    for (const [callId, replay] of this.#replays) {
      const part = this.#toolCalls.get(callId);
      if (part !== undefined) part.providerOptions = { ...part.providerOptions, ...replay };
    }
    return this.#prompt;
  }

  #addItem(item: JsonObject, path: string): void {
    switch (item['type'] ?? 'message') {
      case 'message':
        return this.#addMessage(item, path);
      case 'reasoning':
        return this.#addReasoning(item, path);
      case 'function_call':
      case 'custom_tool_call':
        return this.#addToolCall(item, path);
      case 'function_call_output':
      case 'custom_tool_call_output':
        return this.#addToolResult(item, path);
      case 'item_reference':
        throw unsupportedMember(
          path,
          'This model does not support item references; send the items themselves (clients do so with ' +
            'store: false) or previous_response_id.',
        );
      default:
        throw unsupportedMember(
          `${path}.type`,
          `This model does not support items of the type ${readString(item['type'], `${path}.type`).slice(0, 64)}.`,
        );
    }
  }

  #addMessage({ role, content }: JsonObject, path: string): void {
    const contentPath = `${path}.content`;
    switch (role) {
      case 'system':
      case 'developer':
        return this.addSystem(readTexts(content, contentPath));
      case 'user':
        return this.addUser(
          typeof content === 'string'
            ? [{ type: 'text', text: content }]
            : readList(content, contentPath).map((part, index) =>
                toUserPart(part, `${contentPath}[${index}]`, this.#context),
              ),
        );
      case 'assistant': {
        const text = readTexts(content, contentPath);
        if (text !== '') this.#addAssistant({ type: 'text', text });
        return;
      }
      default:
        throw invalidMember(`${path}.role`, 'must be user, assistant, system or developer');
    }
  }

  #addAssistant(part: AssistantPart): void {
    const lastMessage = this.#prompt.at(-1);
    if (lastMessage?.role === 'assistant') lastMessage.content.push(part);
    else this.#prompt.push({ role: 'assistant', content: [part] });
  }

  #addReasoning(item: JsonObject, path: string): void {
    const text = [
      ...readThoughts(item['summary'], `${path}.summary`),
      ...readThoughts(item['content'], `${path}.content`),
    ].join('\n');
    const encryptedText = item['encrypted_content'] ?? '';
    if (typeof encryptedText !== 'string')
      throw invalidMember(`${path}.encrypted_content`, 'must be a string');
    const replay = decodeReplay(encryptedText);
    if (replay?.toolCallId !== undefined) {
      this.#replays.set(replay.toolCallId, replay.options);
      return;
    }
    const options = replay?.options ?? encryptedReasoning(item, encryptedText);
    if (text === '' && Object.keys(options).length === 0) return;
    this.#addAssistant({ type: 'reasoning', text, providerOptions: options });
  }

  #addToolCall(item: JsonObject, path: string): void {
    const toolCallId = readString(item['call_id'], `${path}.call_id`);
    const toolName = readChosenTool(item, path, this.#context.table);
    const input =
      item['type'] === 'function_call'
        ? parseToolInput(readString(item['arguments'], `${path}.arguments`))
        : toCustomInput(readString(item['input'], `${path}.input`));
    const part: ToolCallPart = { type: 'tool-call', toolCallId, toolName, input };
    this.#toolNames.add(toolCallId, toolName);
    this.#toolCalls.set(toolCallId, part);
    this.#addAssistant(part);
  }

  #addToolResult(item: JsonObject, path: string): void {
    const call = this.#toolNames.find(item['call_id'], `${path}.call_id`);
    const output = readToolOutput(item['output'], `${path}.output`, this.#context);
    const part = { type: 'tool-result' as const, ...call, output };
    const lastMessage = this.#prompt.at(-1);
    if (lastMessage?.role === 'tool') lastMessage.content.push(part);
    else this.#prompt.push({ role: 'tool', content: [part] });
  }
}

// Encrypted reasoning that the gateway did not pack is OpenAI's own.
function encryptedReasoning({ id }: JsonObject, encryptedText: string): ProviderOptions {
  if (encryptedText === '') return {};
  return {
    openai: { reasoningEncryptedContent: encryptedText, ...(typeof id === 'string' ? { itemId: id } : {}) },
  };
}

function readThoughts(value: unknown, path: string): string[] {
  if (value === undefined || value === null) return [];
  return readList(value, path).map((part, index) =>
    readString(readObject(part, `${path}[${index}]`)['text'], `${path}[${index}].text`),
  );
}

function readTexts(content: unknown, path: string): string {
  if (typeof content === 'string') return content;
  return readList(content, path)
    .map((part, index) => readText(readObject(part, `${path}[${index}]`), `${path}[${index}]`))
    .join('');
}

function readText(part: JsonObject, path: string): string {
  const type = readString(part['type'], `${path}.type`);
  if (type === 'input_text' || type === 'output_text' || type === 'text')
    return readString(part['text'], `${path}.text`);
  if (type === 'refusal') return readString(part['refusal'], `${path}.refusal`);
  throw unsupportedMember(
    `${path}.type`,
    `This model does not support parts of the type ${type.slice(0, 64)} here.`,
  );
}

function toUserPart(value: unknown, path: string, context: PromptContext): UserPart {
  const part = readObject(value, path);
  switch (part['type']) {
    case 'input_image':
      return toImage(part, path, context);
    case 'input_file':
      return toFile(part, path, context);
    case 'input_audio': {
      const audio = readObject(part['input_audio'], `${path}.input_audio`);
      const format = readString(audio['format'], `${path}.input_audio.format`);
      const data = readString(audio['data'], `${path}.input_audio.data`);
      const mediaType = `audio/${format.replace('mp3', 'mpeg')}`;
      return { type: 'file', ...fileOfData(context.model, data, { path, mediaType }) };
    }
    default:
      return { type: 'text', text: readText(part, path) };
  }
}

function toImage(part: JsonObject, path: string, { model, hints }: PromptContext): UserPart {
  if ((part['detail'] ?? 'auto') !== 'auto') hints.add('detail', 'is not sent to this model');
  if ((part['image_url'] ?? undefined) === undefined) refuseStoredFile(part, path);
  const url = readString(part['image_url'], `${path}.image_url`);
  return { type: 'file', ...fileOfUrl(model, url, { path: `${path}.image_url`, mediaType: 'image/*' }) };
}

function toFile(part: JsonObject, path: string, { model }: PromptContext): UserPart {
  const isData = (part['file_data'] ?? undefined) !== undefined;
  if (!isData && (part['file_url'] ?? undefined) === undefined) refuseStoredFile(part, path);
  const member = isData ? 'file_data' : 'file_url';
  const url = readString(part[member], `${path}.${member}`);
  const file = fileOfUrl(model, url, { path: `${path}.${member}`, mediaType: 'application/pdf' });
  const { filename } = part;
  return { type: 'file', ...file, ...(typeof filename === 'string' ? { filename } : {}) };
}

function refuseStoredFile(part: JsonObject, path: string): void {
  if ((part['file_id'] ?? undefined) === undefined) return;
  throw unsupportedMember(
    `${path}.file_id`,
    'This model cannot read files that are stored at another provider; send the data.',
  );
}

function readToolOutput(output: unknown, path: string, context: PromptContext): ToolOutput {
  if (typeof output === 'string') return { type: 'text', value: output };
  const parts = readList(output, path);
  return toToolOutput(parts.map((part, index) => toUserPart(part, `${path}[${index}]`, context)));
}
