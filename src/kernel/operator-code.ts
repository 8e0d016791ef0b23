// Loads code of the server's operator: a project's entry, a plugin. It runs in this process; its
// import of `townhall` resolves to the running installation, so that it needs no installed package.
import { registerHooks } from 'node:module';
import { dirname, sep } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { constants, Script } from 'node:vm';
import { isSingleExecutable } from './assets.ts';

/** Imports a TypeScript or JavaScript file of the operator. Its errors are thrown unchanged. */
export function importFile(path: string): Promise<Record<string, unknown>> {
  return importAddress(pathToFileURL(path).href);
}

/**
 * The message of an error that the import of `path` threw, with its line, and with its file if that is
 * not `path`.
 */
export function describeLoadError(error: unknown, path: string): string {
  const message = error instanceof Error ? error.message : String(error);
  const place = errorPlace(error);
  if (place === undefined) return message;
  return `${message} (${place.file === path ? '' : `${place.file}, `}line ${place.line})`;
}

// The stack of a syntax error begins with "FILE:LINE"; the stacks of other errors have "FILE:LINE:COLUMN"
// in their frames.
const stackPlaces = /(?:^| |\()((?:file:\/\/)?\/[^\n()]+?):(\d+)(?=[:\n])/gm;

/** The first file outside of Node and of this installation that the error's stack names. */
function errorPlace(error: unknown): { file: string; line: string } | undefined {
  const stack = error instanceof Error ? (error.stack ?? '') : '';
  for (const [, address = '', line = ''] of stack.matchAll(stackPlaces)) {
    const file = address.startsWith('file:') ? fileURLToPath(address) : address;
    if (!isOwnCode(file)) return { file, line };
  }
  return undefined;
}

function isOwnCode(file: string): boolean {
  return installationFile !== null && file.startsWith(dirname(installationFile) + sep);
}

/** Resolves `townhall` to this installation in every module whose URL `isOperatorModule` accepts. */
export function resolveTownhall(isOperatorModule: (address: string) => boolean): { deregister(): void } {
  return registerHooks({
    resolve(specifier, context, next) {
      if (specifier !== 'townhall' || context.parentURL === undefined || !isOperatorModule(context.parentURL))
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

/** The file to which `townhall` resolves; null for the executable, whose code is in no file. */
export const installationFile: string | null = isSingleExecutable ? null : fileURLToPath(installation);

// The program within the executable cannot be imported as a module. Its entry stores the exports of
// `townhall` under this symbol, and a generated module re-exports them.
const exportsKey = Symbol.for('townhall.installation');

function reexport(): string {
  const names = Object.keys((globalThis as Record<symbol, object>)[exportsKey] ?? {});
  return `const { ${names.join(', ')} } = globalThis[Symbol.for('townhall.installation')];\nexport { ${names.join(', ')} };\n`;
}

// Imports in the executable's own program see only Node's built-in modules; this one uses Node's
// normal loader.
const importAddress: (address: string) => Promise<Record<string, unknown>> = isSingleExecutable
  ? (new Script('(address) => import(address)', {
      importModuleDynamically: constants.USE_MAIN_CONTEXT_DEFAULT_LOADER,
    }).runInThisContext() as typeof importAddress)
  : (address) => import(address) as Promise<Record<string, unknown>>;
