// The interface of the services of projects for other modules.
export { services, type Services } from './services.ts';
export { loadProject, type Project } from './project.ts';
export { openResources, type DeclaredResources } from './resources.ts';
export { registerServices, type LoadedService, type ProjectService } from './registry.ts';
export { ActionError, defineService } from './definition.ts';
export type * from './definition.ts';
