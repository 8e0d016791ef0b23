// Code of plugins under the name of its plugin. An error that it throws outside of any call (in a timer, an event, a
// promise that nothing awaits) would end the process; here it becomes the failure of its plugin. Lines that it prints on
// standard output become lines of the log. Asynchronous contexts carry the name (AsyncLocalStorage).
import { AsyncLocalStorage } from 'node:async_hooks';
import { writeSync } from 'node:fs';
import { inspect } from 'node:util';
import type { Log } from '../../kernel/log.ts';
import type { ServiceDefinition, ServiceOperation } from '../services/index.ts';
import type { PluginHooks } from './hooks.ts';
import type { Action, Plugin, StartContext } from './plugin.ts';

/** Whose code runs: a plugin, or the file of one until it is loaded. */
export interface PluginOwner {
  name: string;
  /** Why the plugin is unavailable for the rest of this process; undefined while it is sound. */
  readonly failure: string | undefined;
  /** Runs work under this name, and so whatever it starts. */
  run<T>(work: () => T): T;
  /** The same plugin with its functions run under this name. */
  contain(plugin: Plugin): Plugin;
}

export interface Containment {
  owner(name: string): PluginOwner;
  /** Calls the listener when the plugin of that name fails outside of a call. One listener at most. */
  onFailure(listener: (plugin: string) => void): void;
  /** Takes the handlers off the process again. */
  close(): void;
}

interface Contained {
  fail(error: unknown): void;
  print(text: string): void;
}

const lateFailure =
  'It threw an error outside of any call; the log says why. It stays unavailable until the agent starts again.';
const longestLine = 8 * 1024;
const context = new AsyncLocalStorage<Contained>();

/** `logsPrints`: whether standard output is the log itself, so that a plugin's own lines must not mix into it. */
export function createContainment({ log, logsPrints }: { log: Log; logsPrints: boolean }): Containment {
  let listener: (plugin: string) => void = () => {};
  const releases = [watchErrors(), ...(logsPrints ? [capturePrints()] : [])];

  function owner(name: string): PluginOwner {
    let failure: string | undefined;
    const print = splitLines((line) => log.info({ plugin: self.name, line }, 'a plugin printed a line'));
    const contained: Contained = {
      print,
      fail(error) {
        failure = lateFailure;
        log.error(
          { err: error, plugin: self.name },
          'a plugin threw an error outside of any call; it is unavailable from now on',
        );
        listener(self.name);
      },
    };
    const self = {
      name,
      get failure() {
        return failure;
      },
      run: <T>(work: () => T): T => context.run(contained, work),
      contain: (plugin: Plugin): Plugin => containPlugin(plugin, contained),
    };
    return self;
  }

  return {
    owner,
    onFailure(next) {
      listener = next;
    },
    close() {
      for (const release of releases.splice(0)) release();
    },
  };
}

// One handler serves all agents of the process. An unhandled rejection arrives here too, since Node raises it as an
// uncaught exception.
let watchers = 0;

function watchErrors(): () => void {
  watchers += 1;
  if (watchers === 1) process.on('uncaughtException', assignError);
  return () => {
    watchers -= 1;
    if (watchers === 0) process.removeListener('uncaughtException', assignError);
  };
}

function assignError(error: unknown): void {
  const contained = context.getStore();
  if (contained !== undefined) return contained.fail(error);
  // Another listener decides, such as that of a program which embeds the agent.
  if (process.listenerCount('uncaughtException') > 1) return;
  // What Node does without any listener.
  writeSync(2, `Uncaught ${inspect(error)}\n\nNode.js ${process.version}\n`);
  process.exit(1);
}

let captures = 0;
let originalWrite: typeof process.stdout.write | undefined;

