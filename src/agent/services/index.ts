// The room of services: their shape, the machine behind each, and the routes.
export { chatRoom, chatService } from './chat-service.ts';
export type { ServiceCall, ServiceDefinition, ServiceOperation, ServiceRun } from './definition.ts';
export { createDirectory, type ServiceDirectory } from './directory.ts';
export { createMachine, machineLimits, type ServiceMachine } from './machine.ts';
export { processService } from './process-service.ts';
export { services } from './services.ts';
