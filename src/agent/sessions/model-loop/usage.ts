// Tokens and credits of a step, a run and a session.
import type { LanguageModelV3Usage, SharedV3ProviderMetadata } from '@ai-sdk/provider';
import type { RunUsage } from '../../../contract/agent/types.gen.ts';

export const noUsage: Readonly<RunUsage> = { inputTokens: 0, outputTokens: 0 };

const optionalCounts = ['cachedInputTokens', 'reasoningTokens', 'credits'] as const;

/** Counts that the provider did not report stay absent. */
export function readUsage(
  { inputTokens, outputTokens }: LanguageModelV3Usage,
  metadata: SharedV3ProviderMetadata | undefined,
): RunUsage {
  const counts = {
    cachedInputTokens: inputTokens.cacheRead,
    reasoningTokens: outputTokens.reasoning,
    credits: metadata?.['townhall']?.['credits'],
  };
  const usage: RunUsage = { inputTokens: inputTokens.total ?? 0, outputTokens: outputTokens.total ?? 0 };
  for (const name of optionalCounts) {
    const count = counts[name];
    if (typeof count === 'number' && Number.isSafeInteger(count) && count >= 0) usage[name] = count;
  }
  return usage;
}

export function addUsage(sum: RunUsage, usage: RunUsage): void {
  sum.inputTokens += usage.inputTokens;
  sum.outputTokens += usage.outputTokens;
  for (const name of optionalCounts) {
    const count = usage[name];
    if (count !== undefined) sum[name] = (sum[name] ?? 0) + count;
  }
}
