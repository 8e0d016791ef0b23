// The project's declaration, townhall.json: read once, whole, and refused with the line and the column of each fault.
// The published JSON Schema is the one source of what it may say.
import { readFile, stat } from 'node:fs/promises';
import { isAbsolute, join, relative, resolve, sep } from 'node:path';
import { compileDocumentSchema, type JsonSchema, type ValidationError } from '../kernel/contract/schema.ts';
import { JsonError, offsetOf, parseJsonPlaces, placeOf, type JsonNode } from './json-positions.ts';
import schema from './townhall.schema.json' with { type: 'json' };

const declarationFile = 'townhall.json';
/** What editors hold a townhall.json against. */
export const declarationSchema: JsonSchema = schema;

export interface DeclaredResources {
  database?: { type: 'embedded' | 'postgres'; binding: string; name: string };
  queue?: { type: 'pg-boss'; binding: string; name: string };
  storage?: { type: 'directory'; binding: string; name: string; publicUrlPrefix: string };
}

/** A declaration with its defaults filled in. */
export interface Declaration {
  id: string;
  name: string;
  /** Relative to the project's folder and within it. */
  entry: string;
  deployment: {
    target: 'local';
    host?: string;
    port?: number;
    baseUrl?: string;
    resources: DeclaredResources;
  };
}

/** What is wrong with a declaration, a line a fault: `townhall.json:LINE:COLUMN: MEMBER …`. */
export class DeclarationError extends Error {
  override name = 'DeclarationError';
}

const check = compileDocumentSchema(declarationSchema);

/** Reads the declaration of a folder and makes sure that its entry is there. Throws a DeclarationError. */
export async function readDeclaration(directory: string): Promise<Declaration> {
  const root = resolve(directory);
  const text = await readFile(join(root, declarationFile), 'utf8').catch((error: unknown) => {
    throw new DeclarationError(
      `${root} is no project: ${declarationFile} cannot be read (${(error as NodeJS.ErrnoException).code ?? 'unknown'}). Make a project with: townhall init NAME`,
    );
  });
  const { declaration, refuse } = parse(text);
  if (!(await stat(join(root, declaration.entry)).catch(() => undefined))?.isFile()) {
    refuse(['entry'], `entry names ${declaration.entry}, and there is no such file in ${root}`);
  }
  return declaration;
}

/** Reads the text of a declaration. Throws a DeclarationError. */
export function parseDeclaration(text: string): Declaration {
  return parse(text).declaration;
}

interface Written {
  id: string;
  name: string;
  entry?: string;
  deployment: {
    target: 'local';
    host?: string;
    port?: number;
    base_url?: string;
    resources?: {
      database?: { type: 'embedded' | 'postgres'; binding: string; name?: string };
      queue?: { type: 'pg-boss'; binding: string; name?: string };
      storage?: { type: 'directory'; binding: string; name: string; public_url_prefix: string };
    };
  };
}

function parse(text: string): {
  declaration: Declaration;
  refuse: (names: readonly string[], message: string) => never;
} {
  const root = parsed(text);
  const line = (names: readonly string[], message: string): string => {
    const { line: row, column } = placeOf(text, offsetOf(root, names));
    return `${declarationFile}:${row}:${column}: ${message}`;
  };
  const refuse = (names: readonly string[], message: string): never => {
    throw new DeclarationError(line(names, message));
  };
  const faults = check(root.value);
  if (faults.length > 0)
    throw new DeclarationError(
      inOrder(root, faults)
        .map(({ names, message }) => line(names, message))
        .join('\n'),
    );
  const written = root.value as Written;
  const { entry = 'src/index.ts', name } = written;
  if (leavesFolder(entry)) refuse(['entry'], 'entry must be a path within the project');
  const resources = written.deployment.resources ?? {};
  const bindings = new Map<string, string>();
  for (const [kind, { binding }] of Object.entries(resources)) {
    const before = bindings.get(binding);
    const member = `deployment.resources.${kind}.binding`;
    if (before !== undefined)
      refuse(
        ['deployment', 'resources', kind, 'binding'],
        `${member} is "${binding}", as that of the ${before}; each needs a name of its own`,
      );
    bindings.set(binding, kind);
  }
  const { database, queue, storage } = resources;
  const { target, host, port, base_url: baseUrl } = written.deployment;
  return {
    refuse,
    declaration: {
      id: written.id,
      name,
      entry: relative('.', entry),
      deployment: {
        target,
        ...(host === undefined ? {} : { host }),
        ...(port === undefined ? {} : { port }),
        ...(baseUrl === undefined ? {} : { baseUrl: baseUrl.replace(/\/+$/, '') }),
        resources: {
          ...(database === undefined ? {} : { database: { name: `${name}-db`, ...database } }),
          ...(queue === undefined ? {} : { queue: { name: `${name}-queue`, ...queue } }),
          ...(storage === undefined
            ? {}
            : {
                storage: {
                  type: storage.type,
                  binding: storage.binding,
                  name: storage.name,
                  publicUrlPrefix: storage.public_url_prefix.replace(/\/+$/, ''),
                },
              }),
        },
      },
    },
  };
}

function parsed(text: string): JsonNode {
  try {
    return parseJsonPlaces(text);
  } catch (error) {
    if (!(error instanceof JsonError)) throw error;
    const { line, column } = placeOf(text, error.at);
    throw new DeclarationError(`${declarationFile}:${line}:${column}: ${error.message}`, { cause: error });
  }
}

interface Said {
  names: readonly string[];
  message: string;
}

function inOrder(root: JsonNode, faults: readonly ValidationError[]): Said[] {
  return faults
    .map(({ names, message }) => said(names, message))
    .sort((one, other) => offsetOf(root, one.names) - offsetOf(root, other.names));
}

function said(names: readonly string[], message: string): Said {
  // The one rule that spans two members, said from where its reader stands.
  if (names.at(-1) === 'database' && /is required/.test(message) && names.length === 3) {
    const queue = [...names.slice(0, -1), 'queue'];
    return {
      names: queue,
      message: `${queue.join('.')} needs a database; declare deployment.resources.database too`,
    };
  }
  return { names, message: `${names.length === 0 ? 'the declaration' : names.join('.')} ${message}` };
}

function leavesFolder(entry: string): boolean {
  const within = relative('/project', resolve('/project', entry));
  return isAbsolute(entry) || within === '' || within === '..' || within.startsWith(`..${sep}`);
}

/** A project as a gateway serves it. */
export interface OpenedProject {
  directory: string;
  entry: string;
  resources: {
    database?: { type: 'embedded' | 'postgres'; binding: string };
    queue?: { binding: string; name: string };
    storage?: { binding: string; directory: string; publicUrlPrefix: string };
  };
}

/** Reads the project of a folder. Its storage is below `stateDirectory`, which is `.townhall` in the folder when absent. */
export async function openProject(
  directory: string,
  stateDirectory: string = join(directory, '.townhall'),
): Promise<OpenedProject> {
  const { entry, deployment } = await readDeclaration(directory);
  const { database, queue, storage } = deployment.resources;
  return {
    directory: resolve(directory),
    entry,
    resources: {
      ...(database === undefined ? {} : { database }),
      ...(queue === undefined ? {} : { queue }),
      ...(storage === undefined
        ? {}
        : { storage: { ...storage, directory: storagePath(resolve(stateDirectory), storage.name) } }),
    },
  };
}

/** The folder of a declared storage. */
export function storagePath(stateDirectory: string, name: string): string {
  return join(stateDirectory, 'storage', name);
}
