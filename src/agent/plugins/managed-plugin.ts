// One plugin as the agent runs it: settings, start and stop with deadlines, state and tools. An
// exception or a hang of the plugin's own code changes the plugin's state and never becomes an
// exception of the agent.
import { withTimeout } from '../../kernel/async.ts';
import type { Clock } from '../../kernel/clock.ts';
import { isRecord } from '../../kernel/json-value.ts';
import type { Log } from '../../kernel/log.ts';
import { startOfText } from '../../kernel/start-of-text.ts';
import { describeStartError } from '../start-error.ts';
import type { Action, Plugin } from './definition/plugin.ts';
import {
  offeredNameShape,
  requireName,
  requireSettings,
  toolsOf,
  type PluginAvailability,
  type Tool,
  type ToolContext,
} from './tool.ts';

export type PluginState = 'ready' | 'unavailable' | 'failed';

export interface ManagedPlugin {
  readonly name: string;
  readonly title: string;
  readonly description: string;
  readonly definition: Plugin;
  readonly settings: Readonly<Record<string, unknown>>;
  readonly tools: ReadonlyMap<string, Tool>;
  /** The plugin's part of the system prompt; undefined when it has none or its function failed. */
  system(): string | undefined;
  /** Calls the plugin, within a deadline, and updates the state. Never throws. */
  availability(): Promise<PluginAvailability>;
  /** The result of the last call of `availability`. */
  state(): { state: PluginState; reasons: string[]; since: string };
  /**
   * Whether its hooks are called: it is enabled and did not fail to start. A later failure removes its
   * tools but keeps its hooks, so that its guards cannot be bypassed.
   */
  isActive(): boolean;
  hasFailedToStart(): boolean;
  start(workspace: string): Promise<void>;
  stop(): Promise<void>;
}

export interface ManagedPluginOptions {
  isEnabled: boolean;
  settings: Readonly<Record<string, unknown>>;
  startMs: number;
  stopMs: number;
  availabilityMs: number;
  /** Why the plugin is permanently unavailable: an error that it threw outside of any call. */
  lateFailure(): string | undefined;
  clock: Clock;
  log: Log;
}

const maxSystemLength = 16 * 1024;
const maxReasons = 16;

type Lifecycle =
  | { phase: 'new' }
  | { phase: 'started' }
  | { phase: 'failed'; reason: string }
  | { phase: 'stopped' };

interface Management {
  readonly plugin: Plugin;
  readonly options: ManagedPluginOptions;
  readonly log: Log;
  readonly tools: ToolSet;
  readonly stopController: AbortController;
  lifecycle: Lifecycle;
  lastState: ReturnType<ManagedPlugin['state']>;
}

/**
 * Throws for an invalid plugin: a name that no tool may have, an invalid schema, invalid settings.
 */
export function managePlugin(plugin: Plugin, options: ManagedPluginOptions): ManagedPlugin {
  requireName('plugin', plugin.name);
  requireSettings(plugin, options.settings);
  const { isEnabled, settings, availabilityMs, clock } = options;
  const log = options.log.child({ plugin: plugin.name });
  const tools = createToolSet(plugin, {
    plugin: plugin.name,
    settings,
    availability: () => readAvailability(management),
    permissionsMs: availabilityMs,
    clock,
    log,
  });
  const management: Management = {
    plugin,
    options,
    log,
    tools,
    stopController: new AbortController(),
    lifecycle: { phase: 'new' },
    lastState: {
      state: isEnabled ? 'ready' : 'unavailable',
      reasons: isEnabled ? [] : disabledAvailability.reasons,
      since: clock.now().toISOString(),
    },
  };
  return {
    name: plugin.name,
    title: plugin.title,
    description: plugin.description,
    definition: plugin,
    settings,
    get tools() {
      return tools.all();
    },
    system: () => systemText(plugin, log),
    availability: () => readAvailability(management),
    state: () => management.lastState,
    isActive: () => isEnabled && management.lifecycle.phase !== 'failed',
    hasFailedToStart: () => management.lifecycle.phase === 'failed',
    start: (workspace) => start(management, workspace),
    stop: () => stop(management),
  };
}

/** The tools of a plugin: those of its own actions, and those that it offers at run time. */
interface ToolSet {
  all(): ReadonlyMap<string, Tool>;
  /** Replaces the offered tools. Throws for an invalid action and for the name of an own action. */
  offer(actions: Readonly<Record<string, Action>>): void;
}

