// The stores of the accounts together, for the one who composes: each has its own tables.
import type { Database } from '../../kernel/data/database.ts';
import { guessStore, type GuessStore } from './attempt-limits-store.ts';
import { attemptStore, type AttemptStore } from './login/store.ts';
import { accountsStore, type AccountsStore, type BureauStates } from './store.ts';
import { ticketStore, type TicketStore } from './one-time-tokens-store.ts';

export interface AccountsStores {
  accounts: AccountsStore;
  attempts: AttemptStore;
  tickets: TicketStore;
  guesses: GuessStore;
}

export function accountsStores(database: Database, bureaus: BureauStates): AccountsStores {
  return {
    accounts: accountsStore(database, bureaus),
    attempts: attemptStore(database, bureaus),
    tickets: ticketStore(database),
    guesses: guessStore(database),
  };
}
