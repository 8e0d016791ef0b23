// What both variants of the plugin routes share: summaries, availability, and the call of an action.
import type {
  ManagedPluginState,
  PluginAvailability,
  PluginSummary,
} from '../../contract/agent/types.gen.ts';
import type { Clock } from '../../kernel/clock.ts';
import type { Log } from '../../kernel/log.ts';
import { Problem } from '../../kernel/problem.ts';
import { callAction, type ActionOutcome } from './call-action.ts';
import type { HookContext, HookValues } from './definition/hooks.ts';
import type { ManagedPlugin } from './managed-plugin.ts';
import type { PluginRegistry } from './registry.ts';
import type { Tool } from './tool.ts';

export interface ActionRequest {
  plugin: string;
  action: string;
  payload: Readonly<Record<string, unknown>>;
  /**
   * The origin of the call, HTTP or a command on this machine; an action declares which of them it
   * accepts.
   */
  caller: 'api' | 'command';
  /** Passed to the hooks as `toolCallId`. */
  callId: string;
  signal: AbortSignal;
  log: Log;
}

export interface PluginCore {
  states(): Promise<ManagedPluginState[]>;
  summaries(): Promise<PluginSummary[]>;
  /** Throws `plugin_not_found`. */
  availability(plugin: string): Promise<PluginAvailability>;
  /** The result of the action. Throws the Problem that prevented one. */
  call(request: ActionRequest): Promise<unknown>;
}

export interface PluginCoreOptions {
  registry: PluginRegistry;
  workspace: string;
  toolTimeoutMs: number;
  clock: Clock;
}

export function pluginCore(options: PluginCoreOptions): PluginCore {
  const { registry } = options;
  return {
    async states() {
      await Promise.all(registry.plugins.map((plugin) => plugin.availability()));
      return registry.plugins.map((plugin) => ({ name: plugin.name, ...plugin.state() }));
    },
    summaries: () =>
      Promise.all(registry.plugins.map(async (plugin) => summarize(plugin, await plugin.availability()))),
    availability: (name) => findPlugin(registry, name).availability(),
    call: (request) => callWithHooks(request, options),
  };
}

function findPlugin(registry: PluginRegistry, name: string): ManagedPlugin {
  const plugin = registry.plugin(name);
  if (!plugin)
    throw new Problem('not_found', 'plugin_not_found', `There is no plugin ${JSON.stringify(name)}.`);
  return plugin;
}

function findTool(registry: PluginRegistry, { plugin, action, caller }: ActionRequest): Tool {
  const tool = findPlugin(registry, plugin).tools.get(action);
  const label = `${JSON.stringify(action)} of the plugin "${plugin}"`;
  if (!tool) throw new Problem('not_found', 'action_not_found', `There is no action ${label}.`);
  if (tool.definition[caller] === true) return tool;
  throw new Problem(
    'forbidden',
    'action_not_api',
    caller === 'api'
      ? `The action ${label} cannot be called over HTTP.`
      : `The action ${label} cannot be called from the command line.`,
  );
}

// Tool hooks run for every caller, so that a guard cannot be bypassed over HTTP.
async function callWithHooks(request: ActionRequest, options: PluginCoreOptions): Promise<unknown> {
  const { hooks } = options.registry;
  const tool = findTool(options.registry, request);
  const context: HookContext = { sessionId: null, signal: request.signal };
  const call = { toolName: tool.name, toolCallId: request.callId, input: request.payload as unknown };
  // Only the input, as in a run: guards must see the tool that is called.
  const { input } = await hooks.pipeline('tool.before', call, context);
  const effectiveCall = { ...call, input };
  await hooks.guard('tool.before', effectiveCall, context);
  // A plugin's resolver may provide the result, in which case the action does not run.
  const resolution = await hooks.resolve('tool.before', effectiveCall, context);
  const outcome: ActionOutcome =
    resolution === undefined
      ? await callAction({
          tool,
          input,
          workspace: options.workspace,
          // The holder of the token is the person who would approve the call.
          isApproved: true,
          signal: request.signal,
          timeoutMs: options.toolTimeoutMs,
          clock: options.clock,
          log: request.log,
        })
      : { ok: true, output: resolution };
  const result: HookValues['tool.after'] = {
    ...effectiveCall,
    ok: outcome.ok,
    output: outcome.ok ? outcome.output : outcome.message,
  };
  if (!outcome.ok) {
    hooks.effect('tool.after', result, context);
    throw outcome.problem;
  }
  const { output } = await hooks.pipeline('tool.after', result, context);
  hooks.effect('tool.after', { ...result, output }, context);
  return output;
}

function summarize(plugin: ManagedPlugin, availability: PluginAvailability): PluginSummary {
  const { title, description, hooks = {}, system, availability: check } = plugin.definition;
  const tools = [...plugin.tools.values()];
  return {
    name: plugin.name,
    title,
    description,
    actions: tools.map(({ action }) => action),
    pipelines: Object.keys(hooks.pipelines ?? {}),
    guards: Object.keys(hooks.guards ?? {}),
    effects: Object.keys(hooks.effects ?? {}),
    resolves: Object.keys(hooks.resolves ?? {}),
    hasSystem: system !== undefined,
    hasAvailability: check !== undefined,
    availability,
    config: {
      actions: tools.map(({ action, definition }) => ({
        name: action,
        description: definition.description,
        supportsCommand: definition.command === true,
        supportsApi: definition.api === true,
        apiMethod: definition.api === true ? 'POST' : '',
        apiPath: definition.api === true ? '/api/plugins/action' : '',
        needsApproval: definition.needsApproval !== undefined && definition.needsApproval !== false,
        input: { ...definition.input },
        ...(definition.output === undefined ? {} : { output: { ...definition.output } }),
      })),
    },
  };
}
