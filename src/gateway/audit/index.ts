// The interface of the audit log for other modules.
export { audit, type Audit } from './audit.ts';
export { auditStore, type AuditEntry, type AuditStore } from './store.ts';
export type { ChainVerdict, ChainFault } from './verify.ts';
