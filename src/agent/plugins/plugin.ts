// The shape of a plugin: a plain value with actions, each of which the model may call as a tool. Making one has no
// side effect; the registry checks it when the agent starts.
import type { JsonSchema } from '../../kernel/schema.ts';
import type { Log } from '../../kernel/log.ts';

/** What an action gets beside its input. */
export interface ActionContext {
  /** Aborted when the call is late or its run ends. An action that goes on after that is no longer listened to. */
  signal: AbortSignal;
  /** The folder that tools may touch, absolute and without symbolic links. */
  workspace: string;
  log: Log;
}

export interface Action<Input = never> {
  /** For the model: what it does and when to use it. */
  description: string;
  /** The JSON Schema (2020-12) of the input, an object; input that does not fit never reaches `run`. */
  input: JsonSchema;
  /**
   * Does it. The result is any JSON value. A thrown Problem's message is shown to the model; of any other throw the
   * model learns only that the action failed.
   */
  run(input: Input, context: ActionContext): Promise<unknown>;
}

export interface Plugin {
  /** Unique among the plugins; the first part of its tools' names. */
  name: string;
  title: string;
  description: string;
  actions: Readonly<Record<string, Action>>;
}

/** Names the type; `Inputs` gives each action the type of its input, which its schema has to warrant. */
export function definePlugin<Inputs extends Record<string, unknown>>(plugin: {
  name: string;
  title: string;
  description: string;
  actions: { [Name in keyof Inputs]: Action<Inputs[Name]> };
}): Plugin {
  return plugin as Plugin;
}
