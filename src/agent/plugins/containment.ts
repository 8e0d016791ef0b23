// Attributes running code to its plugin through AsyncLocalStorage. An error outside of any call, such
// as in a timer or an unhandled rejection, would end the process; instead it makes the plugin
// unavailable. So does `process.exit()`, which throws. Lines that a plugin prints go to the log.
import type { Log } from '../../kernel/log.ts';
import { type CodeOwner, containErrors, currentOwner, runAs } from '../../kernel/operator-errors.ts';
import { startOfText } from '../../kernel/start-of-text.ts';
import type { ServiceDefinition, ServiceOperation } from '../service-definition.ts';
import type { PluginHooks } from './definition/hooks.ts';
import type { Action, Plugin, StartContext } from './definition/plugin.ts';

/** The plugin that owns running code. */
export interface PluginOwner {
  /** The plugin's name; the path of its file until the plugin is loaded. */
  name: string;
  /** Why the plugin is unavailable for the rest of this process; undefined while it works. */
  readonly failure: string | undefined;
  /** Attributes the work, and everything that it starts, to this plugin. */
  run<T>(work: () => T): T;
  /** The same plugin with each function attributed to it. */
  contain(plugin: Plugin): Plugin;
}

export interface Containment {
  owner(name: string): PluginOwner;
  /** Sets the one listener, called when a plugin fails outside of a call. */
  onFailure(listener: (plugin: string) => void): void;
  /** Removes the handlers from the process. */
  close(): void;
}

const lateFailure =
  'It threw an error outside of any call, or tried to end the process; the log has the ' +
  'details. It stays unavailable until the agent restarts.';
const maxLineLength = 8 * 1024;

/** `logsPrints` logs what plugins print; it is needed where standard output is the agent's JSON log. */
export function createContainment({ log, logsPrints }: { log: Log; logsPrints: boolean }): Containment {
  let listener: (plugin: string) => void = () => {};
  const releases = [containErrors(), ...(logsPrints ? [capturePrints()] : [])];

  function createOwner(name: string): PluginOwner {
    let failure: string | undefined;
    const print = splitLines((line) => log.info({ plugin: self.name, line }, 'a plugin printed a line'));
    const attribution: CodeOwner = {
      print,
      fail(error) {
        failure = lateFailure;
        log.error(
          { err: error, plugin: self.name },
          'a plugin threw an error outside of any call or tried to end the process; it is unavailable from now on',
        );
        listener(self.name);
      },
    };
    const self = {
      name,
      get failure() {
        return failure;
      },
      run: <T>(work: () => T): T => runAs(attribution, work),
      contain: (plugin: Plugin): Plugin => containPlugin(plugin, attribution),
    };
    return self;
  }

  return {
    owner: createOwner,
    onFailure(next) {
      listener = next;
    },
    close() {
      for (const release of releases.splice(0)) release();
    },
  };
}

let captureCount = 0;
let originalWrite: typeof process.stdout.write | undefined;

function capturePrints(): () => void {
  captureCount += 1;
  if (captureCount === 1) {
    const write = process.stdout.write.bind(process.stdout);
    originalWrite = process.stdout.write;
    process.stdout.write = ((chunk: string | Uint8Array, ...rest: unknown[]): boolean => {
      const owner = currentOwner();
      if (owner?.print === undefined) return (write as (...parameters: unknown[]) => boolean)(chunk, ...rest);
      owner.print(typeof chunk === 'string' ? chunk : Buffer.from(chunk).toString('utf8'));
      const callback = rest.findLast((value) => typeof value === 'function') as
        | ((error?: Error | null) => void)
        | undefined;
      if (callback !== undefined) process.nextTick(callback);
      return true;
    }) as typeof process.stdout.write;
  }
  return () => {
    captureCount -= 1;
    if (captureCount === 0 && originalWrite !== undefined) process.stdout.write = originalWrite;
  };
}

