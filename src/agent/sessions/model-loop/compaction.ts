// Compaction: replaces the past of a conversation by a summary. The log keeps all messages; a `compaction.ended` event has
// the summary and the seq up to which it replaces them.
import type { LanguageModelV3 } from '@ai-sdk/provider';
import type { RunUsage } from '../../../contract/agent/types.gen.ts';
import { estimateTokens, type Conversation } from '../event-log/conversation.ts';
import type { ModelMessage } from './loop.ts';
import type { RunWriter } from './run-writer.ts';

export interface CompactionOptions {
  writer: Pick<RunWriter, 'record'>;
  model: LanguageModelV3;
  /** The past to sum up. */
  conversation: Conversation;
  toModelMessages(conversation: Conversation): Promise<ModelMessage[]>;
  summarize(options: {
    model: LanguageModelV3;
    messages: ModelMessage[];
    signal: AbortSignal;
  }): Promise<{ summary: string; usage: RunUsage }>;
  reason: 'asked' | 'full';
  signal: AbortSignal;
}

/** Throws the error of the model; the failed compaction is in the log then. */
export async function compact(options: CompactionOptions): Promise<{ summary: string; usage: RunUsage }> {
  const { writer, model, conversation, reason, signal } = options;
  const messages = await options.toModelMessages(conversation);
  const tokensBefore = estimateTokens(messages);
  const upToSeq = conversation.messages.at(-1)?.seq ?? 0;
  const end = (outcome: 'completed' | 'failed', summary: string | null) => {
    const tokensAfter = summary === null ? tokensBefore : estimateTokens(summary);
    return writer.record([
      { type: 'compaction.ended', outcome, summary, upToSeq, tokensBefore, tokensAfter },
    ]);
  };
  await writer.record([{ type: 'compaction.started', reason, tokens: tokensBefore }]);
  try {
    const { summary, usage } = await options.summarize({ model, messages, signal });
    await end('completed', summary);
    return { summary, usage };
  } catch (error) {
    await end('failed', null);
    throw error;
  }
}
