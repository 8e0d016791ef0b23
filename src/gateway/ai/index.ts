export { ai, type AiNeeds } from './ai.ts';
export { ModelsFileError } from './models-file.ts';
