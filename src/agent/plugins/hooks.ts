// The hooks of all plugins as the core calls them: around a prompt, a step, a tool, an answer and an enqueue. The rule
// it keeps: a hook that throws, hangs or answers rubbish costs what it was asked for and nothing else; a guard that
// fails refuses, since whoever asked for a guard wants no way around it.
import type { Clock } from '../../kernel/clock.ts';
import type { Log } from '../../kernel/log.ts';
import { Problem } from '../../kernel/problem.ts';

/** What each hook is given. A pipeline answers the same members again; an effect and a guard only look. */
export interface HookValues {
  /** An input that is about to be accepted, from whichever way in. */
  'enqueue.before': { text: string; origin: string };
  /** It is accepted, and that is durable. */
  'enqueue.after': { text: string; origin: string };
  /** What the model is about to be given at the beginning of a run. */
  'prompt.before': { system: string; text: string };
  /** The run has ended with the model's last word on it. */
  'prompt.after': { text: string; outcome: string };
  'step.before': { step: number };
  'step.after': { step: number; finishReason: string };
  /** A tool that is about to be called; `input` is any JSON and is held against the tool's schema afterwards. */
  'tool.before': { toolName: string; toolCallId: string; input: unknown };
  /** What it gave back: `output` is any JSON, or the text of the failure where `ok` is false. */
  'tool.after': { toolName: string; toolCallId: string; input: unknown; ok: boolean; output: unknown };
  /** The text of an answer before it is kept. */
  'answer.before': { text: string };
  'answer.after': { text: string };
}

export type HookName = keyof HookValues;

/** Whose work the hook is called within. */
export interface HookContext {
  /** Null for what no session has asked for, such as an action that was called over HTTP. */
  sessionId: string | null;
  runId?: string;
  /** Aborted when the work ends; a hook is not waited for beyond that. */
  signal?: AbortSignal;
}

/** How the core calls the hooks of all plugins, in the order of the plugins. */
export interface Hooks {
  /** The value after all transforms. Never throws: a transform that fails is left out. */
  pipeline<Name extends HookName>(
    name: Name,
    value: HookValues[Name],
    context: HookContext,
  ): Promise<HookValues[Name]>;
  /** Throws a Problem (`plugin_refused`) when a guard refuses, and when one fails. */
  guard<Name extends HookName>(name: Name, value: HookValues[Name], context: HookContext): Promise<void>;
  /** Begins the side effects and does not wait for them. Never throws. */
  effect<Name extends HookName>(name: Name, value: HookValues[Name], context: HookContext): void;
  /** The answer of the one plugin that resolves this name; undefined when none does, or it had none, or it failed. */
  resolve<Name extends HookName>(name: Name, value: HookValues[Name], context: HookContext): Promise<unknown>;
}

/** Hooks of nobody. */
export const noHooks: Hooks = {
  pipeline: async (_name, value) => value,
  guard: async () => {},
  effect: () => {},
  resolve: async () => undefined,
};

/** What a hook function gets beside its value. */
export interface HookCall {
  hook: HookName;
  /** Null for what no session has asked for, such as an action that was called over HTTP. */
  sessionId: string | null;
  runId: string | null;
  /** Aborted at the deadline of the hook and when the work it belongs to ends. */
  signal: AbortSignal;
  /** The plugin's settings. */
  settings: Readonly<Record<string, unknown>>;
  log: Log;
}

/** What a guard says: nothing to let it pass, or why not, for whoever asked. */
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

/** The names, for the registry's check; a hook that is none of these would never be called. */
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

/** One plugin as the engine sees it. */
export interface HookOwner {
  name: string;
  hooks: PluginHooks;
  settings: Readonly<Record<string, unknown>>;
  /** Whether its hooks count now: it is enabled and has not failed. */
  isActive(): boolean;
}

export interface HooksNeeds {
  owners: readonly HookOwner[];
  /** Of one hook function. */
  timeoutMs: number;
  clock: Clock;
  log: Log;
}

export interface HooksEngine extends Hooks {
  /** Resolves once no effect is under way. */
  settled(): Promise<void>;
}

type Kind = keyof PluginHooks;
type HookFunction = (value: unknown, call: HookCall) => unknown;

