// The type of a plugin: a plain value with actions, which the model calls as tools, and hooks,
// which the agent calls. Defining one has no side effect; the registry validates it when the agent
// starts.
import type { InputOf } from '../../../kernel/contract/schema-type.ts';
import type { JsonSchema, SchemaCheck } from '../../../kernel/contract/schema.ts';
import type { Log } from '../../../kernel/log.ts';
import type { ServiceDefinition } from '../../service-definition.ts';
import type { PluginHooks } from './hooks.ts';

/** The second argument of an action. */
export interface ActionContext {
  /** Aborted at the deadline and when the run ends; a later result is dropped. */
  signal: AbortSignal;
  /** The folder of the session that tools may use, absolute and without symbolic links. */
  workspace: string;
  /** The session of the run; null for a call over HTTP or from the command line. */
  sessionId: string | null;
  /** The plugin's settings, validated by its `settings` schema at the start. */
  settings: Readonly<Record<string, unknown>>;
  log: Log;
  /**
   * Shows text to the readers of the session's events while the action runs. The model gets only the
   * result.
   */
  showOutput(text: string): void;
  /**
   * Ends the action with a reason for its caller and the model. The text of any other exception
   * goes only to the log.
   */
  refuse(reason: string): never;
}

/** What the decision about a call may depend on besides its input. */
export type PermissionContext = Pick<ActionContext, 'workspace'>;

/** One permission that a call of an action needs. */
export interface ToolPermission {
  /** A right besides that to call the action, such as `network`; only a rule that names it allows it. */
  right?: string;
  /** Whether a rule for the action that has no pattern also grants `right`. */
  isIncluded?: boolean;
  /** A command line for sh. */
  command?: string;
  /** A path relative to the workspace. */
  path?: string;
  /** Whether the call reads what is below the path as well. */
  includesBelow?: boolean;
  /** Whether only a rule for exactly this path allows it. */
  isProtected?: boolean;
}

export interface Action<Input = never> {
  /** Tells the model what the action does and when to use it. */
  description: string;
  /** The JSON Schema (2020-12) of the input, an object; invalid input never reaches `run`. */
  input: JsonSchema;
  /**
   * Validates the input instead of the agent, which then never compiles `input`. For schemas of third
   * parties, which may be too expensive to compile.
   */
  check?: SchemaCheck;
  /** The JSON Schema of the result. An invalid result fails the call. */
  output?: JsonSchema;
  /** Whether `townhall agent call` may run it; false by default. */
  command?: boolean;
  /** Whether `POST /api/plugins/action` may run it; false by default. */
  api?: boolean;
  /**
   * Whether a person must approve the model's call. A function decides by input and settings; if it
   * throws, the call requires approval.
   */
  needsApproval?:
    | boolean
    | ((input: Input, settings: Readonly<Record<string, unknown>>, context: PermissionContext) => boolean);
  /** Whether the action only reads, so that sessions of mode `plan` may call it; false by default. */
  readOnly?: boolean;
  /** The command or path that permission rules match; without it a rule can only name the action. */
  permissions?(
    input: Input,
    context: PermissionContext,
  ): readonly ToolPermission[] | Promise<readonly ToolPermission[]>;
  /** A deadline longer than the agent's default for tools. */
  timeoutMs?: number;
  /**
   * Runs the action. The result is any JSON value. The model gets the reason of a `refuse`; after
   * any other exception it is only told that the action failed.
   */
  run(input: Input, context: ActionContext): Promise<unknown>;
}

/** The members of an action that everyone with the agent's token or its data folder may run. */
export const everyCaller = { api: true, command: true } as const;

/** The argument of `start`. */
export interface StartContext {
  /** Aborted at the deadline of the start and when the agent stops. */
  signal: AbortSignal;
  workspace: string;
  settings: Readonly<Record<string, unknown>>;
  log: Log;
  /**
   * Offers these actions in addition to the plugin's own `actions`; they replace those of an earlier
   * call. Throws for an invalid action.
   */
  offer(actions: Readonly<Record<string, Action>>): void;
}

/** Whether a plugin can work now; the reasons are for the operator. */
export interface Availability {
  available: boolean;
  reasons?: readonly string[];
}

export interface Plugin {
  /** Unique among the plugins; the first part of its tools' names. */
  name: string;
  title: string;
  description: string;
  /** The plugin's part of the system prompt, in addition to the descriptions of its actions. */
  system?: string | (() => string);
  /** The JSON Schema of its settings, an object; without one the plugin takes none. */
  settings?: JsonSchema;
  /** Called before each use; a plugin is unavailable when this function throws or misses its deadline. */
  availability?(): Promise<Availability> | Availability;
  actions: Readonly<Record<string, Action>>;
  hooks?: PluginHooks;
  /** Background services; each is a service of the agent under its own name. */
  services?: readonly ServiceDefinition[];
  /**
   * Called once, before the agent listens. An exception or a timeout fails the plugin and not the
   * agent.
   */
  start?(context: StartContext): Promise<void> | void;
  /** Called once, after a successful `start`, when the plugin is no longer in use. */
  stop?(): Promise<void> | void;
}

type ActionOf<Schema extends JsonSchema> = Omit<Action<InputOf<Schema>>, 'input'> & { input: Schema };

/**
 * Types a plugin. Each action's `run` gets the type that its `input` schema describes
 * (`InputOf`).
 */
export function definePlugin<const Schemas extends Record<string, JsonSchema>>(
  plugin: Omit<Plugin, 'actions'> & { actions: { [Name in keyof Schemas]: ActionOf<Schemas[Name]> } },
): Plugin;
/** Types a plugin whose author states each action's input type, which its `input` schema must ensure. */
export function definePlugin<Inputs extends Record<string, unknown>>(
  plugin: Omit<Plugin, 'actions'> & { actions: { [Name in keyof Inputs]: Action<Inputs[Name]> } },
): Plugin;
export function definePlugin(plugin: object): Plugin {
  return plugin as Plugin;
}
