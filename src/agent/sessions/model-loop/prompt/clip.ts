// Clips texts that would fill the context window on their own. The result depends only on the texts and the
// limit, so every request clips the same texts in the same way.
import { startOfText } from '../../../../kernel/start-of-text.ts';
import { estimateText } from './estimate.ts';

/**
 * Max-min fair share: returns the limit in tokens for each text with which all texts fit into `maxTokens`.
 * Only the longest texts are cut.
 */
export function shareTokens(sizes: readonly number[], maxTokens: number): number {
  let limit = maxTokens;
  let remainingTokens = maxTokens;
  for (const [index, size] of [...sizes].sort((a, b) => a - b).entries()) {
    limit = remainingTokens / (sizes.length - index);
    if (size > limit) return Math.floor(limit);
    remainingTokens -= size;
  }
  return Number.POSITIVE_INFINITY;
}

export interface ClippedText {
  text: string;
  /** Characters that were left out. */
  omittedCount: number;
}

// The beginning of a text usually shows what it is, and its end has the result.
const headShare = 0.7;

const contextIsShort = ', because the context of the model is too short for them.';

/** Leaves out the middle of a text of more than `maxTokens`. `reason` ends the sentence of the note. */
export function clipText(text: string, maxTokens: number, reason = contextIsShort): ClippedText {
  const tokens = maxTokens === Number.POSITIVE_INFINITY ? 0 : estimateText(text);
  if (tokens <= maxTokens) return { text, omittedCount: 0 };
  const length = Math.max(0, Math.floor((text.length * maxTokens) / tokens));
  const head = startOfText(text, Math.floor(length * headShare));
  const tail = text.slice(text.length - (length - Math.floor(length * headShare))).toWellFormed();
  const omittedCount = text.length - length;
  return {
    text: `${head}\n[${omittedCount} characters are left out here${reason}]\n${tail}`,
    omittedCount,
  };
}
