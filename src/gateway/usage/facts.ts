// What is known of one call to a model or an action once it is over: the nouns of a usage record.

/** How a call ended. `rejected` means that nothing was sent to a provider. */
export type UsageOutcome = 'completed' | 'client_closed' | 'upstream_failed' | 'rejected';

/** Tokens by disjoint kinds: none is counted twice. */
export interface UsageTokens {
  input: number;
  cachedInput: number;
  cacheWrite: number;
  output: number;
  reasoning: number;
}

/** What was made that is not counted in tokens. */
export interface UsageUnits {
  image?: number;
  videoSecond?: number;
  speechCharacter?: number;
  audioSecond?: number;
}

export interface UsageFacts {
  /** `text`, `stream`, `chat/completions`, `image/create`, … or `service/action`. */
  action: string;
  /** What ran last; null before anything did. */
  model: string | null;
  provider: string | null;
  tokens: UsageTokens;
  units: UsageUnits;
  outcome: UsageOutcome;
  /** Counted here, as the provider did not say. */
  estimated: boolean;
  /** Milliseconds until the first piece of the answer. */
  ttftMs: number | null;
  durationMs: number;
  /** What a project's action charged for; it stands in the user's history of credits and in no record. */
  reason?: string;
}
