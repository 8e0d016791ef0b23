// The project's declaration, townhall.json. It is validated with the published JSON Schema; every
// error has a line and column.
import { readFile, stat } from 'node:fs/promises';
import { isAbsolute, join, relative, resolve, sep } from 'node:path';
import { compileDocumentSchema, type JsonSchema, type ValidationError } from '../kernel/contract/schema.ts';
import { errorCode } from '../kernel/file-errors.ts';
import { JsonError, offsetOf, parseJsonWithPositions, positionOf, type JsonNode } from './json-positions.ts';
import schema from './townhall.schema.json' with { type: 'json' };

const declarationFile = 'townhall.json';
/** The default port of a City, the same as that of `townhall gateway`. */
export const defaultPort = 43_127;
/** Published beside every project, so that editors validate its townhall.json. */
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
  /** A path within the project's folder, relative to it. */
  entry: string;
  deployment: {
    target: 'local';
    host?: string;
    port?: number;
    baseUrl?: string;
    resources: DeclaredResources;
  };
}

/** The errors of a declaration, one per line: `townhall.json:LINE:COLUMN: MEMBER …`. */
export class DeclarationError extends Error {
  override name = 'DeclarationError';
}

const validate = compileDocumentSchema(declarationSchema);

/** Reads the declaration of a folder and checks that its entry exists. Throws a DeclarationError. */
export async function readDeclaration(directory: string): Promise<Declaration> {
  const root = resolve(directory);
  const text = await readFile(join(root, declarationFile), 'utf8').catch((error: unknown) => {
    throw new DeclarationError(
      `${root} is not a project: ${declarationFile} cannot be read (${errorCode(error) ?? 'unknown'}). Create a project with: townhall init NAME`,
    );
  });
  const { declaration, refuse } = parse(text);
  if (!(await stat(join(root, declaration.entry)).catch(() => undefined))?.isFile()) {
    refuse(['entry'], `entry names ${declaration.entry}, but this file does not exist in ${root}`);
  }
  return declaration;
}

/** Throws a DeclarationError. */
export function parseDeclaration(text: string): Declaration {
  return parse(text).declaration;
}

/** The content of townhall.json after the schema has accepted it. */
interface DeclarationFile {
  id: string;
  name: string;
  entry?: string;
  deployment: {
    target: 'local';
    host?: string;
    port?: number;
    base_url?: string;
    resources?: ResourcesFile;
  };
}

type ResourcesFile = {
  database?: { type: 'embedded' | 'postgres'; binding: string; name?: string };
  queue?: { type: 'pg-boss'; binding: string; name?: string };
  storage?: { type: 'directory'; binding: string; name: string; public_url_prefix: string };
};

/** Throws a DeclarationError at the position of the named member. */
type Refuse = (names: readonly string[], message: string) => never;

function parse(text: string): { declaration: Declaration; refuse: Refuse } {
  const root = parseJson(text);
  const errorLine = (names: readonly string[], message: string): string =>
    locate(text, offsetOf(root, names), message);
  const refuse: Refuse = (names, message) => {
    throw new DeclarationError(errorLine(names, message));
  };
  const errors = validate(root.value).map(explain);
  if (errors.length > 0)
    throw new DeclarationError(
      errors
        .sort((a, b) => offsetOf(root, a.names) - offsetOf(root, b.names))
        .map(({ names, message }) => errorLine(names, message))
        .join('\n'),
    );
  const file = root.value as DeclarationFile;
  if (file.entry !== undefined && leavesFolder(file.entry))
    refuse(['entry'], 'entry must be a path within the project');
  requireDistinctBindings(file.deployment.resources ?? {}, refuse);
  return { refuse, declaration: withDefaults(file) };
}

function parseJson(text: string): JsonNode {
  try {
    return parseJsonWithPositions(text);
  } catch (error) {
    if (!(error instanceof JsonError)) throw error;
    throw new DeclarationError(locate(text, error.offset, error.message), { cause: error });
  }
}

function locate(text: string, offset: number, message: string): string {
  const { line, column } = positionOf(text, offset);
  return `${declarationFile}:${line}:${column}: ${message}`;
}

/** Prefixes the message of a schema error with the member's path. */
function explain({ names, message }: ValidationError): { names: readonly string[]; message: string } {
  // The schema's only rule about two members: a queue needs a database. Report its violation at the queue.
  if (names.at(-1) === 'database' && /is required/.test(message) && names.length === 3) {
    const queue = [...names.slice(0, -1), 'queue'];
    return {
      names: queue,
      message: `${queue.join('.')} needs a database; declare deployment.resources.database too`,
    };
  }
  return { names, message: `${names.length === 0 ? 'the declaration' : names.join('.')} ${message}` };
}

function requireDistinctBindings(resources: ResourcesFile, refuse: Refuse): void {
  const owners = new Map<string, string>();
  for (const [kind, { binding }] of Object.entries(resources)) {
    const owner = owners.get(binding);
    const member = `deployment.resources.${kind}.binding`;
    if (owner !== undefined)
      refuse(
        ['deployment', 'resources', kind, 'binding'],
        `${member} is "${binding}", which is also the binding of the ${owner}; give each its own`,
      );
    owners.set(binding, kind);
  }
}

function withDefaults({ id, name, entry = 'src/index.ts', deployment }: DeclarationFile): Declaration {
  const { target, host, port, base_url: baseUrl, resources = {} } = deployment;
  const { database, queue, storage } = resources;
  return {
    id,
    name,
    entry: relative('.', entry),
    deployment: {
      target,
      ...(host === undefined ? {} : { host }),
      ...(port === undefined ? {} : { port }),
      ...(baseUrl === undefined ? {} : { baseUrl: withoutTrailingSlash(baseUrl) }),
      resources: {
        ...(database === undefined ? {} : { database: { name: `${name}-db`, ...database } }),
        ...(queue === undefined ? {} : { queue: { name: `${name}-queue`, ...queue } }),
        ...(storage === undefined ? {} : { storage: storageOf(storage) }),
      },
    },
  };
}

function storageOf({
  type,
  binding,
  name,
  public_url_prefix: prefix,
}: NonNullable<ResourcesFile['storage']>): NonNullable<DeclaredResources['storage']> {
  return { type, binding, name, publicUrlPrefix: withoutTrailingSlash(prefix) };
}

function withoutTrailingSlash(url: string): string {
  return url.replace(/\/+$/, '');
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

/** Reads the project of a folder. Its declared storage is in `stateDirectory`, by default `.townhall`. */
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

/** The port of a gateway in a container or under a service manager. */
export function portOf({ deployment }: Declaration): number {
  return deployment.port === undefined || deployment.port === 0 ? defaultPort : deployment.port;
}

/** The folder of a declared storage. */
export function storagePath(stateDirectory: string, name: string): string {
  return join(stateDirectory, 'storage', name);
}
