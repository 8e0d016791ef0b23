// The types of hooks: functions of plugins that the agent calls around a prompt, a step, a tool, an
// answer and an enqueue.
import type { Log } from '../../../kernel/log.ts';

/** The value of each hook. A pipeline returns the same members; effects and guards only read it. */
export interface HookValues {
  /** Before an input is accepted, from any route. */
  'enqueue.before': { text: string; origin: string };
  /** After the input is accepted and stored. */
  'enqueue.after': { text: string; origin: string };
  /** Before the first model call of a run. */
  'prompt.before': { system: string; text: string };
  /** After the run; `text` is the model's last text. */
  'prompt.after': { text: string; outcome: string };
  'step.before': { step: number };
  'step.after': { step: number; finishReason: string };
  /**
   * Before a tool is called. Of a pipeline's result only `input` is used; it is any JSON and is validated by
   * the tool's schema afterwards.
   */
  'tool.before': { toolName: string; toolCallId: string; input: unknown };
  /**
   * After the tool; `output` is any JSON, or the text of the failure when `ok` is false. Pipelines run only
   * after a success, and of their result only `output` is used.
   */
  'tool.after': { toolName: string; toolCallId: string; input: unknown; ok: boolean; output: unknown };
  /** Before the text of an answer is stored. */
  'answer.before': { text: string };
  'answer.after': { text: string };
}

export type HookName = keyof HookValues;

/** The context of a hook's call. */
export interface HookContext {
  /** Null outside of a session, such as for an action called over HTTP. */
  sessionId: string | null;
  runId?: string;
  /** Aborted when the work ends; hooks are not awaited beyond that. */
  signal?: AbortSignal;
}

/** Calls the hooks of all plugins, in the order of the plugins. */
export interface Hooks {
  /** The value after all pipelines. Never throws: a pipeline that fails is skipped. */
  pipeline<Name extends HookName>(
    name: Name,
    value: HookValues[Name],
    context: HookContext,
  ): Promise<HookValues[Name]>;
  /** Throws a Problem (`plugin_refused`) when a guard refuses or fails. */
  guard<Name extends HookName>(name: Name, value: HookValues[Name], context: HookContext): Promise<void>;
  /** Starts the side effects and does not await them. Never throws. */
  effect<Name extends HookName>(name: Name, value: HookValues[Name], context: HookContext): void;
  /**
   * The answer of the plugin that resolves this hook; undefined when no plugin resolves it, when the
   * plugin returns nothing, and when it fails.
   */
  resolve<Name extends HookName>(name: Name, value: HookValues[Name], context: HookContext): Promise<unknown>;
}

/** The second argument of a hook function. */
export interface HookCall {
  hook: HookName;
  /** Null outside of a session, such as for an action called over HTTP. */
  sessionId: string | null;
  runId: string | null;
  /** Aborted at the deadline of the hook and when the work it belongs to ends. */
  signal: AbortSignal;
  /** The plugin's settings. */
  settings: Readonly<Record<string, unknown>>;
  log: Log;
}

/** Undefined allows the work; `refuse` stops it and is the reason that the caller gets. */
export type GuardVerdict = void | undefined | { refuse: string };

/** The hooks of one plugin. */
export interface PluginHooks {
  pipelines?: {
    [Name in HookName]?: (
      value: HookValues[Name],
      call: HookCall,
    ) => Promise<HookValues[Name]> | HookValues[Name];
  };
  guards?: {
    [Name in HookName]?: (value: HookValues[Name], call: HookCall) => Promise<GuardVerdict> | GuardVerdict;
  };
  effects?: { [Name in HookName]?: (value: HookValues[Name], call: HookCall) => Promise<void> | void };
  resolves?: { [Name in HookName]?: (value: HookValues[Name], call: HookCall) => unknown };
}

/** The names that the registry accepts: a hook with another name would never be called. */
export const hookNames: ReadonlySet<string> = new Set<HookName>([
  'enqueue.before',
  'enqueue.after',
  'prompt.before',
  'prompt.after',
  'step.before',
  'step.after',
  'tool.before',
  'tool.after',
  'answer.before',
  'answer.after',
]);
