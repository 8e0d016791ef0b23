// The door of the accounts: the factory, its store, and the types and rules that others may name.
export { accounts, type Accounts, type AccountsNeeds, type IssuedToken } from './accounts.ts';
export { accountsStore, type AccountsStore } from './store.ts';
export { localPerson, mayLogInLocally } from './local-login.ts';
export type { LoginProvider, Person } from './login-provider.ts';
