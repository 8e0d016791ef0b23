// The shape of a plugin: a plain value with actions, which the model may call as tools, and hooks, which the core
// calls. Making one has no side effect; the registry checks it when the agent starts.
import type { JsonSchema, SchemaCheck } from '../../kernel/contract/schema.ts';
import type { Log } from '../../kernel/log.ts';
import type { ServiceDefinition } from '../services/index.ts';
import type { PluginHooks } from './hooks.ts';

/** What an action gets beside its input. */
export interface ActionContext {
  /** Aborted when the call is late or its run ends. An action that goes on after that is no longer listened to. */
  signal: AbortSignal;
  /** The folder that tools may touch, absolute and without symbolic links. */
  workspace: string;
  /** The session whose run calls; null for a call over HTTP or from the command line. */
  sessionId: string | null;
  /** The plugin's settings, held against its `settings` schema at the start. */
  settings: Readonly<Record<string, unknown>>;
  log: Log;
  /** Ends the action with a reason that its caller and the model may read; the text of any other throw is shown to nobody. */
  refuse(reason: string): never;
}

export interface Action<Input = never> {
  /** For the model: what it does and when to use it. */
  description: string;
  /** The JSON Schema (2020-12) of the input, an object; input that does not fit never reaches `run`. */
  input: JsonSchema;
  /** Holds an input against the schema in place of the agent, which then never compiles it: for a schema that somebody else wrote. */
  check?: SchemaCheck;
  /** The JSON Schema of the result. A result that does not fit is a failure of the action. */
  output?: JsonSchema;
  /** Whether `townhall agent call` may run it; not unless said. */
  command?: boolean;
  /** Whether `POST /api/plugins/action` may run it; not unless said. */
  api?: boolean;
  /** Whether a person has to agree before the model's call is run; a function decides by the input and the settings, and one that throws has said yes. */
  needsApproval?: boolean | ((input: Input, settings: Readonly<Record<string, unknown>>) => boolean);
  /** Its own deadline, where that of all tools is too short for what it does. */
  timeoutMs?: number;
  /**
   * Does it. The result is any JSON value. The reason of a `refuse` is shown to the model; of any other throw the
   * model learns only that the action failed.
   */
  run(input: Input, context: ActionContext): Promise<unknown>;
}

/** What `start` gets. */
export interface StartContext {
  /** Aborted when the start is late and when the agent stops. */
  signal: AbortSignal;
  workspace: string;
  settings: Readonly<Record<string, unknown>>;
  log: Log;
  /** Sets the actions that the plugin has beside its own `actions`, in place of those it offered before. Throws on what the registry would refuse. */
  offer(actions: Readonly<Record<string, Action>>): void;
}

/** Whether a plugin can do its work now and, where it cannot, why; the reasons are for whoever runs the agent. */
export interface Availability {
  available: boolean;
  reasons?: readonly string[];
}

export interface Plugin {
  /** Unique among the plugins; the first part of its tools' names. */
  name: string;
  title: string;
  description: string;
  /** What the model is told about it beside the descriptions of its actions. */
  system?: string | (() => string);
  /** The JSON Schema of its settings, an object; without one it takes none. */
  settings?: JsonSchema;
  /** Asked before each use; a plugin that throws or takes its time here is not available. */
  availability?(): Promise<Availability> | Availability;
  actions: Readonly<Record<string, Action>>;
  hooks?: PluginHooks;
  /** What it runs beside the requests; each is a service of the agent under its own name. */
  services?: readonly ServiceDefinition[];
  /** Once, before the agent listens. What it throws, and being late, is the plugin's failure and not the agent's. */
  start?(context: StartContext): Promise<void> | void;
  /** Once, after a `start` that went well, when nothing of the plugin is in use any more. */
  stop?(): Promise<void> | void;
}

/** Names the type; `Inputs` gives each action the type of its input, which its schema has to warrant. */
export function definePlugin<Inputs extends Record<string, unknown>>(
  plugin: Omit<Plugin, 'actions'> & { actions: { [Name in keyof Inputs]: Action<Inputs[Name]> } },
): Plugin {
  return plugin as Plugin;
}
