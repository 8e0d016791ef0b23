// The door of the credits: the factory, its store and journal, and the types that others may name.
export { credits, type Credits, type CreditsNeeds } from './credits.ts';
export { creditsStore, type CreditsStore, type KeyBudget } from './store.ts';
export { directoryJournal, type Journal } from './journal.ts';
export { verifyLedger, type LedgerFault, type LedgerVerdict } from './verify.ts';
export type { LedgerTimes } from './keeper.ts';
export type { LedgerCounters } from './ledger.ts';
export type { Alongside, Balances, FreeCall, Hold, Ledger, PaidCall } from './ports.ts';
