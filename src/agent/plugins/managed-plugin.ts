// One plugin as the agent runs it: settings, start and stop with deadlines, state and tools. An
// exception or a hang of the plugin's own code changes the plugin's state and never becomes an
// exception of the agent.
import { withTimeout } from '../../kernel/async.ts';
import type { Clock } from '../../kernel/clock.ts';
import { isRecord } from '../../kernel/json-value.ts';
import type { Log } from '../../kernel/log.ts';
import type { Action, Plugin } from './definition/plugin.ts';
import {
  offeredNameShape,
  requireName,
  requireSettings,
  toolsOf,
  type PluginAvailability,
  type Tool,
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
   * Whether its hooks are called: it is enabled and did not fail to start. A later
   * failure removes its tools but keeps its guards.
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

class TimeoutError extends Error {}

/**
 * Throws for an invalid plugin: a name that no tool may have, an invalid schema, invalid settings.
 */
export function managePlugin(plugin: Plugin, options: ManagedPluginOptions): ManagedPlugin {
  requireName('plugin', plugin.name);
  requireSettings(plugin, options.settings);
  const { isEnabled, settings, clock } = options;
  const log = options.log.child({ plugin: plugin.name });
  const stopController = new AbortController();
  let lifecycle: Lifecycle = { phase: 'new' };
  let current: ReturnType<ManagedPlugin['state']> = {
    state: isEnabled ? 'ready' : 'unavailable',
    reasons: isEnabled ? [] : disabledAvailability.reasons,
    since: clock.now().toISOString(),
  };
  const permissionsMs = options.availabilityMs;
  const toolContext = {
    plugin: plugin.name,
    settings,
    availability: readAvailability,
    permissionsMs,
    clock,
    log,
  };
  const ownTools = toolsOf(plugin.actions, toolContext);
  let offeredTools = new Map<string, Tool>();

  const failureReason = () => (lifecycle.phase === 'failed' ? lifecycle.reason : options.lateFailure());

  async function readAvailability(): Promise<PluginAvailability> {
    const answer = await readCurrentAvailability();
    const state = stateOf(answer);
    const sinceTime = state === current.state ? current.since : clock.now().toISOString();
    current = { state, reasons: answer.reasons, since: sinceTime };
    return answer;
  }

  function stateOf({ enabled, available }: PluginAvailability): PluginState {
    if (enabled && failureReason() !== undefined) return 'failed';
    return available ? 'ready' : 'unavailable';
  }

  async function readCurrentAvailability(): Promise<PluginAvailability> {
    if (!isEnabled) return disabledAvailability;
    const reason = failureReason();
    return reason === undefined ? askPlugin(plugin, options, log) : unavailableBecause(reason);
  }

  function offer(actions: Readonly<Record<string, Action>>): void {
    const tools = toolsOf(actions, { ...toolContext, nameShape: offeredNameShape });
    const duplicateName = [...tools.keys()].find((name) => ownTools.has(name));
    if (duplicateName !== undefined)
      throw new Error(`The action "${duplicateName}" is one of the plugin's own actions already.`);
    offeredTools = tools;
  }

  async function start(workspace: string): Promise<void> {
    if (!isEnabled) return;
    try {
      await withTimeout(
        async (signal) =>
          plugin.start?.({
            signal: AbortSignal.any([signal, stopController.signal]),
            workspace,
            settings,
            log,
            offer,
          }),
        timeoutOptions(options.startMs, clock),
      );
      lifecycle = { phase: 'started' };
    } catch (error) {
      log.error({ err: error }, 'a plugin did not start');
      lifecycle = { phase: 'failed', reason: describeStartError(error, options.startMs) };
    }
    await readAvailability();
  }

  async function stop(): Promise<void> {
    stopController.abort();
    if (lifecycle.phase !== 'started') return;
    lifecycle = { phase: 'stopped' };
    try {
      await withTimeout(async () => plugin.stop?.(), timeoutOptions(options.stopMs, clock));
    } catch (error) {
      log.warn({ err: error }, 'a plugin did not stop without errors');
    }
  }

  return {
    name: plugin.name,
    title: plugin.title,
    description: plugin.description,
    definition: plugin,
    settings,
    get tools() {
      return offeredTools.size === 0 ? ownTools : new Map([...ownTools, ...offeredTools]);
    },
    system: () => systemText(plugin, log),
    availability: readAvailability,
    state: () => current,
    isActive: () => isEnabled && lifecycle.phase !== 'failed',
    hasFailedToStart: () => lifecycle.phase === 'failed',
    start,
    stop,
  };
}

const disabledAvailability: PluginAvailability = {
  enabled: false,
  available: false,
  reasons: ['It is disabled by configuration.'],
};

function unavailableBecause(reason: string): PluginAvailability {
  return { enabled: true, available: false, reasons: [reason] };
}

function timeoutOptions(ms: number, clock: Clock): Parameters<typeof withTimeout>[1] {
  return { ms, error: () => new TimeoutError(`It took longer than ${ms} ms.`), clock };
}

function describeStartError(error: unknown, startMs: number): string {
  return error instanceof TimeoutError
    ? `It did not start within ${startMs / 1000} seconds.`
    : 'It failed to start; the log has the details.';
}

async function askPlugin(
  plugin: Plugin,
  { availabilityMs, clock }: Pick<ManagedPluginOptions, 'availabilityMs' | 'clock'>,
  log: Log,
): Promise<PluginAvailability> {
  if (!plugin.availability) return { enabled: true, available: true, reasons: [] };
  try {
    const answer: unknown = await withTimeout(
      async () => plugin.availability?.(),
      timeoutOptions(availabilityMs, clock),
    );
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
    return typeof text === 'string' && text !== '' ? text.slice(0, maxSystemLength) : undefined;
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
    .map((reason: string) => reason.toWellFormed().slice(0, 500));
}
