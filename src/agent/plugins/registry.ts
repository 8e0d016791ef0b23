// The plugins of one agent, and their actions as tools by name. It is built once, at start, and refuses there what
// could not be told apart later: two claims on one name, a hook that nobody calls, a schema that is none.
import { systemClock, type Clock } from '../../kernel/clock.ts';
import type { Log } from '../../kernel/log.ts';
import { createHooks, hookNames, type Hooks, type PluginHooks } from './hooks.ts';
import { managePlugin, type ManagedPlugin, type Tool } from './managed-plugin.ts';
import type { Plugin } from './plugin.ts';

export interface PluginRegistry {
  /** All of them, in the order in which they were given: also the order of their hooks. */
  plugins: readonly ManagedPlugin[];
  plugin(name: string): ManagedPlugin | undefined;
  /** Those of the plugins that can be used now, in a stable order, since providers cache by the order of tools. */
  readonly tools: readonly Tool[];
  /** The tool of that name; names of built-in object members are names like any other. */
  tool(name: string): Tool | undefined;
  /** What the plugins have the model told, each under its plugin's name. */
  sections(): { source: string; text: string }[];
  hooks: Hooks;
  /** Starts them side by side; one that fails is `failed`, and the others stand. */
  start(workspace: string): Promise<void>;
  /** Waits for effects that are under way, then stops the plugins, the last one first. */
  stop(): Promise<void>;
}

/** What the configuration says of one plugin. */
export interface PluginConfig {
  enabled?: boolean;
  settings?: Readonly<Record<string, unknown>>;
}

export interface RegistryOptions {
  /** By the plugin's name. */
  config?: ReadonlyMap<string, PluginConfig>;
  hookMs?: number;
  startMs?: number;
  stopMs?: number;
  availabilityMs?: number;
  /** Why a plugin is unavailable for good; undefined while it is sound. */
  lateFailureOf?: (plugin: string) => string | undefined;
  clock?: Clock;
  log?: Log;
}

// Nobody's log, for a registry that is only looked at.
const silent: Log = { debug() {}, info() {}, warn() {}, error() {}, child: () => silent };
const kinds: readonly (keyof PluginHooks)[] = ['pipelines', 'guards', 'effects', 'resolves'];

export function createRegistry(plugins: readonly Plugin[], options: RegistryOptions = {}): PluginRegistry {
  const {
    config = new Map<string, PluginConfig>(),
    hookMs = 5_000,
    startMs = 10_000,
    stopMs = 5_000,
    availabilityMs = 2_000,
    lateFailureOf = () => undefined,
    clock = systemClock,
    log = silent,
  } = options;
  const managed = new Map<string, ManagedPlugin>();
  const resolvers = new Map<string, string>();
  for (const plugin of plugins) {
    const { enabled = true, settings = {} } = config.get(plugin.name) ?? {};
    if (managed.has(plugin.name)) throw new Error(`Two plugins claim the name "${plugin.name}".`);
    managed.set(
      plugin.name,
      managePlugin(plugin, {
        isEnabled: enabled,
        settings,
        startMs,
        stopMs,
        availabilityMs,
        lateFailure: () => lateFailureOf(plugin.name),
        clock,
        log,
      }),
    );
    claimHooks(plugin, resolvers);
  }
  for (const name of config.keys()) {
    if (!managed.has(name))
      throw new Error(`The configuration names the plugin "${name}", and there is none.`);
  }
  const all = [...managed.values()];
  const hooks = createHooks({
    owners: all.map((plugin) => ({
      name: plugin.name,
      hooks: plugin.definition.hooks ?? {},
      settings: plugin.settings,
      isActive: plugin.isActive,
    })),
    timeoutMs: hookMs,
    clock,
    log,
  });

  return {
    plugins: all,
    plugin: (name) => managed.get(name),
    get tools() {
      return all
        .filter((plugin) => plugin.isActive() && plugin.state().state === 'ready')
        .flatMap((plugin) => [...plugin.tools.values()]);
    },
    tool(name) {
      // An action's name has no underscore, so the first one ends the plugin's.
      const at = name.indexOf('_');
      return at < 0 ? undefined : managed.get(name.slice(0, at))?.tools.get(name.slice(at + 1));
    },
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
      await hooks.settled();
      for (const plugin of [...all].reverse()) await plugin.stop();
    },
  };
}

// A resolve has exactly one answer, so a name has exactly one resolver; the other kinds may be many.
function claimHooks({ name, hooks = {} }: Plugin, resolvers: Map<string, string>): void {
  for (const kind of Object.keys(hooks)) {
    if (!kinds.includes(kind as keyof PluginHooks))
      throw new Error(`The plugin "${name}" has hooks of the kind "${kind}"; there are ${kinds.join(', ')}.`);
  }
  for (const kind of kinds) {
    for (const [hook, run] of Object.entries(hooks[kind] ?? {})) {
      if (!hookNames.has(hook))
        throw new Error(
          `The plugin "${name}" has a hook "${hook}", which is never called; there are ${[...hookNames].join(', ')}.`,
        );
      if (typeof run !== 'function')
        throw new Error(`The hook "${hook}" of the plugin "${name}" is not a function.`);
      if (kind !== 'resolves') continue;
      const other = resolvers.get(hook);
      if (other !== undefined) throw new Error(`Two plugins resolve "${hook}": "${other}" and "${name}".`);
      resolvers.set(hook, name);
    }
  }
}
