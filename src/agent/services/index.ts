// Services: their supervisors and routes. The type of a service is in ../service-definition.ts.
export { chatRoutes, chatService } from './chat-service.ts';
export { createDirectory, type ServiceDirectory } from './directory.ts';
export { processService } from './process-service.ts';
export { services } from './services.ts';
export { createSupervisor, supervisorLimits, type ServiceSupervisor } from './supervisor.ts';
