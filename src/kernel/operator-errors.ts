// Errors in an operator's code, such as the plugins and services of a project. An error outside of any
// call (in a timer, an event handler or an unhandled promise) or a call of `process.exit()` would end
// the process and everyone's work. This file reports both to the owner of the code instead, which the
// asynchronous context identifies.
import { AsyncLocalStorage } from 'node:async_hooks';
import { writeSync } from 'node:fs';
import { inspect } from 'node:util';

/** The owner of running code. */
export interface CodeOwner {
  /** Receives an error outside of any call, and an attempt to end the process. */
  fail(error: unknown): void;
  /** Receives the code's printed output, where it is captured. */
  print?(text: string): void;
}

const context = new AsyncLocalStorage<CodeOwner>();

/** Attributes the work, and all that it starts, to the owner. */
export function runAs<T>(owner: CodeOwner, work: () => T): T {
  return context.run(owner, work);
}

/** The owner of the code that runs; undefined for our own. */
export function currentOwner(): CodeOwner | undefined {
  return context.getStore();
}

let holders = 0;
let restoreExits = (): void => {};

/**
 * Contains errors and exits until the returned function is called. Servers in one process share the handlers.
 */
export function containErrors(): () => void {
  holders += 1;
  if (holders === 1) {
    // Unhandled rejections arrive here too: Node raises them as uncaught exceptions.
    process.on('uncaughtException', assignError);
    restoreExits = replaceExits();
  }
  return () => {
    holders -= 1;
    if (holders > 0) return;
    process.removeListener('uncaughtException', assignError);
    restoreExits();
  };
}

function assignError(error: unknown): void {
  const owner = context.getStore();
  if (owner !== undefined) return owner.fail(error);
  // A program that embeds the server has its own listener, which decides.
  if (process.listenerCount('uncaughtException') > 1) return;
  // The default of Node without a listener.
  writeSync(2, `Uncaught ${inspect(error)}\n\nNode.js ${process.version}\n`);
  process.exit(1);
}

const exitNames = ['exit', 'reallyExit', 'abort', 'kill'] as const;

/** Makes the functions that end the process throw when an owner's code calls them. */
function replaceExits(): () => void {
  const target = process as unknown as Record<string, (...args: unknown[]) => unknown>;
  const originalMethods = exitNames.map((name) => [name, target[name]] as const);
  for (const [name, original] of originalMethods) {
    if (original === undefined) continue;
    target[name] = (...args) => {
      const owner = context.getStore();
      const endsThisProcess = name !== 'kill' || (args[0] === process.pid && args[1] !== 0);
      if (owner !== undefined && endsThisProcess) {
        const error = new Error(`This code may not end the process: it called process.${name}().`);
        // The code may catch the exception below, so tell the owner now.
        owner.fail(error);
        throw error;
      }
      return original.apply(process, args);
    };
  }
  return () => {
    for (const [name, original] of originalMethods) if (original !== undefined) target[name] = original;
  };
}
