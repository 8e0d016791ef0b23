// Loads the services of a project folder. The entry runs in this process and imports
// `townhall` from the running installation, so a project needs no installed packages.
import { realpath } from 'node:fs/promises';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { describeLoadError, importFile, resolveTownhall } from '../../kernel/operator-code.ts';
import { isService } from './definition.ts';
import { ProjectError, type LoadedService } from './registry.ts';
import type { DeclaredResources } from './resources.ts';

/** A project as declared. The declaration is already validated. */
export interface Project {
  directory: string;
  /** The file that exports the services, relative to the folder. */
  entry: string;
  resources: DeclaredResources;
}

/** Runs the entry and returns the services that it exports. Throws a ProjectError. */
export async function loadProject({
  directory,
  entry,
}: Pick<Project, 'directory' | 'entry'>): Promise<LoadedService[]> {
  // Node resolves modules by real paths.
  const root = await realpath(directory);
  resolveTownhallFor(root);
  return collectServices(await runEntry(join(root, entry), entry), entry);
}

/**
 * Resolves `townhall` in the folder's files to this installation, even if the folder has its own
 * node_modules.
 */
function resolveTownhallFor(root: string): void {
  const prefix = `${pathToFileURL(root).href}/`;
  resolveTownhall((address) => address.startsWith(prefix));
}

async function runEntry(path: string, entry: string): Promise<Record<string, unknown>> {
  try {
    return await importFile(path);
  } catch (error) {
    throw new ProjectError(`${entry}: ${describeLoadError(error, path)}`, { cause: error });
  }
}

/** Finds every exported service, including services in exported lists. */
function collectServices(moduleExports: Record<string, unknown>, entry: string): LoadedService[] {
  const services = new Set<LoadedService['definition']>();
  for (const [name, value] of Object.entries(moduleExports)) {
    for (const item of Array.isArray(value) ? value : [value]) {
      // A set, because one service may be exported under two names.
      if (isService(item)) services.add(item);
      else if (typeof item === 'object' && item !== null && 'actions' in item) {
        throw new ProjectError(
          `${entry}: the export ${name} looks like a service; create it with defineService({…}) from "townhall".`,
        );
      }
    }
  }
  if (services.size === 0)
    throw new ProjectError(
      `${entry}: exports no service; export the result of defineService({…}) from "townhall".`,
    );
  return [...services].map((definition) => ({ definition, source: entry }));
}
