// A project's folder as the services in it. The entry runs in this process and imports `townhall` from the
// installation that runs it, so that a project needs nothing installed.
import { readFile, stat } from 'node:fs/promises';
import { registerHooks } from 'node:module';
import { isAbsolute, join, relative, resolve, sep } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { isService } from './definition.ts';
import { ProjectError, type FoundService } from './registry.ts';

const declarationFile = 'townhall.json';
const defaultEntry = 'src/index.ts';
const installation = new URL('../../index.ts', import.meta.url).href;

/** Reads `townhall.json` for its `entry`, runs the entry and gives the services that it exports. Throws a ProjectError. */
export async function loadProject(directory: string): Promise<FoundService[]> {
  const root = resolve(directory);
  const entry = await readEntry(root);
  const path = join(root, entry);
  if (!(await stat(path).catch(() => undefined))?.isFile()) throw new ProjectError(`${declarationFile}: entry: there is no file ${entry} in ${root}.`);
  resolveTownhallFor(root);
  return servicesOf(await run(path, entry), entry);
}

async function readEntry(root: string): Promise<string> {
  const text = await readFile(join(root, declarationFile), 'utf8').catch((error: unknown) => {
    throw new ProjectError(`${root} is no project: ${declarationFile} cannot be read (${(error as NodeJS.ErrnoException).code ?? 'unknown'}).`);
  });
  let declaration: unknown;
  try {
    declaration = JSON.parse(text);
  } catch (error) {
    throw new ProjectError(`${declarationFile}: ${(error as Error).message}`);
  }
  if (typeof declaration !== 'object' || declaration === null) throw new ProjectError(`${declarationFile}: must be an object.`);
  const entry = 'entry' in declaration ? declaration.entry : defaultEntry;
  if (typeof entry !== 'string' || entry === '') throw new ProjectError(`${declarationFile}: entry must be the path of a file.`);
  const within = relative(root, resolve(root, entry));
  if (isAbsolute(entry) || within === '..' || within.startsWith(`..${sep}`)) throw new ProjectError(`${declarationFile}: entry must be a path within the project.`);
  return within;
}

/** From the folder's files `townhall` is this installation, whatever else may lie in a node_modules there. */
function resolveTownhallFor(root: string): void {
  const prefix = `${pathToFileURL(root).href}/`;
  registerHooks({
    resolve(specifier, context, next) {
      const isOurs = specifier === 'townhall' && context.parentURL?.startsWith(prefix) === true;
      return isOurs ? { url: installation, shortCircuit: true } : next(specifier, context);
    },
  });
}

async function run(path: string, entry: string): Promise<Record<string, unknown>> {
  try {
    return (await import(pathToFileURL(path).href)) as Record<string, unknown>;
  } catch (error) {
    // The author's own words are what helps here, with the place in their file.
    const message = error instanceof Error ? error.message : String(error);
    throw new ProjectError(`${entry}: ${message}${placeIn(error, path)}`, { cause: error });
  }
}

function placeIn(error: unknown, path: string): string {
  const stack = error instanceof Error ? (error.stack ?? '') : '';
  const at = [pathToFileURL(path).href, path, fileURLToPath(pathToFileURL(path))].map((name) => stack.indexOf(`${name}:`)).find((found) => found >= 0);
  const [, line] = at === undefined ? [] : (/:(\d+)/.exec(stack.slice(at + path.length)) ?? []);
  return line === undefined ? '' : ` (line ${line})`;
}

/** Every exported service, and those in exported lists. */
function servicesOf(exported: Record<string, unknown>, entry: string): FoundService[] {
  const found = new Set<FoundService['definition']>();
  for (const [name, value] of Object.entries(exported)) {
    for (const item of Array.isArray(value) ? value : [value]) {
      // One service may be exported by two names.
      if (isService(item)) found.add(item);
      else if (typeof item === 'object' && item !== null && 'actions' in item) {
        throw new ProjectError(`${entry}: the export ${name} looks like a service; make it with defineService({…}) from "townhall".`);
      }
    }
  }
  if (found.size === 0) throw new ProjectError(`${entry}: exports no service; export what defineService({…}) from "townhall" gives.`);
  return [...found].map((definition) => ({ definition, where: entry }));
}