function createToolSet({ actions: ownActions }: Plugin, context: ToolContext): ToolSet {
  const ownTools = toolsOf(ownActions, context);
  let offeredTools = new Map<string, Tool>();
  return {
    all: () => (offeredTools.size === 0 ? ownTools : new Map([...ownTools, ...offeredTools])),
    offer(actions) {
      const tools = toolsOf(actions, { ...context, nameShape: offeredNameShape });
      const duplicateName = [...tools.keys()].find((name) => ownTools.has(name));
      if (duplicateName !== undefined)
        throw new Error(
          `The plugin cannot offer the action "${duplicateName}": it has an action of this name already.`,
        );
      offeredTools = tools;
    },
  };
}

async function start(management: Management, workspace: string): Promise<void> {
  const { plugin, options, log, tools, stopController } = management;
  const { isEnabled, settings, startMs, clock } = options;
  if (!isEnabled) return;
  try {
    await withTimeout(
      async (signal) =>
        plugin.start?.({
          signal: AbortSignal.any([signal, stopController.signal]),
          workspace,
          settings,
          log,
          offer: tools.offer,
        }),
      { ms: startMs, clock },
    );
    management.lifecycle = { phase: 'started' };
  } catch (error) {
    log.error({ err: error }, 'a plugin did not start');
    management.lifecycle = { phase: 'failed', reason: describeStartError(error, startMs) };
  }
  await readAvailability(management);
}

async function stop(management: Management): Promise<void> {
  const { plugin, options, log, stopController } = management;
  stopController.abort();
  if (management.lifecycle.phase !== 'started') return;
  management.lifecycle = { phase: 'stopped' };
  try {
    await withTimeout(async () => plugin.stop?.(), { ms: options.stopMs, clock: options.clock });
  } catch (error) {
    log.warn({ err: error }, 'a plugin did not stop without errors');
  }
}

/** Determines the availability and updates the state of the plugin. */
async function readAvailability(management: Management): Promise<PluginAvailability> {
  const availability = await determineAvailability(management);
  const { lastState, options } = management;
  const state = stateOf(management, availability);
  const since = state === lastState.state ? lastState.since : options.clock.now().toISOString();
  management.lastState = { state, reasons: availability.reasons, since };
  return availability;
}

async function determineAvailability(management: Management): Promise<PluginAvailability> {
  const { plugin, options, log } = management;
  if (!options.isEnabled) return disabledAvailability;
  const reason = failureReason(management);
  return reason === undefined ? callAvailability(plugin, options, log) : unavailableBecause(reason);
}

function stateOf(management: Management, { enabled, available }: PluginAvailability): PluginState {
  if (enabled && failureReason(management) !== undefined) return 'failed';
  return available ? 'ready' : 'unavailable';
}

function failureReason({ lifecycle, options }: Management): string | undefined {
  return lifecycle.phase === 'failed' ? lifecycle.reason : options.lateFailure();
}

const disabledAvailability: PluginAvailability = {
  enabled: false,
  available: false,
  reasons: ['It is disabled by configuration.'],
};

function unavailableBecause(reason: string): PluginAvailability {
  return { enabled: true, available: false, reasons: [reason] };
}

async function callAvailability(
  plugin: Plugin,
  { availabilityMs, clock }: Pick<ManagedPluginOptions, 'availabilityMs' | 'clock'>,
  log: Log,
): Promise<PluginAvailability> {
  if (!plugin.availability) return { enabled: true, available: true, reasons: [] };
  try {
    const answer: unknown = await withTimeout(async () => plugin.availability?.(), {
      ms: availabilityMs,
      clock,
    });
    if (!isRecord(answer) || typeof answer['available'] !== 'boolean')
      return unavailableBecause('It returned no valid availability.');
    return { enabled: true, available: answer['available'], reasons: readReasons(answer['reasons']) };
  } catch (error) {
    log.warn({ err: error }, 'the availability of a plugin could not be determined');
    return unavailableBecause('Its availability could not be determined.');
  }
}

function systemText(plugin: Plugin, log: Log): string | undefined {
  try {
    const text: unknown = typeof plugin.system === 'function' ? plugin.system() : plugin.system;
    if (typeof text !== 'string' || text === '') return undefined;
    return startOfText(text, maxSystemLength);
  } catch (error) {
    log.warn({ err: error }, 'the system text of a plugin failed');
    return undefined;
  }
}

function readReasons(reasons: unknown): string[] {
  if (!Array.isArray(reasons)) return [];
  return reasons
    .filter((reason) => typeof reason === 'string')
    .slice(0, maxReasons)
    .map((reason: string) => startOfText(reason, 500));
}
