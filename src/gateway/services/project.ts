// A project's folder as the services in it. The entry runs in this process and imports `townhall` from the
// installation that runs it, so that a project needs nothing installed.
import { realpath } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { importFile, resolveTownhall } from '../../kernel/operator-code.ts';
import { isService } from './definition.ts';
import { ProjectError, type LoadedService } from './registry.ts';
import type { DeclaredResources } from './resources.ts';

/** A project as its declaration says; whoever reads the declaration has checked it. */
export interface Project {
  directory: string;
  /** The file that exports the services, relative to the folder. */
  entry: string;
  resources: DeclaredResources;
}

/** Runs the entry and gives the services that it exports. Throws a ProjectError. */
export async function loadProject({
  directory,
  entry,
}: Pick<Project, 'directory' | 'entry'>): Promise<LoadedService[]> {
  // Modules know each other by the real paths of their files.
  const root = await realpath(directory);
  resolveTownhallFor(root);
  return servicesOf(await run(join(root, entry), entry), entry);
}

/** From the folder's files `townhall` is this installation, whatever else may lie in a node_modules there. */
function resolveTownhallFor(root: string): void {
  const prefix = `${pathToFileURL(root).href}/`;
  resolveTownhall((address) => address.startsWith(prefix));
}

async function run(path: string, entry: string): Promise<Record<string, unknown>> {
  try {
    return await importFile(path);
  } catch (error) {
    // The author's own words are what helps here, with the place in their file.
    const message = error instanceof Error ? error.message : String(error);
    throw new ProjectError(`${entry}: ${message}${placeIn(error, path)}`, { cause: error });
  }
}

function placeIn(error: unknown, path: string): string {
  const stack = error instanceof Error ? (error.stack ?? '') : '';
  const at = [pathToFileURL(path).href, path, fileURLToPath(pathToFileURL(path))]
    .map((name) => stack.indexOf(`${name}:`))
    .find((found) => found >= 0);
  const [, line] = at === undefined ? [] : (/:(\d+)/.exec(stack.slice(at + path.length)) ?? []);
  return line === undefined ? '' : ` (line ${line})`;
}

/** Every exported service, and those in exported lists. */
function servicesOf(exported: Record<string, unknown>, entry: string): LoadedService[] {
  const found = new Set<LoadedService['definition']>();
  for (const [name, value] of Object.entries(exported)) {
    for (const item of Array.isArray(value) ? value : [value]) {
      // One service may be exported by two names.
      if (isService(item)) found.add(item);
      else if (typeof item === 'object' && item !== null && 'actions' in item) {
        throw new ProjectError(
          `${entry}: the export ${name} looks like a service; make it with defineService({…}) from "townhall".`,
        );
      }
    }
  }
  if (found.size === 0)
    throw new ProjectError(
      `${entry}: exports no service; export what defineService({…}) from "townhall" gives.`,
    );
  return [...found].map((definition) => ({ definition, source: entry }));
}