function capturePrints(): () => void {
  captures += 1;
  if (captures === 1) {
    const write = process.stdout.write.bind(process.stdout);
    originalWrite = process.stdout.write;
    process.stdout.write = ((chunk: string | Uint8Array, ...rest: unknown[]): boolean => {
      const contained = context.getStore();
      if (contained === undefined) return (write as (...all: unknown[]) => boolean)(chunk, ...rest);
      contained.print(typeof chunk === 'string' ? chunk : Buffer.from(chunk).toString('utf8'));
      const written = rest.findLast((value) => typeof value === 'function') as
        | ((error?: Error | null) => void)
        | undefined;
      if (written !== undefined) process.nextTick(written);
      return true;
    }) as typeof process.stdout.write;
  }
  return () => {
    captures -= 1;
    if (captures === 0 && originalWrite !== undefined) process.stdout.write = originalWrite;
  };
}

// Whole lines, each at most so long; a line without an end stays until its end comes or it is too long.
function splitLines(take: (line: string) => void): (text: string) => void {
  let rest = '';
  return (text) => {
    const lines = (rest + text).split('\n');
    rest = lines.pop() ?? '';
    for (const line of lines) take(line.slice(0, longestLine).toWellFormed());
    if (rest.length <= longestLine) return;
    take(rest.slice(0, longestLine).toWellFormed());
    rest = '';
  };
}

type AnyFunction = (...given: never[]) => unknown;

// Functions keep their object, which may be an instance of a class.
function bind<F extends AnyFunction>(contained: Contained, work: F, self: object): F {
  return ((...given: never[]) => context.run(contained, () => work.apply(self, given))) as F;
}

// Picks members that are there; the functions among them bound.
function pick<T extends object, K extends keyof T>(
  contained: Contained,
  object: T,
  keys: readonly K[],
): Pick<T, K> {
  const present = keys.filter((key) => object[key] !== undefined);
  return Object.fromEntries(present.map((key) => [key, bindValue(contained, object[key], object)])) as Pick<
    T,
    K
  >;
}

function bindValue(contained: Contained, value: unknown, self: object): unknown {
  return typeof value === 'function' ? bind(contained, value as AnyFunction, self) : value;
}

function bindAll<T extends object>(contained: Contained, object: T): T {
  return Object.fromEntries(
    Object.entries(object).map(([key, value]) => [key, bindValue(contained, value, object)]),
  ) as T;
}

function mapValues<T, R>(record: Readonly<Record<string, T>>, change: (value: T) => R): Record<string, R> {
  return Object.fromEntries(Object.entries(record).map(([key, value]) => [key, change(value)]));
}

function containPlugin(plugin: Plugin, contained: Contained): Plugin {
  const { start, hooks, services } = plugin;
  return {
    ...pick(contained, plugin, [
      'name',
      'title',
      'description',
      'system',
      'settings',
      'availability',
      'stop',
    ]),
    actions: containActions(plugin.actions, contained),
    ...(hooks === undefined
      ? {}
      : {
          hooks: mapValues(hooks as Record<string, object>, (ofKind) =>
            bindAll(contained, ofKind ?? {}),
          ) as PluginHooks,
        }),
    ...(services === undefined
      ? {}
      : { services: services.map((service) => containService(service, contained)) }),
    ...(start === undefined
      ? {}
      : {
          start: (given: StartContext) =>
            context.run(contained, () =>
              start.call(plugin, {
                ...given,
                offer: (actions) => given.offer(containActions(actions, contained)),
              }),
            ),
        }),
  };
}

function containActions(
  actions: Readonly<Record<string, Action>>,
  contained: Contained,
): Record<string, Action> {
  return mapValues(actions, (action) => ({
    ...action,
    ...pick(contained, action, ['run', 'needsApproval']),
  }));
}

function containService(service: ServiceDefinition, contained: Contained): ServiceDefinition {
  const { actions, commands } = service;
  const containOperations = (
    operations: Readonly<Record<string, ServiceOperation>>,
  ): Record<string, ServiceOperation> =>
    mapValues(operations, (operation) => ({ ...operation, ...pick(contained, operation, ['run']) }));
  return {
    ...pick(contained, service, ['name', 'title', 'autostart', 'start', 'stop', 'healthy']),
    ...(actions === undefined ? {} : { actions: containOperations(actions) }),
    ...(commands === undefined ? {} : { commands: containOperations(commands) }),
  };
}
