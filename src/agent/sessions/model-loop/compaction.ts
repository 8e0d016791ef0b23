// Compaction: replaces the earlier messages of a conversation by a summary. The log keeps all messages; a
// `compaction.ended` event has the summary and the seq up to which it replaces them.
import type { LanguageModelV3 } from '@ai-sdk/provider';
import type { RunUsage, UiMessagePart } from '../../../contract/agent/types.gen.ts';
import type { Conversation } from '../event-log/conversation.ts';
import { estimateText } from './prompt/estimate.ts';
import { splitSteps } from './prompt/answer.ts';
import type { RunWriter } from './run-writer.ts';
import { summarize } from './summary.ts';
import { transcriptOf } from './prompt/transcript.ts';

/** The part of a conversation that a summary replaces. */
export interface CompactionPlan {
  upToSeq: number;
  cut: Conversation['cut'];
  transcript: string[];
}

export interface CompactionOptions {
  writer: Pick<RunWriter, 'record'>;
  model: LanguageModelV3;
  plan: CompactionPlan;
  /** The summary that the new one replaces too. */
  earlierSummary: string | null;
  contextTokens: number | null;
  reason: 'asked' | 'full';
  signal: AbortSignal;
  /** Waits, and resolves when the failed model call may be repeated; throws `error` when it is final. */
  recover(error: unknown): Promise<void>;
}

// The window that is assumed for a model whose window is unknown. It is smaller than the one that
// `context.ts` assumes for a prompt, because summaries of longer requests are rarely good.
const defaultWindow = 100_000;
const requestShare = 0.5;
const summaryShare = 0.1;
const maxSummaryTokens = 8_000;

/**
 * Summarizes and records the result; `seq` is that of the event with the summary. Throws the error of the
 * model, after it has recorded the failed compaction.
 */
export async function compact(
  options: CompactionOptions,
): Promise<{ summary: string; usage: RunUsage; seq: number }> {
  const { writer, plan, earlierSummary, contextTokens, reason } = options;
  const window = contextTokens ?? defaultWindow;
  const tokensBefore = estimateText([earlierSummary ?? '', ...plan.transcript].join('\n'));
  const recordEnd = (outcome: 'completed' | 'failed', summary: string | null) => {
    const { upToSeq, cut } = plan;
    const tokensAfter = summary === null ? tokensBefore : estimateText(summary);
    const cutMember = cut === null ? {} : { cut };
    return writer.record([
      { type: 'compaction.ended', outcome, summary, upToSeq, ...cutMember, tokensBefore, tokensAfter },
    ]);
  };
  await writer.record([{ type: 'compaction.started', reason, tokens: tokensBefore }]);
  let result: Awaited<ReturnType<typeof summarize>>;
  try {
    result = await summarize({
      model: options.model,
      earlierSummary,
      transcript: plan.transcript,
      maxRequestTokens: Math.floor(window * requestShare),
      maxSummaryTokens: Math.min(maxSummaryTokens, Math.floor(window * summaryShare)),
      signal: options.signal,
      recover: options.recover,
    });
  } catch (error) {
    await recordEnd('failed', null);
    throw error;
  }
  return { ...result, seq: await recordEnd('completed', result.summary) };
}

/** Plans to replace the whole conversation. */
export function planWholeConversation(conversation: Conversation): CompactionPlan {
  const { messages, cut } = conversation;
  return {
    upToSeq: messages.at(-1)?.seq ?? 0,
    cut: null,
    transcript: messages.flatMap(({ message }) => {
      const skippedSteps = cut?.messageId === message.id ? cut.steps : 0;
      return transcriptOf({ ...message, parts: splitSteps(message.parts).slice(skippedSteps).flat() });
    }),
  };
}

export interface RunPast {
  conversation: Conversation;
  /** The tokens of each message of the conversation. */
  messageTokens: readonly number[];
  /** The message that the model is writing. */
  messageId: string;
  parts: readonly UiMessagePart[];
  /** The tokens of each step of the message that the model is writing. */
  stepTokens: readonly number[];
}

/** A plan with the number of prompt tokens that it replaces, without those of the earlier summary. */
export type RunCompactionPlan = CompactionPlan & { tokens: number };

/**
 * Plans what to summarize during a run, so that about `keepTokens` remain. The input of the run and its last
 * step always remain; an earlier turn is kept or replaced as a whole. Null when nothing is left to summarize.
 */
export function planWithinRun(past: RunPast, keepTokens: number): RunCompactionPlan | null {
  const { conversation, parts, stepTokens, messageId, messageTokens } = past;
  const { messages, cut } = conversation;
  const inputIndex = messages.findLastIndex(({ message }) => message.role === 'user');
  const input = messages[inputIndex];
  if (!input) return null;
  const skippedSteps = cut?.messageId === messageId ? cut.steps : 0;
  const { from: fromStep, tokens } = keepSteps(stepTokens, skippedSteps, keepTokens);
  if (fromStep > skippedSteps) {
    const steps = splitSteps(parts).slice(skippedSteps, fromStep);
    // The input stays in the prompt, but a summary of its first steps makes no sense without it.
    const earlierPart = { ...conversation, messages: messages.slice(0, inputIndex + 1) };
    const stepTexts = steps.flatMap((step) => transcriptOf({ role: 'assistant', parts: step }));
    return {
      upToSeq: input.seq - 1,
      cut: { messageId, steps: fromStep },
      transcript: [...planWholeConversation(earlierPart).transcript, ...stepTexts],
      tokens: sum(messageTokens.slice(0, inputIndex)) + sum(stepTokens.slice(skippedSteps, fromStep)),
    };
  }
  const turn = firstTurnToKeep(past, inputIndex, keepTokens - tokens);
  const lastMessage = messages[turn - 1];
  if (!lastMessage) return null;
  const transcript = planWholeConversation({ ...conversation, messages: messages.slice(0, turn) }).transcript;
  return {
    upToSeq: lastMessage.seq,
    cut: skippedSteps > 0 ? cut : null,
    transcript,
    tokens: sum(messageTokens.slice(0, turn)),
  };
}

function sum(tokens: readonly number[]): number {
  return tokens.reduce((total, count) => total + count, 0);
}

/** The index of the first step that stays, and the tokens of all steps that stay. */
function keepSteps(
  stepTokens: readonly number[],
  skippedSteps: number,
  keepTokens: number,
): { from: number; tokens: number } {
  let fromStep = stepTokens.length;
  let tokens = 0;
  while (fromStep > skippedSteps) {
    const next = stepTokens[fromStep - 1] as number;
    if (tokens > 0 && tokens + next > keepTokens) break;
    tokens += next;
    fromStep -= 1;
  }
  return { from: fromStep, tokens };
}

/** The index of the first message of the earliest turn that stays. */
function firstTurnToKeep(
  { conversation, messageTokens }: RunPast,
  inputIndex: number,
  keepTokens: number,
): number {
  let turn = inputIndex;
  let tokens = 0;
  for (let index = inputIndex - 1; index >= 0; index -= 1) {
    tokens += messageTokens[index] ?? 0;
    if (tokens > keepTokens) break;
    if (conversation.messages[index]?.message.role === 'user') turn = index;
  }
  return turn;
}
