// Services: the supervisor of each, and the routes. ../service-definition.ts has their shape.
export { chatRoutes, chatService } from './chat-service.ts';
export { createDirectory, type ServiceDirectory } from './directory.ts';
export { processService } from './process-service.ts';
export { services } from './services.ts';
export { createSupervisor, supervisorLimits, type ServiceSupervisor } from './supervisor.ts';
