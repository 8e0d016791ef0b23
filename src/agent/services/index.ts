// Services: their shape, the supervisor of each, and the routes.
export { chatRoutes, chatService } from './chat-service.ts';
export type {
  ServiceCallContext,
  ServiceDefinition,
  ServiceOperation,
  ServiceStartContext,
} from './definition.ts';
export { createDirectory, type ServiceDirectory } from './directory.ts';
export { processService } from './process-service.ts';
export { services } from './services.ts';
export { createSupervisor, supervisorLimits, type ServiceSupervisor } from './supervisor.ts';
