// Serializes the parts of a streamed answer as chunks of the AI SDK's UI message stream, version 1.
import type { StreamPart as SpecPart, UiChatChunk } from '../../../../contract/gateway/types.gen.ts';
import { parseToolInput } from '../../../../kernel/json-value.ts';
import type { Warning } from '../../hub/language-model.ts';

export interface ChunkOptions {
  messageId: string;
  /** The catalog's id of the called model. */
  modelId: string;
  /** The names of the request's tools. The SDK calls all others dynamic. */
  toolNames: ReadonlySet<string>;
  /** Called before the first chunk with the options of the call that the model ignores. */
  onWarnings: (warnings: readonly Warning[]) => void;
}

/** Expects the parts of the language-model format: in order, balanced, with one `finish` at the end. */
export async function* serializeChunks(
  parts: AsyncIterable<SpecPart>,
  options: ChunkOptions,
): AsyncGenerator<UiChatChunk> {
  for await (const part of parts) {
    if (part.type === 'stream-start') {
      options.onWarnings(part.warnings as readonly Warning[]);
      yield { type: 'start', messageId: options.messageId };
      yield { type: 'start-step' };
    } else if (part.type === 'finish') {
      yield { type: 'finish-step' };
      yield toFinish(part, options.modelId);
    } else {
      const chunk = toChunk(part, options.toolNames);
      if (chunk !== undefined) yield chunk;
    }
  }
}

/** Undefined for a part without a counterpart in the format. */
function toChunk(part: SpecPart, toolNames: ReadonlySet<string>): UiChatChunk | undefined {
  switch (part.type) {
    case 'text-start':
    case 'text-delta':
    case 'text-end':
    case 'reasoning-start':
    case 'reasoning-delta':
    case 'reasoning-end':
    case 'custom':
      return part;
    case 'tool-input-start': {
      const { id: toolCallId, ...members } = part;
      return { ...members, ...dynamicMark(part, toolNames), toolCallId };
    }
    case 'tool-input-delta':
      return { type: 'tool-input-delta', toolCallId: part.id, inputTextDelta: part.delta };
    case 'tool-call':
      return toToolInput(part, toolNames);
    case 'tool-result':
      return toToolOutput(part, toolNames);
    case 'tool-approval-request':
      return { type: 'tool-approval-request', approvalId: part.approvalId, toolCallId: part.toolCallId };
    case 'source':
      return toSource(part);
    case 'file':
    case 'reasoning-file':
      return toFile(part);
    case 'error':
      return { type: 'error', errorText: part.error.message, error: part.error };
    default:
      return undefined;
  }
}

type ToolCall = Extract<SpecPart, { type: 'tool-call' }>;

/** A call that the browser cannot run becomes an error, which the model reads in the next step. */
function toToolInput(part: ToolCall, toolNames: ReadonlySet<string>): UiChatChunk {
  const { type: _type, input: text, ...members } = part;
  const input = parseToolInput(text);
  const mark = dynamicMark(part, toolNames);
  const errorText = toolErrorOf(part, toolNames);
  return errorText === undefined
    ? { type: 'tool-input-available', ...members, ...mark, input }
    : { type: 'tool-input-error', ...members, ...mark, input, errorText };
}

function toolErrorOf({ toolName, input, providerExecuted }: ToolCall, toolNames: ReadonlySet<string>) {
  if (providerExecuted === true) return undefined;
  if (!toolNames.has(toolName)) return `The request has no tool ${toolName}.`;
  return typeof parseToolInput(input) === 'string'
    ? 'The input of the tool is not a JSON object.'
    : undefined;
}

function dynamicMark(
  { toolName, dynamic }: { toolName: string; dynamic?: boolean },
  toolNames: ReadonlySet<string>,
): { dynamic?: boolean } {
  return dynamic === true || !toolNames.has(toolName) ? { dynamic: true } : {};
}

function toToolOutput(
  part: Extract<SpecPart, { type: 'tool-result' }>,
  toolNames: ReadonlySet<string>,
): UiChatChunk {
  const { toolCallId, result, isError, preliminary, providerMetadata } = part;
  const members = {
    toolCallId,
    providerExecuted: true,
    ...dynamicMark(part, toolNames),
    ...(providerMetadata === undefined ? {} : { providerMetadata }),
  };
  if (isError === true)
    return {
      type: 'tool-output-error',
      ...members,
      errorText: typeof result === 'string' ? result : JSON.stringify(result ?? null),
    };
  return {
    type: 'tool-output-available',
    ...members,
    output: result ?? null,
    ...(preliminary === undefined ? {} : { preliminary }),
  };
}

function toSource(part: Extract<SpecPart, { type: 'source' }>): UiChatChunk {
  const { id: sourceId, sourceType, url = '', title, mediaType, filename, providerMetadata } = part;
  const metadata = providerMetadata === undefined ? {} : { providerMetadata };
  if (sourceType === 'url')
    return { type: 'source-url', sourceId, url, ...(title === undefined ? {} : { title }), ...metadata };
  return {
    type: 'source-document',
    sourceId,
    mediaType: mediaType ?? 'application/octet-stream',
    title: title ?? filename ?? sourceId,
    ...(filename === undefined ? {} : { filename }),
    ...metadata,
  };
}

function toFile(part: Extract<SpecPart, { type: 'file' | 'reasoning-file' }>): UiChatChunk | undefined {
  const { type, mediaType, data, providerMetadata } = part;
  const url = urlOf(data, mediaType);
  if (url === undefined) return undefined;
  return { type, mediaType, url, ...(providerMetadata === undefined ? {} : { providerMetadata }) };
}

function urlOf(data: unknown, mediaType: string): string | undefined {
  if (typeof data === 'string') return `data:${mediaType};base64,${data}`;
  const { type, data: content, url } = data as { type: string; data?: string; url?: string };
  return type === 'url' ? url : `data:${mediaType};base64,${content ?? ''}`;
}

function toFinish(
  { finishReason, usage, providerMetadata }: Extract<SpecPart, { type: 'finish' }>,
  model: string,
): UiChatChunk {
  const credits = providerMetadata?.['townhall']?.['credits'];
  return {
    type: 'finish',
    finishReason: finishReason.unified,
    // A failed call has no price that the stream could wait for.
    ...(typeof credits === 'number'
      ? { messageMetadata: { townhall: { model, usage: withoutRaw(usage), credits } } }
      : {}),
  };
}

function withoutRaw({ inputTokens, outputTokens }: Extract<SpecPart, { type: 'finish' }>['usage']) {
  return { inputTokens, outputTokens };
}
