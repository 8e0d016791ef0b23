// Converts call options of the AI SDK into a request of `ai.streamText`. It sends only members of
// the contract, warns about everything it leaves out, and never changes the caller's objects.

import type { StreamRequest } from './generated/types.gen.ts';
/** @ts-ignore: an optional peer; without it these types are `any`. */
import type { LanguageModelV3CallOptions, LanguageModelV3Message, SharedV3Warning } from '@ai-sdk/provider';

export interface ModelSettings {
  /**
   * An id of the model's `reasoning.efforts`; a call may override it with
   * `providerOptions.townhall.reasoningEffort`.
   */
  reasoningEffort?: string | undefined;
}

export interface ModelCall {
  request: StreamRequest;
  warnings: SharedV3Warning[];
}

export function writeModelCall(
  modelId: string,
  settings: ModelSettings,
  options: LanguageModelV3CallOptions,
): ModelCall {
  const { townhall, ...providerOptions } = options.providerOptions ?? {};
  const tools = options.tools?.filter((tool) => tool.type === 'function');
  const warnings = (options.tools ?? [])
    .filter((tool) => tool.type === 'provider')
    .map((tool): SharedV3Warning => ({
      type: 'unsupported',
      feature: `tool ${tool.name}`,
      details: 'Tools that a provider runs are not sent.',
    }));
  const request = {
    model: modelId,
    reasoning_effort: townhall?.['reasoningEffort'] ?? commonReasoning(options) ?? settings.reasoningEffort,
    prompt: options.prompt.map(writeMessage),
    maxOutputTokens: options.maxOutputTokens,
    temperature: options.temperature,
    stopSequences: options.stopSequences,
    topP: options.topP,
    topK: options.topK,
    presencePenalty: options.presencePenalty,
    frequencyPenalty: options.frequencyPenalty,
    responseFormat: options.responseFormat,
    seed: options.seed,
    // Some providers distinguish an empty list from an absent one.
    tools: tools !== undefined && tools.length > 0 ? tools : undefined,
    toolChoice: tools !== undefined && tools.length > 0 ? options.toolChoice : undefined,
    includeRawChunks: options.includeRawChunks,
    providerOptions: Object.keys(providerOptions).length > 0 ? providerOptions : undefined,
  };
  return { request: request as StreamRequest, warnings };
}

/**
 * AI SDK 7 has the common option `reasoning`. The SDK passes it to a version 3 model too, although the
 * type of its options lacks it.
 */
function commonReasoning(options: LanguageModelV3CallOptions): string | undefined {
  const { reasoning } = options as { reasoning?: unknown };
  return typeof reasoning === 'string' && reasoning !== 'provider-default' ? reasoning : undefined;
}

function writeMessage(message: LanguageModelV3Message): unknown {
  if (message.role === 'system') return message;
  return {
    ...message,
    content: message.content.map((part) =>
      part.type === 'file' ? { ...part, data: writeData(part.data) } : part,
    ),
  };
}

function writeData(data: unknown): unknown {
  if (data instanceof Uint8Array) return toBase64(data);
  return data instanceof URL ? data.href : data;
}

/**
 * Base64 with functions that browsers and all Node versions have. Works in slices, because engines limit
 * the number of arguments of a call.
 */
export function toBase64(bytes: Uint8Array): string {
  const sliceBytes = 0x8000;
  let binary = '';
  for (let start = 0; start < bytes.length; start += sliceBytes) {
    binary += String.fromCharCode(...bytes.subarray(start, start + sliceBytes));
  }
  return btoa(binary);
}
