// The room of plugins: their shape, the registry, one call of an action, and those that are built in.
export { callAction, type ActionOutcome } from './call.ts';
export { definePlugin, type Action, type ActionContext, type Plugin } from './plugin.ts';
export { createRegistry, type PluginRegistry, type Tool } from './registry.ts';
export { files } from './builtin/files.ts';
export { isWithin, openWorkspace, type Workspace } from './builtin/workspace.ts';
