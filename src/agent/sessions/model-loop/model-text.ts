// One model call that only generates text, such as a summary.
import type { LanguageModelV3, LanguageModelV3Message } from '@ai-sdk/provider';
import type { RunUsage } from '../../../contract/agent/types.gen.ts';
import { addUsage, noUsage, readUsage } from './usage.ts';

/** Throws the error of the model. The text may be empty. */
export async function generateText({
  model,
  prompt,
  signal,
}: {
  model: LanguageModelV3;
  prompt: LanguageModelV3Message[];
  signal: AbortSignal;
}): Promise<{ text: string; usage: RunUsage }> {
  const { stream } = await model.doStream({ prompt, abortSignal: signal });
  const usage: RunUsage = { ...noUsage };
  let text = '';
  for await (const part of stream) {
    if (part.type === 'text-delta') text += part.delta;
    else if (part.type === 'error') throw asError(part.error);
    else if (part.type === 'finish') addUsage(usage, readUsage(part.usage, part.providerMetadata));
  }
  signal.throwIfAborted();
  return { text, usage };
}

function asError(error: unknown): Error {
  return error instanceof Error ? error : new Error('The model failed.', { cause: error });
}
