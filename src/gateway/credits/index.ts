export { credits, type Credits, type CreditsOptions } from './credits.ts';
export { creditsStore, type CreditsStore, type KeyBudget } from './store.ts';
export { settlementJournal } from './journal/settlements.ts';
export { verifyLedger, type LedgerFault, type LedgerVerdict } from './verify.ts';
export type { LedgerTimes } from './maintenance.ts';
export type { LedgerCounters } from './ledger.ts';
export type { Alongside, Balances, FreeCall, Hold, Ledger, PaidCall, Reservation } from './ports.ts';
