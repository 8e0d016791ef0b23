// The hub: the common interface of all language models inside this service. Formats (text, stream, chat
// completions) translate requests to `ModelCall`, providers implement `LanguageModel`, so n formats and
// m providers need n + m translations. Calls and parts are version 4 of the AI SDK's language-model
// specification, which its provider packages implement; formats/language-model.ts translates version 3.
import type {
  LanguageModelV4CallOptions,
  LanguageModelV4Content,
  LanguageModelV4FinishReason,
  LanguageModelV4Prompt,
  LanguageModelV4Source,
  LanguageModelV4StreamPart,
  LanguageModelV4Usage,
  SharedV4ProviderMetadata,
  SharedV4ProviderOptions,
  SharedV4Warning,
} from '@ai-sdk/provider';

export type Prompt = LanguageModelV4Prompt;
export type PromptMessage = LanguageModelV4Prompt[number];
export type UserPart = Extract<PromptMessage, { role: 'user' }>['content'][number];
export type AssistantPart = Extract<PromptMessage, { role: 'assistant' }>['content'][number];
export type ToolPart = Extract<PromptMessage, { role: 'tool' }>['content'][number];
export type ToolOutput = Extract<ToolPart, { type: 'tool-result' }>['output'];
export type StreamPart = LanguageModelV4StreamPart;
export type FinishReason = LanguageModelV4FinishReason;
export type Usage = LanguageModelV4Usage;
export type Source = LanguageModelV4Source;
export type Warning = SharedV4Warning;
export type ProviderMetadata = SharedV4ProviderMetadata;
export type ProviderOptions = SharedV4ProviderOptions;

/** One call of a model. */
export interface ModelCall extends Omit<LanguageModelV4CallOptions, 'abortSignal' | 'headers' | 'reasoning'> {
  /** One of the model's efforts, already checked; undefined sends none. */
  reasoningEffort: string | undefined;
  signal: AbortSignal;
  /** Names of the members in the caller's format, for errors. Never sent to a provider. */
  memberNames?: MemberNames;
}

export interface MemberNames {
  prompt: string;
  /** The schema of the answer. */
  responseSchema: string;
  /** The schema of a tool's input, within `tools[index]`. */
  toolSchema: string;
}

export type Content = LanguageModelV4Content;

/** A whole answer. */
export interface Answer {
  content: Content[];
  finishReason: FinishReason;
  usage: Usage;
  warnings: Warning[];
  providerMetadata?: ProviderMetadata | undefined;
}

/** A model that can be called. Both methods throw Problems whose messages are for the caller. */
export interface LanguageModel {
  generate(call: ModelCall): Promise<Answer>;
  /** A failure midway is thrown from the iteration or is an `error` part. */
  stream(call: ModelCall): AsyncIterable<StreamPart>;
}

/** A text or reasoning block that is still receiving deltas. */
type OpenBlock = { type: 'text' | 'reasoning'; text: string };

/** Collects the parts of a stream into a whole answer. Throws the error of an `error` part. */
export async function collectAnswer(parts: AsyncIterable<StreamPart>): Promise<Answer> {
  const answer: Answer = {
    content: [],
    finishReason: { unified: 'other', raw: undefined },
    usage: unknownUsage(),
    warnings: [],
  };
  const openBlocks = new Map<string, OpenBlock>();
  for await (const part of parts) addPart(answer, openBlocks, part);
  return answer;
}

function addPart(answer: Answer, openBlocks: Map<string, OpenBlock>, part: StreamPart): void {
  switch (part.type) {
    case 'stream-start':
      answer.warnings.push(...part.warnings);
      break;
    case 'text-start':
    case 'reasoning-start': {
      const block: OpenBlock = { type: part.type === 'text-start' ? 'text' : 'reasoning', text: '' };
      openBlocks.set(part.id, block);
      answer.content.push(block);
      break;
    }
    case 'text-delta':
    case 'reasoning-delta': {
      const block = openBlocks.get(part.id);
      if (block) block.text += part.delta;
      break;
    }
    case 'tool-call':
    case 'tool-result':
    case 'tool-approval-request':
    case 'file':
    case 'reasoning-file':
    case 'custom':
    case 'source':
      answer.content.push(part);
      break;
    case 'error':
      throw part.error;
    case 'finish':
      answer.finishReason = part.finishReason;
      answer.usage = part.usage;
      answer.providerMetadata = part.providerMetadata;
      break;
    default:
      // The other part types have no counterpart in a whole answer.
      break;
  }
}

/** Usage without any counts. */
export function unknownUsage(): Usage {
  return {
    inputTokens: { total: undefined, noCache: undefined, cacheRead: undefined, cacheWrite: undefined },
    outputTokens: { total: undefined, text: undefined, reasoning: undefined },
  };
}

/** A provider's token count; undefined if it is negative, fractional or above the safe integers. */
export function validTokenCount(count: number | null | undefined): number | undefined {
  return typeof count === 'number' && Number.isSafeInteger(count) && count >= 0 ? count : undefined;
}

/** Formats sources as text to append to the answer, for formats without a member for them. */
export function formatSourceList(sources: readonly Source[]): string {
  if (sources.length === 0) return '';
  const lines = sources.map((source) =>
    source.sourceType === 'url'
      ? `- ${source.title ?? source.url} (${source.url})`
      : `- ${source.title} (${source.filename ?? source.mediaType})`,
  );
  return `\n\nSources:\n${lines.join('\n')}`;
}
