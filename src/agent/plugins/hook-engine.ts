// Calls the hooks of all plugins, each with a deadline and a copy of the value. A hook that throws,
// hangs or returns an invalid value is skipped. A guard that fails refuses, so that breaking a guard
// does not bypass it.
import { withTimeout } from '../../kernel/async.ts';
import type { Clock } from '../../kernel/clock.ts';
import type { Log } from '../../kernel/log.ts';
import { Problem } from '../../kernel/problem.ts';
import { startOfText } from '../../kernel/start-of-text.ts';
import type { HookCall, HookContext, HookName, Hooks, PluginHooks } from './definition/hooks.ts';

/** What the engine needs to know about a plugin. */
export interface HookOwner {
  name: string;
  hooks: PluginHooks;
  settings: Readonly<Record<string, unknown>>;
  /** Whether its hooks are called now: it is enabled and has not failed to start. */
  isActive(): boolean;
  /** Whether it failed to start. Its guards then refuse, since they cannot decide. */
  hasFailedToStart(): boolean;
}

export interface HookEngine extends Hooks {
  /** Resolves once no effect is running. */
  untilSettled(): Promise<void>;
}

type HookKind = keyof PluginHooks;

interface Hook {
  owner: HookOwner;
  kind: HookKind;
  name: HookName;
  run(value: unknown, call: HookCall): unknown;
}

interface EngineOptions {
  owners: readonly HookOwner[];
  /** Deadline of one hook function. */
  timeoutMs: number;
  clock: Clock;
  log: Log;
}

export function createHooks(options: EngineOptions): HookEngine {
  const { owners } = options;
  const runningEffects = new Set<Promise<void>>();
  const hooksOf = (kind: HookKind, name: HookName) => owners.flatMap((owner) => hookOf(owner, kind, name));
  return {
    async pipeline(name, value, context) {
      let pipedValue = value;
      for (const hook of hooksOf('pipelines', name))
        pipedValue = await pipe(hook, pipedValue, context, options);
      return pipedValue;
    },
    async guard(name, value, context) {
      for (const owner of owners) {
        requireStarted(owner, name);
        for (const hook of hookOf(owner, 'guards', name)) await callGuard(hook, value, context, options);
      }
    },
    effect(name, value, context) {
      for (const hook of hooksOf('effects', name)) {
        // An effect comes after the work and may outlive it, so it does not get the work's signal.
        const { signal: _signal, ...hookContext } = context;
        const hookCall = callHook(hook, value, hookContext, options).then(
          () => {},
          () => {},
        );
        runningEffects.add(hookCall);
        void hookCall.then(() => runningEffects.delete(hookCall));
      }
    },
    async resolve(name, value, context) {
      // The registry admits at most one resolver for each hook name.
      const [hook] = hooksOf('resolves', name);
      if (!hook) return undefined;
      let answer: unknown;
      try {
        answer = await callHook(hook, value, context, options);
      } catch {
        // callHook has logged it.
        return undefined;
      }
      return answer === undefined ? undefined : jsonCopy(answer, hook, options.log);
    },
    async untilSettled() {
      while (runningEffects.size > 0) await Promise.all(runningEffects);
    },
  };
}

/** The value after one pipeline hook; unchanged when the hook fails or returns another shape. */
async function pipe<Value extends object>(
  hook: Hook,
  value: Value,
  context: HookContext,
  options: EngineOptions,
): Promise<Value> {
  try {
    const next = withMembersOf(value, await callHook(hook, value, context, options));
    if (next !== undefined) return next;
    options.log.warn(
      { plugin: hook.owner.name, hook: hook.name },
      'a pipeline hook returned other members or types than it received; its result is dropped',
    );
  } catch {
    // callHook has logged it.
  }
  return value;
}

/** The answer as its JSON says it; undefined, with a log entry, when it has none. */
function jsonCopy(answer: unknown, { owner, name }: Hook, log: Log): unknown {
  try {
    return JSON.parse(JSON.stringify(answer)) as unknown;
  } catch (error) {
    log.warn(
      { err: error, plugin: owner.name, hook: name },
      'a resolver returned what is not JSON; its result is dropped',
    );
    return undefined;
  }
}

