// What both variants of the plugin routes answer from: summaries, availability and one action by its two names. The
// variants differ in the names of members alone, so nothing is decided in them.
import type {
  ManagedPluginState,
  PluginAvailability,
  PluginSummary,
} from '../../contract/agent/types.gen.ts';
import type { Clock } from '../../kernel/clock.ts';
import type { Log } from '../../kernel/log.ts';
import { Problem } from '../../kernel/problem.ts';
import { callAction } from './call-action.ts';
import type { ManagedPlugin, Tool } from './managed-plugin.ts';
import type { PluginRegistry } from './registry.ts';

/** Who asks for an action beside the model: a caller over HTTP, or a command on this machine. */
export type Door = 'api' | 'command';

export interface ActionRequest {
  plugin: string;
  action: string;
  payload: Readonly<Record<string, unknown>>;
  door: Door;
  /** Stands for the call in what hooks are told. */
  callId: string;
  signal: AbortSignal;
  log: Log;
}

export interface PluginCore {
  states(): Promise<ManagedPluginState[]>;
  summaries(): Promise<PluginSummary[]>;
  /** Throws `plugin_not_found`. */
  availability(plugin: string): Promise<PluginAvailability>;
  /** The result; throws a Problem when there is none. */
  call(request: ActionRequest): Promise<unknown>;
}

export interface PluginCoreNeeds {
  registry: PluginRegistry;
  workspace: string;
  toolTimeoutMs: number;
  clock: Clock;
}

export function pluginCore({ registry, workspace, toolTimeoutMs, clock }: PluginCoreNeeds): PluginCore {
  function find(name: string): ManagedPlugin {
    const plugin = registry.plugin(name);
    if (!plugin)
      throw new Problem('not_found', 'plugin_not_found', `There is no plugin ${JSON.stringify(name)}.`);
    return plugin;
  }

  function findTool(request: ActionRequest): Tool {
    const tool = find(request.plugin).tools.get(request.action);
    const named = `${JSON.stringify(request.action)} of the plugin "${request.plugin}"`;
    if (!tool) throw new Problem('not_found', 'action_not_found', `There is no action ${named}.`);
    if (tool.definition[request.door] === true) return tool;
    throw new Problem(
      'forbidden',
      'action_not_api',
      request.door === 'api'
        ? `The action ${named} cannot be called over HTTP.`
        : `The action ${named} cannot be called from the command line.`,
    );
  }

  return {
    async states() {
      await Promise.all(registry.plugins.map((plugin) => plugin.availability()));
      return registry.plugins.map((plugin) => ({ name: plugin.name, ...plugin.state() }));
    },
    summaries: () =>
      Promise.all(registry.plugins.map(async (plugin) => summary(plugin, await plugin.availability()))),
    availability: (name) => find(name).availability(),
    async call(request) {
      const tool = findTool(request);
      const context = { sessionId: null, signal: request.signal };
      const before = { toolName: tool.name, toolCallId: request.callId, input: request.payload as unknown };
      // The hooks of a tool hold whoever calls it, so that a guard has no second door beside it.
      const { hooks } = registry;
      const changed = await hooks.pipeline('tool.before', before, context);
      await hooks.guard('tool.before', changed, context);
      const answered = await hooks.resolve('tool.before', changed, context);
      const outcome =
        answered === undefined
          ? await callAction({
              tool,
              input: changed.input,
              workspace,
              isApproved: true,
              signal: request.signal,
              timeoutMs: toolTimeoutMs,
              clock,
              log: request.log,
            })
          : ({ ok: true, output: answered } as const);
      const after = {
        ...before,
        input: changed.input,
        ok: outcome.ok,
        output: outcome.ok ? outcome.output : outcome.message,
      };
      if (!outcome.ok) {
        hooks.effect('tool.after', after, context);
        throw outcome.problem;
      }
      const shown = await hooks.pipeline('tool.after', after, context);
      hooks.effect('tool.after', shown, context);
      return shown.output;
    },
  };
}

function summary(plugin: ManagedPlugin, availability: PluginAvailability): PluginSummary {
  const { title, description, hooks = {}, system, availability: asks } = plugin.definition;
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
    hasAvailability: asks !== undefined,
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
