// The shape of a plugin: a plain value with actions, which the model calls as tools, and hooks, which the agent calls.
// Defining one has no side effect; the registry checks it when the agent starts.
import type { JsonSchema, SchemaCheck } from '../../../kernel/contract/schema.ts';
import type { Log } from '../../../kernel/log.ts';
import type { ServiceDefinition } from '../../service-definition.ts';
import type { PluginHooks } from './hooks.ts';

/** What an action gets beside its input. */
export interface ActionContext {
  /** Aborted when the call is late or its run ends; a result after that is dropped. */
  signal: AbortSignal;
  /** The folder that tools may use, absolute and without symbolic links. */
  workspace: string;
  /** The session of the run; null for a call over HTTP or from the command line. */
  sessionId: string | null;
  /** The plugin's settings, validated by its `settings` schema at the start. */
  settings: Readonly<Record<string, unknown>>;
  log: Log;
  /** Ends the action with a reason for its caller and the model. The text of any other throw goes to the log alone. */
  refuse(reason: string): never;
}

export interface Action<Input = never> {
  /** For the model: what it does and when to use it. */
  description: string;
  /** The JSON Schema (2020-12) of the input, an object; input that does not fit never reaches `run`. */
  input: JsonSchema;
  /** Validates the input in place of the agent, which then never compiles `input`: for schemas from elsewhere. */
  check?: SchemaCheck;
  /** The JSON Schema of the result. A result that does not fit fails the call. */
  output?: JsonSchema;
  /** Whether `townhall agent call` may run it; false by default. */
  command?: boolean;
  /** Whether `POST /api/plugins/action` may run it; false by default. */
  api?: boolean;
  /** Whether a person has to approve a call of the model; a function decides by input and settings. One that throws requires approval. */
  needsApproval?: boolean | ((input: Input, settings: Readonly<Record<string, unknown>>) => boolean);
  /** A longer deadline than that of all tools. */
  timeoutMs?: number;
  /**
   * Runs the action. The result is any JSON value. The model gets the reason of a `refuse`; of any other throw it gets
   * only that the action failed.
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
  /** Sets actions beside the plugin's own `actions`, in place of those it offered before. Throws when one is not valid. */
  offer(actions: Readonly<Record<string, Action>>): void;
}

/** Whether a plugin can work now and, if not, why; the reasons are for the operator. */
export interface Availability {
  available: boolean;
  reasons?: readonly string[];
}

export interface Plugin {
  /** Unique among the plugins; the first part of its tools' names. */
  name: string;
  title: string;
  description: string;
  /** Part of the system prompt, beside the descriptions of the actions. */
  system?: string | (() => string);
  /** The JSON Schema of its settings, an object; without one the plugin takes none. */
  settings?: JsonSchema;
  /** Called before each use; a plugin that throws or is late here is unavailable. */
  availability?(): Promise<Availability> | Availability;
  actions: Readonly<Record<string, Action>>;
  hooks?: PluginHooks;
  /** Background services; each is a service of the agent under its own name. */
  services?: readonly ServiceDefinition[];
  /** Called once, before the agent listens. A throw or a late start fails the plugin, not the agent. */
  start?(context: StartContext): Promise<void> | void;
  /** Called once, after a successful `start`, when nothing of the plugin is in use any more. */
  stop?(): Promise<void> | void;
}

/** Types a plugin; `Inputs` gives each action the type of its input, which its schema has to ensure. */
export function definePlugin<Inputs extends Record<string, unknown>>(
  plugin: Omit<Plugin, 'actions'> & { actions: { [Name in keyof Inputs]: Action<Inputs[Name]> } },
): Plugin {
  return plugin as Plugin;
}
