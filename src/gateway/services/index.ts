// The door of a project's own services: the factory, the loader, and what a project writes them with.
export { services, type Services, type ServicesNeeds } from './services.ts';
export { loadProject, type Project } from './project.ts';
export { openResources, type DeclaredResources } from './resources.ts';
export { registerServices, type FoundService, type ProjectService } from './registry.ts';
export { ActionError, defineService } from './definition.ts';
export type * from './definition.ts';
