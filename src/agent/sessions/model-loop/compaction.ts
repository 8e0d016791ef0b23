// Shortening what a model is shown of a long past. The log keeps all of it; a compaction is an event that says what
// stands in the place of everything up to a seq.
import type { LanguageModelV3 } from '@ai-sdk/provider';
import type { RunUsage } from '../../../contract/agent/types.gen.ts';
import { estimateTokens, type Conversation } from '../event-log/conversation.ts';
import type { RunWriter } from './run-writer.ts';
import type { ModelMessage } from './loop.ts';

export interface CompactionNeeds {
  journal: Pick<RunWriter, 'record'>;
  model: LanguageModelV3;
  /** What is to be summed up; the seq of its newest message is where the summary ends. */
  talk: Conversation;
  toModelMessages(talk: Conversation): Promise<ModelMessage[]>;
  summarize(needs: {
    model: LanguageModelV3;
    messages: ModelMessage[];
    signal: AbortSignal;
  }): Promise<{ summary: string; usage: RunUsage }>;
  reason: 'asked' | 'full';
  signal: AbortSignal;
}

/** The new summary. Throws what the model's failure is, with that failure in the log. */
export async function compact({
  journal,
  model,
  talk,
  toModelMessages,
  summarize,
  reason,
  signal,
}: CompactionNeeds): Promise<{ summary: string; usage: RunUsage }> {
  const messages = await toModelMessages(talk);
  const tokensBefore = estimateTokens(messages);
  const upToSeq = talk.spoken.at(-1)?.seq ?? 0;
  await journal.record([{ type: 'compaction.started', reason, tokens: tokensBefore }]);
  try {
    const { summary, usage } = await summarize({ model, messages, signal });
    await journal.record([
      {
        type: 'compaction.ended',
        outcome: 'completed',
        summary,
        upToSeq,
        tokensBefore,
        tokensAfter: estimateTokens(summary),
      },
    ]);
    return { summary, usage };
  } catch (error) {
    await journal.record([
      {
        type: 'compaction.ended',
        outcome: 'failed',
        summary: null,
        upToSeq,
        tokensBefore,
        tokensAfter: tokensBefore,
      },
    ]);
    throw error;
  }
}
