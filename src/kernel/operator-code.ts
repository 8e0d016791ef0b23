// Code that the operator of a server names: a project's entry, a plugin. It runs in this process; what it imports as
// `townhall` is the installation that runs it, so that it needs nothing installed beside it.
import { registerHooks } from 'node:module';
import { pathToFileURL } from 'node:url';
import { constants, Script } from 'node:vm';
import { isSingleExecutable } from './assets.ts';

/** Imports a TypeScript or JavaScript file of the operator. Its errors are thrown unchanged. */
export function importFile(path: string): Promise<Record<string, unknown>> {
  return importAddress(pathToFileURL(path).href);
}

/** Lets `townhall` be this installation in every module that `isAsking` names by its address. */
export function resolveTownhall(isAsking: (address: string) => boolean): { deregister(): void } {
  return registerHooks({
    resolve(specifier, context, next) {
      if (specifier !== 'townhall' || context.parentURL === undefined || !isAsking(context.parentURL))
        return next(specifier, context);
      return {
        url: installation,
        format: installation.endsWith('.ts') ? 'module-typescript' : 'module',
        shortCircuit: true,
      };
    },
    load(address, context, next) {
      if (!isSingleExecutable || address !== installation) return next(address, context);
      return { format: 'module', source: reexport(), shortCircuit: true };
    },
  });
}

const installation = isSingleExecutable
  ? 'townhall:installation'
  : new URL(`../index${import.meta.url.endsWith('.ts') ? '.ts' : '.js'}`, import.meta.url).href;

// The one program that is inside of the executable is no module that a file could import; its entry leaves what
// `townhall` exports here, and a module is written that hands it on.
const place = Symbol.for('townhall.installation');

function reexport(): string {
  const names = Object.keys((globalThis as Record<symbol, object>)[place] ?? {});
  return `const { ${names.join(', ')} } = globalThis[Symbol.for('townhall.installation')];\nexport { ${names.join(', ')} };\n`;
}

// An import in the executable's own program sees only what Node brings along; this one goes through Node's usual loader.
const importAddress: (address: string) => Promise<Record<string, unknown>> = isSingleExecutable
  ? (new Script('(address) => import(address)', {
      importModuleDynamically: constants.USE_MAIN_CONTEXT_DEFAULT_LOADER,
    }).runInThisContext() as typeof importAddress)
  : (address) => import(address) as Promise<Record<string, unknown>>;
