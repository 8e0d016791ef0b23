// The room of plugins: their shape, the registry, one call of an action, and those that are built in.
export { createContainment, type Containment, type PluginOwner } from './containment.ts';
export { callAction, type ActionOutcome } from './call-action.ts';
export {
  definePlugin,
  type Action,
  type ActionContext,
  type Availability,
  type Plugin,
  type StartContext,
} from './plugin.ts';
export {
  noHooks,
  type HookCall,
  type HookContext,
  type HookName,
  type Hooks,
  type HookValues,
} from './hooks.ts';
export type { ManagedPlugin, Tool } from './managed-plugin.ts';
export { loadPlugins, readPluginFile, type PluginFile } from './load.ts';
export type { PluginCore } from './core.ts';
export { plugins, type PluginRooms } from './plugins.ts';
export { createRegistry, type PluginConfig, type PluginRegistry } from './registry.ts';
export { files } from './builtin/files.ts';
export { mcp } from './builtin/mcp.ts';
export { memory } from './builtin/memory.ts';
export { schedule } from './builtin/schedule.ts';
export { shell } from './builtin/shell.ts';
export { isWithin, isWithinDatabase } from './builtin/secret-places.ts';
export { openWorkspace, type Workspace } from './builtin/workspace.ts';
export { noteStore, scheduleStore } from './store.ts';
