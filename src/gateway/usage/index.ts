// The interface of the usage reports for other modules.
export { usage, type Usage } from './usage.ts';
export { usageStore, type UsageStore } from './store.ts';
export type { UsageFacts, UsageOutcome, UsageTokens, UsageUnits } from './facts.ts';
