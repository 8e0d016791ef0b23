// The facts of one finished call to a model or an action, as usage records store them.

/** How a call ended. `rejected`: nothing was sent to a provider. */
export type UsageOutcome = 'completed' | 'client_closed' | 'upstream_failed' | 'rejected';

/** Tokens by kind. The kinds are disjoint. */
export interface UsageTokens {
  input: number;
  cachedInput: number;
  cacheWrite: number;
  output: number;
  reasoning: number;
}

/** Output that is not counted in tokens. */
export interface UsageUnits {
  image?: number;
  videoSecond?: number;
  speechCharacter?: number;
  audioSecond?: number;
}

export interface UsageFacts {
  /** `text`, `stream`, `chat/completions`, `image/create`, … or `service/action`. */
  action: string;
  /** The last model that ran; null when none did. */
  model: string | null;
  provider: string | null;
  tokens: UsageTokens;
  units: UsageUnits;
  outcome: UsageOutcome;
  /** The gateway counted the tokens, because the provider did not report them. */
  estimated: boolean;
  /** Milliseconds until the first chunk of the answer. */
  ttftMs: number | null;
  durationMs: number;
  /**
   * The error code with which the call failed; absent if it was answered or its client
   * disconnected.
   */
  failureCode?: string;
  /** Attempts at models, retries and fallbacks included; absent for calls without attempts. */
  attempts?: number;
  /**
   * The reason of a charge by a project's action. It appears in the user's credit history, not in
   * usage records.
   */
  reason?: string;
}
