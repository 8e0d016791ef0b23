export { ai, requireModelsFile, type AiOptions, type AiService } from './ai.ts';
export { curatedModels } from './catalog/curated.ts';
export type { ProviderCheck } from './provider-check.ts';
export type { BreakerChannel } from './upstream/model-health.ts';
export { jobPayments } from './jobs/payments.ts';
export { mediaJobs, type MediaJobs } from './jobs/jobs.ts';
export { createMediaLinks as createLinks, type MediaLinks as Links } from './media/links.ts';
export { jobsStore } from './jobs/store.ts';
