// The interface of the accounts for other modules.
export { accounts, type Accounts, type AccountsOptions, type IssuedToken } from './accounts.ts';
export { accountsStores, type AccountsStores } from './stores.ts';
export { localPerson, mayLogInLocally } from './providers/local-login.ts';
export type { LoginProvider, Person } from './providers/provider.ts';
