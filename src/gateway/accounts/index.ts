// The door of the accounts: the factory, its stores, and the types and rules that others may name.
export { accounts, type Accounts, type AccountsNeeds, type IssuedToken } from './accounts.ts';
export { accountsStores, type AccountsStores } from './stores.ts';
export { localPerson, mayLogInLocally } from './providers/local-login.ts';
export type { LoginProvider, Person } from './providers/provider.ts';
