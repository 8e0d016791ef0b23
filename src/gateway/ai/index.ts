export { ai, type AiNeeds, type AiService } from './ai.ts';
export type { ProviderCheck } from './provider-check.ts';
export { mediaJobs, type MediaJobs } from './jobs/jobs.ts';
export { createLinks, type Links } from './media/links.ts';
export { jobsStore } from './store.ts';
export { ModelsFileError } from './models-file.ts';
