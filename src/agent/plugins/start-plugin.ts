// Starts one plugin without an agent, for the tests of its author.
import { systemClock } from '../../kernel/clock.ts';
import { silentLog } from '../../kernel/log.ts';
import { callAction } from './call-action.ts';
import type { Plugin } from './definition/plugin.ts';
import { createRegistry, type PluginRegistry } from './registry.ts';

export interface StartPluginOptions {
  settings?: Readonly<Record<string, unknown>>;
  /** The folder that the actions may use; the current folder by default. */
  workspace?: string;
  /** The deadline of a call in milliseconds; 10,000 by default. */
  timeoutMs?: number;
}

export interface StartedPlugin {
  /**
   * Calls an action as a model would, with an approval. Returns its result as the model gets it; throws
   * an Error with the text that the model gets for invalid input, a refusal, a failure or a timeout.
   */
  call(action: string, input?: object): Promise<unknown>;
  /** The texts that actions passed to `showOutput`. */
  readonly outputs: readonly string[];
  /** Runs the plugin's `stop`. */
  stop(): Promise<void>;
}

/** Throws an Error with the reason when the plugin is invalid, cannot start or is not available. */
export async function startPlugin(
  plugin: Plugin,
  { settings = {}, workspace = process.cwd(), timeoutMs = 10_000 }: StartPluginOptions = {},
): Promise<StartedPlugin> {
  const registry = createRegistry([plugin], { config: new Map([[plugin.name, { settings }]]) });
  await registry.start(workspace);
  const outputs: string[] = [];
  await requireAvailable(registry, plugin.name);
  return {
    outputs,
    async call(action, input = {}) {
      const tool = registry.tool(`${plugin.name}_${action}`);
      if (tool === undefined) throw new Error(`The plugin "${plugin.name}" has no action "${action}".`);
      const outcome = await callAction({
        tool,
        input,
        workspace,
        isApproved: true,
        signal: new AbortController().signal,
        timeoutMs,
        showOutput: (text) => outputs.push(text),
        clock: systemClock,
        log: silentLog,
      });
      if (!outcome.ok) throw new Error(outcome.message, { cause: outcome.problem.cause });
      return outcome.output;
    },
    stop: () => registry.stop(),
  };
}

async function requireAvailable(registry: PluginRegistry, name: string): Promise<void> {
  const availability = await registry.plugin(name)?.availability();
  if (availability?.available === true) return;
  await registry.stop();
  throw new Error(`The plugin "${name}" is not available: ${availability?.reasons.join(' ') ?? ''}`);
}
