// What a project imports from `townhall`.
export { ActionError, defineService } from './gateway/services/index.ts';
export type { ActionBureau, ActionCall, ActionDefinition, ActionLog, ActionStatus, ActionUser, ServiceDefinition, ServiceRequirement } from './gateway/services/index.ts';
export { definePlugin } from './agent/plugins/index.ts';
export type { Action, ActionContext, Availability, Plugin, StartContext } from './agent/plugins/index.ts';
