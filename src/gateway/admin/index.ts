// The interface of the administrators for other modules.
export { admin, type Admin, type AdminOptions } from './admin.ts';
export type { AdminAttemptLimits } from './attempt-limits.ts';
export type { CredentialsResult } from './credentials.ts';
export type { Machine } from './machines-store.ts';
export type { MachineRequest, Machines } from './machines.ts';
export { adminStore, type AdminStore } from './store.ts';
