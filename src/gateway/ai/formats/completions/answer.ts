// Serializes answers of the hub in OpenAI's older completions format, whole or as chunks of a stream.
import type { Completion } from '../../../../contract/gateway/types.gen.ts';
import type { Answer, StreamPart } from '../../hub/language-model.ts';
import {
  type ChunkOptions,
  type CompletionOptions,
  serializeFinishReason,
  serializeUsage,
} from '../chat-completions/answer.ts';
import { requireSuccess, truncatedAnswer } from '../translation/finish.ts';

/** The text of the answer as one completion. Throws for a failed answer. */
export function serializeCompletion(answer: Answer, options: CompletionOptions): Completion {
  requireSuccess(answer.finishReason);
  const text = answer.content.map((part) => (part.type === 'text' ? part.text : '')).join('');
  return {
    ...toChunk(options, text, serializeFinishReason(answer.finishReason)),
    usage: serializeUsage(answer.usage),
  };
}

/**
 * The text of a stream as chunks; reasoning is left out. A last chunk without choices carries the usage
 * when the caller requested it. Throws the errors of the parts, and a Problem when the parts end early.
 */
export async function* serializeChunks(
  parts: AsyncIterable<StreamPart>,
  options: ChunkOptions,
): AsyncGenerator<Completion> {
  const { includeUsage, onWarnings } = options;
  const createChunk = (text: string, reason: string | null = null): Completion => ({
    ...toChunk(options, text, reason),
    ...(includeUsage ? { usage: null } : {}),
  });
  for await (const part of parts) {
    switch (part.type) {
      case 'stream-start':
        onWarnings(part.warnings);
        break;
      case 'text-delta':
        yield createChunk(part.delta);
        break;
      case 'error':
        throw part.error;
      case 'finish':
        requireSuccess(part.finishReason);
        yield createChunk('', serializeFinishReason(part.finishReason));
        if (includeUsage) yield { ...createChunk(''), choices: [], usage: serializeUsage(part.usage) };
        return;
      default:
        // The format has only text.
        break;
    }
  }
  throw truncatedAnswer();
}

function toChunk(
  { completionId, createdSeconds, modelId }: CompletionOptions,
  text: string,
  finishReason: string | null,
): Completion {
  return {
    id: completionId,
    object: 'text_completion',
    created: createdSeconds,
    model: modelId,
    choices: [{ index: 0, text, logprobs: null, finish_reason: finishReason }],
  };
}
