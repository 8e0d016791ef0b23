// One plugin as the agent keeps it: its settings, its start and stop under deadlines, its state and its tools. The
// rule it keeps: whatever the plugin's own code does here, it becomes the plugin's state and nobody's exception.
import type { Clock } from '../../kernel/clock.ts';
import type { Log } from '../../kernel/log.ts';
import { compileSchema, type JsonSchema, type SchemaCheck } from '../../kernel/contract/schema.ts';
import type { Action, Plugin } from './plugin.ts';

/** One action as the model knows it. */
export interface Tool {
  /** `<plugin>_<action>`, unique in the registry. */
  name: string;
  plugin: string;
  action: string;
  definition: Action;
  settings: Readonly<Record<string, unknown>>;
  check: SchemaCheck;
  /** Of the result; absent where the action says nothing about it. */
  checkOutput?: SchemaCheck;
  /** Whether a person has to agree to this very input before a model's call is run. */
  needsApproval(input: unknown): boolean;
  /** Asked of its plugin before each call. */
  availability(): Promise<PluginAvailability>;
}

export interface PluginAvailability {
  enabled: boolean;
  available: boolean;
  reasons: string[];
}

export type PluginState = 'ready' | 'unavailable' | 'failed';

export interface ManagedPlugin {
  readonly name: string;
  readonly title: string;
  readonly description: string;
  readonly definition: Plugin;
  readonly settings: Readonly<Record<string, unknown>>;
  readonly tools: ReadonlyMap<string, Tool>;
  /** What the model is told of it; undefined when there is nothing, or its function failed. */
  system(): string | undefined;
  /** Asks the plugin now, within a deadline. */
  availability(): Promise<PluginAvailability>;
  /** As the last question left it. */
  state(): { state: PluginState; reasons: string[]; since: string };
  /** Whether its hooks count: it is enabled and has not failed to start. A later failure takes its tools away and keeps its guards. */
  isActive(): boolean;
  start(workspace: string): Promise<void>;
  stop(): Promise<void>;
}

export interface ManagedNeeds {
  isEnabled: boolean;
  settings: Readonly<Record<string, unknown>>;
  startMs: number;
  stopMs: number;
  availabilityMs: number;
  /** Why it is unavailable for good: an error that it threw outside of any call. */
  lateFailure(): string | undefined;
  clock: Clock;
  log: Log;
}

// Some providers take no more than 64 characters of [A-Za-z0-9_-] for a tool; an underscore joins the two names.
const nameShape = /^[a-z][a-z0-9-]{0,30}$/;
// An offered name is made from somebody else's; it may fill what the tool's name has room for.
const offeredShape = /^[a-z][a-z0-9-]*$/;
const longestToolName = 64;
const longestSystem = 16 * 1024;
const mostReasons = 16;

