// Asks a model for the summary of a conversation.
import { streamText, type ModelMessage } from 'ai';
import type { LanguageModelV3 } from '@ai-sdk/provider';
import type { RunUsage } from '../../../contract/agent/types.gen.ts';

const instructions = [
  'Sum up the conversation above for your own later use, as the only thing that you will still see of it.',
  'Keep every fact, decision, name, path, number and open task that may still matter, and what the person wants.',
  'Answer with the summary alone.',
].join(' ');

/** Throws the error of the model, or another one when the summary is empty. */
export async function summarize({
  model,
  messages,
  signal,
}: {
  model: LanguageModelV3;
  messages: ModelMessage[];
  signal: AbortSignal;
}): Promise<{ summary: string; usage: RunUsage }> {
  let failure: unknown;
  let summary = '';
  const usage: RunUsage = { inputTokens: 0, outputTokens: 0 };
  const result = streamText({
    model,
    messages: [...messages, { role: 'user', content: instructions }],
    maxRetries: 0,
    abortSignal: signal,
    onError: () => {},
  });
  for await (const part of result.stream) {
    if (part.type === 'text-delta') summary += part.text;
    else if (part.type === 'error') failure ??= part.error;
    else if (part.type === 'finish-step') {
      usage.inputTokens += part.usage.inputTokens ?? 0;
      usage.outputTokens += part.usage.outputTokens ?? 0;
    }
  }
  signal.throwIfAborted();
  if (failure !== undefined)
    throw failure instanceof Error ? failure : new Error('The model failed.', { cause: failure });
  if (summary.trim() === '') throw new Error('The model gave no summary.');
  return { summary, usage };
}
