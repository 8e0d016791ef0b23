// The known limits of each model, from the gateway's catalog and from refused requests.
import type { ModelDescription } from '../../../gateway.ts';
import type { FileKind } from './media-tokens.ts';

export interface Limits {
  /** Tokens that fit into one call; null when unknown. */
  contextTokens: number | null;
  /** The id of the provider; null when unknown. */
  provider: string | null;
  accepts(kind: FileKind): boolean;
}

export interface ModelLimits {
  of(modelId: string): Promise<Limits>;
  /** Records the approximate context window that a refused request has shown. */
  learnWindow(modelId: string, tokens: number): void;
  /** Records that the model refused a request with files and accepted it without them. */
  learnNoFiles(modelId: string): void;
}

// Learned windows supplement the catalog. They are never below this value, which tools alone need.
const minWindow = 1_000;

export function createModelLimits(describe: (modelId: string) => Promise<ModelDescription>): ModelLimits {
  const windows = new Map<string, number>();
  const withoutFiles = new Set<string>();

  return {
    async of(modelId) {
      const { contextTokens, inputs, provider } = await describe(modelId);
      const windowSizes = [contextTokens, windows.get(modelId)].filter(
        (tokens) => typeof tokens === 'number',
      );
      return {
        contextTokens: windowSizes.length === 0 ? null : Math.min(...windowSizes),
        provider,
        accepts: (kind) =>
          kind === 'text' || (!withoutFiles.has(modelId) && (inputs === null || inputs.includes(kind))),
      };
    },
    learnWindow(modelId, tokens) {
      const learnedWindow = windows.get(modelId) ?? Number.POSITIVE_INFINITY;
      windows.set(modelId, Math.max(minWindow, Math.min(learnedWindow, tokens)));
    },
    learnNoFiles: (modelId) => void withoutFiles.add(modelId),
  };
}
