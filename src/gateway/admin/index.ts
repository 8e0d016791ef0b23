// The door of the administrators: the factory, its store, and the types that others may name.
export { admin, type Admin, type AdminNeeds, type CredentialsSet } from './admin.ts';
export { adminStore, type AdminStore } from './store.ts';
export type { GuessBudgets } from './guess-budget.ts';
