// Plugins: their types, the registry, one call of an action, and the built-in plugins.
export { createContainment, type Containment, type PluginOwner } from './containment.ts';
export { callAction, type ActionOutcome } from './call-action.ts';
export {
  definePlugin,
  type Action,
  type ActionContext,
  type Availability,
  type Plugin,
  type StartContext,
  type ToolPermission,
} from './definition/plugin.ts';
export {
  type HookCall,
  type HookContext,
  type HookName,
  type Hooks,
  type HookValues,
} from './definition/hooks.ts';
export type { ManagedPlugin } from './managed-plugin.ts';
export type { Tool } from './tool.ts';
export { loadPlugins } from './load.ts';
export { readPluginFile, type PluginFile } from './plugin-file.ts';
export type { PluginCore } from './core.ts';
export { plugins, type PluginRoutes } from './plugins.ts';
export { createRegistry, type PluginConfig, type PluginRegistry } from './registry.ts';
export { startPlugin, type StartedPlugin, type StartPluginOptions } from './start-plugin.ts';
export { context, type ReadOutput } from './builtin/context.ts';
export { files } from './builtin/files/files.ts';
export { mcp } from './builtin/mcp/mcp.ts';
export { memory } from './builtin/memory.ts';
export { schedule } from './builtin/schedule.ts';
export { shell } from './builtin/shell.ts';
export { createProgramRunner, type ProgramRunner } from './builtin/workspace/program-runner.ts';
export { namedFiles } from './builtin/workspace/protected-files.ts';
export { isWithinDatabase } from './builtin/workspace/secret-places.ts';
export { openWorkspace, type Workspace, type WorkspaceAt } from './builtin/workspace/workspace.ts';
export { noteStore, scheduleStore } from './builtin/store.ts';
