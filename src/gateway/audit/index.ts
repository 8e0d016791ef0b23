// The door of the audit log: the factory, its store, and the types that others may name.
export { audit, type Audit, type AuditNeeds } from './audit.ts';
export { auditStore, type AuditEntry, type AuditStore } from './store.ts';
export type { ChainVerdict, ChainFault } from './verify.ts';
