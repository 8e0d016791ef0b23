export { ai, requireModelsFiles, type AiOptions, type AiService } from './ai.ts';
export { createResponseSockets, maxSocketMessageBytes } from './responses/socket.ts';
export { curatedModels } from './catalog/curated.ts';
export { hasUsableKey, keyEnvs, missingKeys, type ProviderKeys } from './catalog/provider-keys.ts';
export { parseCatalogDocument, type CatalogDocument, type Pin } from './catalog/catalog-document.ts';
export { readCatalogFile, writeCatalogFile, previousFile } from './catalog/catalog-file.ts';
export {
  catalogDocument,
  planUpdate,
  pinEntry,
  unpinEntry,
  type UpdateLimits,
  type UpdatePlan,
} from './catalog/catalog-update.ts';
export type { EntryChange, MemberChange } from './catalog/catalog-changes.ts';
export type { ProviderCheck } from './provider-check.ts';
export type { BreakerChannel } from './upstream/model-health.ts';
export { jobPayments } from './jobs/payments.ts';
export { mediaJobs, type MediaJobs } from './jobs/jobs.ts';
export { createMediaLinks as createLinks, type MediaLinks as Links } from './media/links.ts';
export { jobsStore } from './jobs/store.ts';
export { storedResponsesStore } from './responses/stored/store.ts';
export { storedResponses, type StoredResponses } from './responses/stored/stored-responses.ts';
export { alarmStore } from './billing/alarm-store.ts';
export { alarmWindowMs, defaultAlarmsToStop } from './billing/usage-alarms.ts';