export function createHooks({ owners, timeoutMs, clock, log }: HooksNeeds): HooksEngine {
  const underWay = new Set<Promise<void>>();

  function claimants(kind: Kind, name: HookName): { owner: HookOwner; run: HookFunction }[] {
    return owners.flatMap((owner) => {
      const functions = owner.hooks[kind];
      const run =
        functions && Object.hasOwn(functions, name)
          ? (functions[name] as HookFunction | undefined)
          : undefined;
      return run === undefined || !owner.isActive() ? [] : [{ owner, run }];
    });
  }

  // One function under its deadline, with a copy of the value: what it does to it is its own affair.
  async function call(
    kind: Kind,
    name: HookName,
    claimant: { owner: HookOwner; run: HookFunction },
    value: unknown,
    context: HookContext,
  ): Promise<unknown> {
    const { owner, run } = claimant;
    const end = new AbortController();
    const signals = context.signal ? [context.signal, end.signal] : [end.signal];
    const signal = AbortSignal.any(signals);
    const hookLog = log.child({ plugin: owner.name, hook: name, kind });
    try {
      const given: HookCall = {
        hook: name,
        sessionId: context.sessionId,
        runId: context.runId ?? null,
        signal,
        settings: owner.settings,
        log: hookLog,
      };
      const work = Promise.resolve().then(() => run(structuredClone(value), given));
      // A late one is abandoned; whatever becomes of it must not end the process.
      work.catch(() => {});
      const late = clock.sleep(timeoutMs, signal).then(
        () => {
          throw new Error(`The hook did not end within ${timeoutMs} ms.`);
        },
        () => {
          throw new Error('The work ended before the hook did.');
        },
      );
      late.catch(() => {});
      return await Promise.race([work, late]);
    } catch (error) {
      if (!(kind === 'guards' && error instanceof Problem)) hookLog.warn({ err: error }, 'a hook failed');
      throw error;
    } finally {
      end.abort();
    }
  }

  return {
    async pipeline(name, value, context) {
      let current = value;
      for (const claimant of claimants('pipelines', name)) {
        try {
          const next = sameShape(current, await call('pipelines', name, claimant, current, context));
          if (next === undefined)
            log.warn(
              { plugin: claimant.owner.name, hook: name },
              'a pipeline answered something else than it was given; its answer is dropped',
            );
          else current = next;
        } catch {
          // Logged where it happened; the value goes on as it was.
        }
      }
      return current;
    },
    async guard(name, value, context) {
      for (const claimant of claimants('guards', name)) {
        let verdict: unknown;
        try {
          verdict = await call('guards', name, claimant, value, context);
        } catch (error) {
          throw error instanceof Problem
            ? refusal(claimant.owner.name, error.message, error)
            : refusal(claimant.owner.name, 'its guard failed, so nothing passes it', error);
        }
        if (verdict === undefined || verdict === null) continue;
        const reason = typeof verdict === 'object' && 'refuse' in verdict ? verdict.refuse : undefined;
        if (typeof reason === 'string') throw refusal(claimant.owner.name, reason);
        log.warn(
          { plugin: claimant.owner.name, hook: name },
          'a guard answered something that is no verdict',
        );
        throw refusal(claimant.owner.name, 'its guard gave no verdict, so nothing passes it');
      }
    },
    effect(name, value, context) {
      for (const claimant of claimants('effects', name)) {
        // Of the work's end an effect hears nothing: it comes after the fact, and often after the work.
        const { signal: _signal, ...rest } = context;
        const running = call('effects', name, claimant, value, rest).then(
          () => {},
          () => {},
        );
        underWay.add(running);
        void running.then(() => underWay.delete(running));
      }
    },
    async resolve(name, value, context) {
      // The registry lets one plugin claim a name.
      const [claimant] = claimants('resolves', name);
      if (!claimant) return undefined;
      try {
        const answer = await call('resolves', name, claimant, value, context);
        return answer === undefined ? undefined : (JSON.parse(JSON.stringify(answer)) as unknown);
      } catch {
        return undefined;
      }
    },
    async settled() {
      while (underWay.size > 0) await Promise.all(underWay);
    },
  };
}

// Any JSON may stand here, so these members may change their type.
const freeMembers: ReadonlySet<string> = new Set(['input', 'output']);

// The members of `before` with the values of `after`, through JSON; undefined when `after` is something else.
function sameShape<Value extends object>(before: Value, after: unknown): Value | undefined {
  if (typeof after !== 'object' || after === null) return undefined;
  const result: Record<string, unknown> = {};
  for (const [key, old] of Object.entries(before)) {
    const given = Object.hasOwn(after, key) ? (after as Record<string, unknown>)[key] : undefined;
    if (freeMembers.has(key)) {
      const text = JSON.stringify(given ?? null);
      if (text === undefined) return undefined;
      result[key] = JSON.parse(text);
    } else if (typeof given === typeof old) result[key] = given;
    else return undefined;
  }
  return result as Value;
}

function refusal(plugin: string, reason: string, cause?: unknown): Problem {
  const text = reason.toWellFormed().slice(0, 500);
  return new Problem(
    'forbidden',
    'plugin_refused',
    `The plugin "${plugin}" refuses: ${text}`,
    cause === undefined ? {} : { cause },
  );
}
