// The door of usage: the factory, its store, and the types that others may name.
export { usage, type Usage, type UsageNeeds } from './usage.ts';
export { usageStore, type UsageStore } from './store.ts';
export type { UsageFacts, UsageOutcome, UsageTokens, UsageUnits } from './facts.ts';