/** Throws for a plugin whose guard cannot decide because it did not start. */
function requireStarted(owner: HookOwner, name: HookName): void {
  if (!owner.hasFailedToStart() || !hasHook(owner, 'guards', name)) return;
  throw pluginRefusal(
    owner.name,
    'it did not start, so everything that its guard would check is refused; correct the error and restart the agent, or disable the plugin',
  );
}

function hasHook({ hooks }: HookOwner, kind: HookKind, name: HookName): boolean {
  const functions = hooks[kind];
  return functions !== undefined && Object.hasOwn(functions, name);
}

function hookOf(owner: HookOwner, kind: HookKind, name: HookName): Hook[] {
  if (!hasHook(owner, kind, name) || !owner.isActive()) return [];
  const run = owner.hooks[kind]?.[name] as Hook['run'] | undefined;
  return run === undefined ? [] : [{ owner, kind, name, run }];
}

/** Rejects and logs when the hook throws, misses its deadline or outlives its work. */
async function callHook(
  { owner, kind, name, run }: Hook,
  value: unknown,
  context: HookContext,
  { timeoutMs, clock, log }: EngineOptions,
): Promise<unknown> {
  const completion = new AbortController();
  const hookLog = log.child({ plugin: owner.name, hook: name, kind });
  try {
    return await withTimeout(
      async (signal) =>
        run(structuredClone(value), {
          hook: name,
          sessionId: context.sessionId,
          runId: context.runId ?? null,
          signal: AbortSignal.any([signal, completion.signal]),
          settings: owner.settings,
          log: hookLog,
        }),
      {
        ms: timeoutMs,
        error: () => new Error(`The hook did not end within ${timeoutMs} ms.`),
        clock,
        signal: context.signal,
      },
    );
  } catch (error) {
    // A guard may refuse by throwing a Problem, which is not a failure.
    if (!(kind === 'guards' && error instanceof Problem)) hookLog.warn({ err: error }, 'a hook failed');
    throw error;
  } finally {
    completion.abort();
  }
}

async function callGuard(
  hook: Hook,
  value: unknown,
  context: HookContext,
  options: EngineOptions,
): Promise<void> {
  const plugin = hook.owner.name;
  let verdict: unknown;
  try {
    verdict = await callHook(hook, value, context, options);
  } catch (error) {
    const reason = error instanceof Problem ? error.message : 'its guard failed, so the call is refused';
    throw pluginRefusal(plugin, reason, error);
  }
  if (verdict === undefined || verdict === null) return;
  const reason = typeof verdict === 'object' && 'refuse' in verdict ? verdict.refuse : undefined;
  if (typeof reason === 'string') throw pluginRefusal(plugin, reason);
  options.log.warn({ plugin, hook: hook.name }, 'a guard returned an invalid verdict');
  throw pluginRefusal(plugin, 'its guard returned an invalid verdict, so the call is refused');
}

// These members may be any JSON value, so a pipeline may change their type.
const untypedMembers: ReadonlySet<string> = new Set(['input', 'output']);

// The members of the original with the values of the change; members that the original lacks are
// dropped. Undefined when a member is missing or has another type.
function withMembersOf<Value extends object>(original: Value, change: unknown): Value | undefined {
  if (typeof change !== 'object' || change === null) return undefined;
  const result: Record<string, unknown> = {};
  for (const [key, oldValue] of Object.entries(original)) {
    if (!Object.hasOwn(change, key)) return undefined;
    const newValue = (change as Record<string, unknown>)[key];
    if (untypedMembers.has(key)) {
      const text = JSON.stringify(newValue ?? null);
      if (text === undefined) return undefined;
      result[key] = JSON.parse(text);
    } else if (typeof newValue === typeof oldValue) result[key] = newValue;
    else return undefined;
  }
  return result as Value;
}

function pluginRefusal(plugin: string, reason: string, cause?: unknown): Problem {
  const text = startOfText(reason, 500);
  return new Problem(
    'forbidden',
    'plugin_refused',
    `The plugin "${plugin}" refuses: ${text}`,
    cause === undefined ? {} : { cause },
  );
}
