// The door of the administrators: the factory, its store, and the types that others may name.
export { admin, type Admin, type AdminNeeds, type CredentialsSet } from './admin.ts';
export { adminStore, type AdminStore, type Machine } from './store.ts';
export type { MachineRequest, Machines } from './machines.ts';
export type { GuessBudgets } from './attempt-limits.ts';
