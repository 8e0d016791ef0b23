// Estimates the tokens of a prompt. The counts of providers differ from it by about ten percent; the loop
// also reads the usage of each step and uses the larger number.
import type { LanguageModelV3Message } from '@ai-sdk/provider';
import { fileTokens } from './media-tokens.ts';

// Names and brackets that a provider puts around a part.
const tokensPerPart = 6;

/** One token for four characters of English, and about one for each character of Chinese. */
export function estimateText(text: string): number {
  return Math.ceil((text.length + 1.5 * (Buffer.byteLength(text) - text.length)) / 4);
}

export function estimateJson(value: unknown): number {
  return typeof value === 'string' ? estimateText(value) : estimateText(JSON.stringify(value) ?? '');
}

// A message of a prompt never changes, and every step counts all of them.
const cache = new WeakMap<LanguageModelV3Message, number>();

export function estimateMessages(messages: readonly LanguageModelV3Message[]): number {
  return messages.reduce((sum, message) => sum + estimateMessage(message), 0);
}

function estimateMessage(message: LanguageModelV3Message): number {
  const cachedEstimate = cache.get(message);
  if (cachedEstimate !== undefined) return cachedEstimate;
  const tokens =
    typeof message.content === 'string'
      ? estimateText(message.content) + tokensPerPart
      : message.content.reduce((sum, part) => sum + estimatePart(part) + tokensPerPart, 0);
  cache.set(message, tokens);
  return tokens;
}

type Part = Exclude<LanguageModelV3Message['content'], string>[number];

function estimatePart(part: Part): number {
  switch (part.type) {
    case 'text':
    case 'reasoning':
      return estimateText(part.text);
    case 'file':
      return fileTokens(part.mediaType, typeof part.data === 'string' ? part.data : '');
    case 'tool-call':
      return estimateText(part.toolName) + estimateJson(part.input);
    case 'tool-result':
      return estimateJson('value' in part.output ? part.output.value : '');
    default:
      return 0;
  }
}
