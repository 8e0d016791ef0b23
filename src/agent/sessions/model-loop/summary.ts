// Summarizes a conversation with a model. A conversation that is longer than one
// request is summarized in pieces, each together with the summary so far.
import type { LanguageModelV3, LanguageModelV3Message } from '@ai-sdk/provider';
import type { RunUsage } from '../../../contract/agent/types.gen.ts';
import { clipText } from './prompt/clip.ts';
import { estimateText } from './prompt/estimate.ts';
import { isContextOverflow, isRefusal, modelProblem } from './model-problem.ts';
import { generateText } from './model-text.ts';
import { addUsage, noUsage } from './usage.ts';

const instructions = [
  'Sum up the conversation above for your own later use; the summary is all that you will still see of it.',
  'Keep every fact, decision, name, path, number and open task that may still matter, and what the person wants.',
  'Answer with the summary alone.',
].join(' ');

export interface SummaryRequest {
  model: LanguageModelV3;
  /** The summary of everything before the transcript. */
  earlierSummary: string | null;
  transcript: readonly string[];
  /** Tokens of one request; it becomes smaller when the model finds a request too long. */
  maxRequestTokens: number;
  maxSummaryTokens: number;
  signal: AbortSignal;
  /** Waits before another attempt after a failed call; throws the error when there is none. */
  recover(error: unknown): Promise<void>;
}

const minRequestTokens = 500;

/** Throws the error of a model that cannot be reached. */
export async function summarize(request: SummaryRequest): Promise<{ summary: string; usage: RunUsage }> {
  const usage: RunUsage = { ...noUsage };
  let maxTokens = request.maxRequestTokens;
  let summary = request.earlierSummary;
  for (let remainingEntries = [...request.transcript]; remainingEntries.length > 0;) {
    const piece = takeWithin(remainingEntries, maxTokens - estimateText(summary ?? ''));
    try {
      const result = await generateText({
        model: request.model,
        prompt: [promptFor(summary, piece.entries)],
        signal: request.signal,
      });
      addUsage(usage, result.usage);
      const text = result.text.trim() === '' ? withoutModel(summary, piece.entries) : result.text;
      summary = clipText(text, request.maxSummaryTokens).text;
      ({ rest: remainingEntries } = piece);
    } catch (error) {
      const problem = modelProblem(error);
      // An overflow of the smallest request is nearly always a refusal (400, 413 or 422), so that the summary
      // continues without the model; any other one is left to `recover`.
      if (isContextOverflow(problem) && maxTokens > minRequestTokens) maxTokens /= 2;
      else if (isRefusal(problem)) {
        summary = clipText(withoutModel(summary, piece.entries), request.maxSummaryTokens).text;
        ({ rest: remainingEntries } = piece);
      } else await request.recover(error);
    }
  }
  return { summary: summary ?? '', usage };
}

/** The entries that fit, at least one; an entry that does not fit alone is clipped. */
function takeWithin(entries: readonly string[], maxTokens: number): { entries: string[]; rest: string[] } {
  const limit = Math.max(maxTokens, minRequestTokens / 2);
  const nextEntries: string[] = [];
  let tokens = 0;
  for (const entry of entries) {
    tokens += estimateText(entry);
    if (nextEntries.length > 0 && tokens > limit) break;
    nextEntries.push(clipText(entry, limit).text);
  }
  return { entries: nextEntries, rest: entries.slice(nextEntries.length) };
}

/** The fallback when the model writes no summary: without a summary no later run of the session would fit. */
function withoutModel(earlierSummary: string | null, entries: readonly string[]): string {
  return [...(earlierSummary === null ? [] : [earlierSummary]), ...entries].join('\n\n');
}

function promptFor(earlierSummary: string | null, entries: readonly string[]): LanguageModelV3Message {
  const summaryTexts =
    earlierSummary === null ? [] : [`The summary of what came before:\n\n${earlierSummary}`];
  const text = [...summaryTexts, ...entries, instructions].join('\n\n');
  return { role: 'user', content: [{ type: 'text', text }] };
}