// Buffers an unfinished line until it ends or is too long.
function splitLines(onLine: (line: string) => void): (text: string) => void {
  let unfinishedLine = '';
  return (text) => {
    const lines = (unfinishedLine + text).split('\n');
    unfinishedLine = lines.pop() ?? '';
    for (const line of lines) onLine(startOfText(line, maxLineLength));
    if (unfinishedLine.length <= maxLineLength) return;
    onLine(startOfText(unfinishedLine, maxLineLength));
    unfinishedLine = '';
  };
}

type AnyFunction = (...args: never[]) => unknown;

// `this` stays the plugin's object, which may be an instance of a class.
function bind<F extends AnyFunction>(attribution: CodeOwner, work: F, self: object): F {
  return ((...args: never[]) => runAs(attribution, () => work.apply(self, args))) as F;
}

// The members that exist, with functions bound.
function pick<T extends object, K extends keyof T>(
  attribution: CodeOwner,
  object: T,
  keys: readonly K[],
): Pick<T, K> {
  const presentKeys = keys.filter((key) => object[key] !== undefined);
  return Object.fromEntries(
    presentKeys.map((key) => [key, bindValue(attribution, object[key], object)]),
  ) as Pick<T, K>;
}

function bindValue(attribution: CodeOwner, value: unknown, self: object): unknown {
  return typeof value === 'function' ? bind(attribution, value as AnyFunction, self) : value;
}

function bindAll<T extends object>(attribution: CodeOwner, object: T): T {
  return Object.fromEntries(
    Object.entries(object).map(([key, value]) => [key, bindValue(attribution, value, object)]),
  ) as T;
}

function mapValues<T, R>(record: Readonly<Record<string, T>>, map: (value: T) => R): Record<string, R> {
  return Object.fromEntries(Object.entries(record).map(([key, value]) => [key, map(value)]));
}

function containPlugin(plugin: Plugin, attribution: CodeOwner): Plugin {
  const containedPlugin: Plugin = {
    ...pick(attribution, plugin, [
      'name',
      'title',
      'description',
      'system',
      'settings',
      'availability',
      'stop',
    ]),
    actions: containActions(plugin.actions, attribution),
  };
  const { start, hooks, services } = plugin;
  if (hooks !== undefined) containedPlugin.hooks = containHooks(hooks, attribution);
  if (services !== undefined)
    containedPlugin.services = services.map((service) => containService(service, attribution));
  if (start !== undefined)
    containedPlugin.start = (startContext) =>
      runAs(attribution, () => start.call(plugin, containOffers(startContext, attribution)));
  return containedPlugin;
}

function containHooks(hooks: PluginHooks, attribution: CodeOwner): PluginHooks {
  return mapValues(hooks as Record<string, object>, (hooksOfKind) => bindAll(attribution, hooksOfKind ?? {}));
}

function containOffers(startContext: StartContext, attribution: CodeOwner): StartContext {
  return {
    ...startContext,
    offer: (actions) => startContext.offer(containActions(actions, attribution)),
  };
}

function containActions(
  actions: Readonly<Record<string, Action>>,
  attribution: CodeOwner,
): Record<string, Action> {
  return mapValues(actions, (action) => ({
    ...action,
    ...pick(attribution, action, ['run', 'check', 'needsApproval', 'permissions']),
  }));
}

function containService(service: ServiceDefinition, attribution: CodeOwner): ServiceDefinition {
  const { actions, commands } = service;
  const containOperations = (
    operations: Readonly<Record<string, ServiceOperation>>,
  ): Record<string, ServiceOperation> =>
    mapValues(operations, (operation) => ({ ...operation, ...pick(attribution, operation, ['run']) }));
  return {
    ...pick(attribution, service, ['name', 'title', 'autostart', 'sandbox', 'start', 'stop', 'healthy']),
    ...(actions === undefined ? {} : { actions: containOperations(actions) }),
    ...(commands === undefined ? {} : { commands: containOperations(commands) }),
  };
}
