// The plugins of one agent, and their actions as tools by name. Built once, at the start; duplicate
// names, unknown hooks and invalid schemas stop the start.
import { systemClock, type Clock } from '../../kernel/clock.ts';
import { silentLog, type Log } from '../../kernel/log.ts';
import { createHooks } from './hook-engine.ts';
import { hookNames, type Hooks, type PluginHooks } from './definition/hooks.ts';
import { managePlugin, type ManagedPlugin } from './managed-plugin.ts';
import type { Plugin } from './definition/plugin.ts';
import type { Tool } from './tool.ts';

export interface PluginRegistry {
  /** The plugins in the order in which their hooks are called. */
  plugins: readonly ManagedPlugin[];
  plugin(name: string): ManagedPlugin | undefined;
  /** The available tools. Their order is stable: a changed order would miss the providers' prompt caches. */
  readonly tools: readonly Tool[];
  /** The tool with this name, even if its plugin is not available. */
  tool(name: string): Tool | undefined;
  /** The parts of the system prompt that plugins contribute. */
  sections(): { source: string; text: string }[];
  hooks: Hooks;
  /** Starts all plugins concurrently. A plugin that fails gets the state `failed`; the others run. */
  start(workspace: string): Promise<void>;
  /** Waits for running effects, then stops the plugins, the last one first. */
  stop(): Promise<void>;
}

/** The configuration of one plugin. */
export interface PluginConfig {
  enabled?: boolean;
  settings?: Readonly<Record<string, unknown>>;
}

export interface RegistryOptions {
  /** The configuration of each plugin by its name. */
  config?: ReadonlyMap<string, PluginConfig>;
  hookMs?: number;
  startMs?: number;
  stopMs?: number;
  availabilityMs?: number;
  /** Why a plugin is permanently unavailable; undefined otherwise. */
  lateFailureOf?: (plugin: string) => string | undefined;
  clock?: Clock;
  log?: Log;
}

const hookKinds: readonly (keyof PluginHooks)[] = ['pipelines', 'guards', 'effects', 'resolves'];

/** Throws for an invalid plugin, and for a configuration of a plugin that does not exist. */
export function createRegistry(plugins: readonly Plugin[], options: RegistryOptions = {}): PluginRegistry {
  const {
    config = new Map<string, PluginConfig>(),
    hookMs = 5_000,
    clock = systemClock,
    log = silentLog,
  } = options;
  const pluginsByName = managePlugins(plugins, { ...options, config, clock, log });
  requireExisting(config, pluginsByName);
  const all = [...pluginsByName.values()];
  const hooks = createHooks({
    owners: all.map((plugin) => ({
      name: plugin.name,
      hooks: plugin.definition.hooks ?? {},
      settings: plugin.settings,
      isActive: plugin.isActive,
      hasFailedToStart: plugin.hasFailedToStart,
    })),
    timeoutMs: hookMs,
    clock,
    log,
  });
  return {
    plugins: all,
    plugin: (name) => pluginsByName.get(name),
    get tools() {
      return all
        .filter((plugin) => plugin.isActive() && plugin.state().state === 'ready')
        .flatMap((plugin) => [...plugin.tools.values()]);
    },
    tool: (name) => findTool(pluginsByName, name),
    sections: () =>
      all.flatMap((plugin) => {
        const text = plugin.isActive() ? plugin.system() : undefined;
        return text === undefined ? [] : [{ source: plugin.name, text }];
      }),
    hooks,
    async start(workspace) {
      await Promise.all(all.map((plugin) => plugin.start(workspace)));
    },
    async stop() {
      await hooks.untilSettled();
      for (const plugin of [...all].reverse()) await plugin.stop();
    },
  };
}

function managePlugins(
  plugins: readonly Plugin[],
  {
    config,
    startMs = 10_000,
    stopMs = 5_000,
    availabilityMs = 2_000,
    lateFailureOf = () => undefined,
    clock,
    log,
  }: RegistryOptions & Required<Pick<RegistryOptions, 'config' | 'clock' | 'log'>>,
): ReadonlyMap<string, ManagedPlugin> {
  const pluginsByName = new Map<string, ManagedPlugin>();
  const resolvers = new Map<string, string>();
  for (const plugin of plugins) {
    const { name } = plugin;
    const { enabled: isEnabled = true, settings = {} } = config.get(name) ?? {};
    if (pluginsByName.has(name)) throw new Error(`Two plugins claim the name "${name}".`);
    const lateFailure = () => lateFailureOf(name);
    const deadlines = { startMs, stopMs, availabilityMs };
    pluginsByName.set(
      name,
      managePlugin(plugin, { isEnabled, settings, ...deadlines, lateFailure, clock, log }),
    );
    claimHooks(plugin, resolvers);
  }
  return pluginsByName;
}

function requireExisting(
  config: ReadonlyMap<string, PluginConfig>,
  pluginsByName: ReadonlyMap<string, ManagedPlugin>,
): void {
  for (const name of config.keys())
    if (!pluginsByName.has(name))
      throw new Error(
        `The configuration names the plugin "${name}", which does not exist; there are ${[...pluginsByName.keys()].join(', ')}.`,
      );
}

function findTool(pluginsByName: ReadonlyMap<string, ManagedPlugin>, name: string): Tool | undefined {
  // Names of plugins and actions have no underscore, so the first one separates the two.
  const index = name.indexOf('_');
  if (index < 0) return undefined;
  return pluginsByName.get(name.slice(0, index))?.tools.get(name.slice(index + 1));
}

// Throws for an unknown kind or name of a hook, and for a second resolver of a name: a resolve has one
// answer, whereas several plugins may have the other kinds of hooks.
function claimHooks({ name, hooks = {} }: Plugin, resolvers: Map<string, string>): void {
  for (const kind of Object.keys(hooks)) {
    if (!hookKinds.includes(kind as keyof PluginHooks))
      throw new Error(
        `The plugin "${name}" has hooks of the kind "${kind}"; there are ${hookKinds.join(', ')}.`,
      );
  }
  for (const kind of hookKinds) {
    for (const [hook, run] of Object.entries(hooks[kind] ?? {})) {
      if (!hookNames.has(hook))
        throw new Error(
          `The plugin "${name}" has a hook "${hook}", which is never called; there are ${[...hookNames].join(', ')}.`,
        );
      if (typeof run !== 'function')
        throw new Error(`The hook "${hook}" of the plugin "${name}" is not a function.`);
      if (kind !== 'resolves') continue;
      const otherPlugin = resolvers.get(hook);
      if (otherPlugin !== undefined)
        throw new Error(`Two plugins resolve "${hook}": "${otherPlugin}" and "${name}".`);
      resolvers.set(hook, name);
    }
  }
}