/** Throws when the plugin is not sound: a name that no tool may have, a schema that is none, settings that do not fit. */
export function managePlugin(plugin: Plugin, needs: ManagedNeeds): ManagedPlugin {
  requireName('plugin', plugin.name);
  requireSettings(plugin, needs.settings);
  const log = needs.log.child({ plugin: plugin.name });
  const own = toolsOf(plugin.actions, nameShape);
  let offered = new Map<string, Tool>();
  let failure: string | undefined;
  let hasStarted = false;
  const stopping = new AbortController();
  let current: { state: PluginState; reasons: string[]; since: string } = {
    state: needs.isEnabled ? 'ready' : 'unavailable',
    reasons: needs.isEnabled ? [] : ['It is disabled by configuration.'],
    since: needs.clock.now().toISOString(),
  };

  function toolsOf(actions: Readonly<Record<string, Action>>, shape: RegExp): Map<string, Tool> {
    const tools = new Map<string, Tool>();
    for (const [action, definition] of Object.entries(actions)) {
      requireName(`action of the plugin "${plugin.name}"`, action, shape);
      const name = `${plugin.name}_${action}`;
      if (name.length > longestToolName)
        throw new Error(`The tool "${name}" has a name of more than ${longestToolName} characters.`);
      tools.set(action, {
        name,
        plugin: plugin.name,
        action,
        definition,
        settings: needs.settings,
        check: definition.check ?? compile(`input schema of "${name}"`, definition.input, true),
        ...(definition.output === undefined
          ? {}
          : { checkOutput: compile(`output schema of "${name}"`, definition.output, false) }),
        needsApproval: (input) => asksApproval(definition, input, needs.settings),
        availability,
      });
    }
    return tools;
  }

  function note({ enabled, available, reasons }: PluginAvailability): void {
    const state: PluginState =
      enabled && (failure ?? needs.lateFailure()) !== undefined
        ? 'failed'
        : available
          ? 'ready'
          : 'unavailable';
    const since = state === current.state ? current.since : needs.clock.now().toISOString();
    current = { state, reasons, since };
  }

  async function availability(): Promise<PluginAvailability> {
    const found = await look();
    note(found);
    return found;
  }

  async function look(): Promise<PluginAvailability> {
    if (!needs.isEnabled)
      return { enabled: false, available: false, reasons: ['It is disabled by configuration.'] };
    const reason = failure ?? needs.lateFailure();
    if (reason !== undefined) return { enabled: true, available: false, reasons: [reason] };
    if (!plugin.availability) return { enabled: true, available: true, reasons: [] };
    try {
      const answer: unknown = await within(needs.clock, needs.availabilityMs, async () =>
        plugin.availability?.(),
      );
      if (
        typeof answer !== 'object' ||
        answer === null ||
        typeof (answer as { available?: unknown }).available !== 'boolean'
      ) {
        return {
          enabled: true,
          available: false,
          reasons: ['It gave no answer to the question whether it is available.'],
        };
      }
      const { available, reasons } = answer as { available: boolean; reasons?: unknown };
      return { enabled: true, available, reasons: textsOf(reasons) };
    } catch (error) {
      log.warn({ err: error }, 'a plugin could not say whether it is available');
      return { enabled: true, available: false, reasons: ['It could not say whether it is available.'] };
    }
  }

  return {
    name: plugin.name,
    title: plugin.title,
    description: plugin.description,
    definition: plugin,
    settings: needs.settings,
    get tools() {
      return offered.size === 0 ? own : new Map([...own, ...offered]);
    },
    system() {
      try {
        const text: unknown = typeof plugin.system === 'function' ? plugin.system() : plugin.system;
        return typeof text === 'string' && text !== '' ? text.slice(0, longestSystem) : undefined;
      } catch (error) {
        log.warn({ err: error }, 'a plugin has no system text now');
        return undefined;
      }
    },
    availability,
    state: () => current,
    isActive: () => needs.isEnabled && failure === undefined,
    async start(workspace) {
      if (!needs.isEnabled) return;
      try {
        await within(needs.clock, needs.startMs, async (signal) =>
          plugin.start?.({
            signal: AbortSignal.any([signal, stopping.signal]),
            workspace,
            settings: needs.settings,
            log,
            offer(actions) {
              const tools = toolsOf(actions, offeredShape);
              const twice = [...tools.keys()].find((name) => own.has(name));
              if (twice !== undefined) throw new Error(`The action "${twice}" is the plugin's own already.`);
              offered = tools;
            },
          }),
        );
        hasStarted = true;
      } catch (error) {
        log.error({ err: error }, 'a plugin did not start');
        failure =
          error instanceof Late
            ? `It did not start within ${needs.startMs / 1000} seconds.`
            : 'It failed to start; the log says why.';
      }
      await availability();
    },
    async stop() {
      stopping.abort();
      if (!hasStarted) return;
      hasStarted = false;
      try {
        await within(needs.clock, needs.stopMs, async () => plugin.stop?.());
      } catch (error) {
        log.warn({ err: error }, 'a plugin did not stop well');
      }
    },
  };
}

class Late extends Error {}

// The plugin's promise is abandoned at the deadline; whatever becomes of it must not end the process.
async function within<T>(clock: Clock, ms: number, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const end = new AbortController();
  const abandoned = new AbortController();
  try {
    const running = work(abandoned.signal);
    running.catch(() => {});
    const late = clock.sleep(ms, end.signal).then(() => {
      abandoned.abort();
      throw new Late(`It took longer than ${ms} ms.`);
    });
    late.catch(() => {});
    return await Promise.race([running, late]);
  } finally {
    end.abort();
  }
}

// A function that fails asks: nobody has said that this input needs no person.
function asksApproval(
  { needsApproval = false }: Action,
  input: unknown,
  settings: Readonly<Record<string, unknown>>,
): boolean {
  if (typeof needsApproval === 'boolean') return needsApproval;
  try {
    const verdict: unknown = needsApproval(structuredClone(input) as never, settings);
    return verdict !== false;
  } catch {
    return true;
  }
}

function textsOf(reasons: unknown): string[] {
  if (!Array.isArray(reasons)) return [];
  return reasons
    .filter((reason) => typeof reason === 'string')
    .slice(0, mostReasons)
    .map((reason: string) => reason.toWellFormed().slice(0, 500));
}

function requireName(what: string, name: string, shape = nameShape): void {
  if (typeof name === 'string' && shape.test(name)) return;
  throw new Error(
    `The ${what} has the name ${JSON.stringify(name)}; names are lower-case letters, digits and hyphens, 31 at most.`,
  );
}

function requireSettings(plugin: Plugin, settings: Readonly<Record<string, unknown>>): void {
  if (plugin.settings === undefined) {
    if (Object.keys(settings).length > 0) throw new Error(`The plugin "${plugin.name}" takes no settings.`);
    return;
  }
  const verdict = compile(`settings schema of "${plugin.name}"`, plugin.settings, true)(settings);
  if (verdict.ok) return;
  const faults = verdict.details
    .map(({ path, message }) => `${path === '' ? 'they' : path} ${message}`)
    .join('; ');
  throw new Error(`The settings of the plugin "${plugin.name}" do not fit: ${faults}.`);
}

function compile(what: string, schema: JsonSchema, isObject: boolean): SchemaCheck {
  if (typeof schema !== 'object' || schema === null || (isObject && schema['type'] !== 'object')) {
    throw new Error(`The ${what} is not that of an object.`);
  }
  try {
    return compileSchema(schema);
  } catch (cause) {
    throw new Error(`The ${what} is not a JSON Schema.`, { cause });
  }
}
