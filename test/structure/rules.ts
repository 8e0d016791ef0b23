// The structure rules of the repository: allowed imports, one file per dependency, no import
// cycles, no vague file names, tables named only in stores, no ambient state below the composition
// roots. Each rule maps sources to violations, so that structure.test.ts can run it on samples.

import path from 'node:path';
import type { Import, Source } from './source.ts';

export interface Violation {
  rule: string;
  place: string;
  message: string;
}

/** The only files of src that may import a package. */
export const packageImporters: Readonly<Record<string, RegExp>> = {
  express: /^src\/kernel\/http\/request-handler\.ts$/,
  'openapi-backend': /^src\/kernel\/contract\/(?:operations|validator)\.ts$/,
  // validator.ts checks requests; schema.ts checks settings files and tool inputs; text-length.ts has two
  // keywords for both.
  ajv: /^src\/kernel\/contract\/(?:validator|schema|text-length)\.ts$/,
  'ajv-formats': /^src\/kernel\/contract\/(?:validator|schema|text-length)\.ts$/,
  postgres: /^src\/kernel\/data\/(?:database|queries)\.ts$/,
  '@electric-sql/pglite': /^src\/kernel\/data\/embedded\/[a-z-]+\.ts$/,
  'pg-boss': /^src\/kernel\/data\/jobs\.ts$/,
  pino: /^src\/kernel\/log\.ts$/,
  'prom-client': /^src\/kernel\/telemetry\/prometheus\.ts$/,
  '@opentelemetry/api': /^src\/kernel\/telemetry\/opentelemetry\.ts$/,
  '@opentelemetry/sdk-trace': /^src\/kernel\/telemetry\/opentelemetry\.ts$/,
  '@opentelemetry/exporter-trace-otlp-http': /^src\/kernel\/telemetry\/opentelemetry\.ts$/,
  'openid-client': /^src\/gateway\/accounts\/providers\/openid\.ts$/,
  stripe: /^src\/gateway\/payments\/providers\/stripe\.ts$/,
  nodemailer: /^src\/gateway\/mail\.ts$/,
};

const clientPackages = ['@townhall/gateway', '@townhall/agent'];
const bannedNames = new Set(['util', 'utils', 'helper', 'helpers', 'common', 'manager', 'misc', 'types']);
const surfaces = ['gateway', 'agent'];
// The files at the root of a surface that construct its slices or call several of them.
const composingFiles = new Set([
  'compose.ts',
  'control.ts',
  'extensions.ts',
  'infrastructure.ts',
  'tenants.ts',
  'models.ts',
  'project.ts',
  'http-server.ts',
  'lifecycle.ts',
  'assembly.ts',
]);

/** All violations of all rules, in the order of the files. */
export function findViolations(sources: readonly Source[]): Violation[] {
  return [
    ...sources.flatMap((source) => [
      ...checkName(source),
      ...checkImports(source),
      ...checkTables(source),
      ...checkMentions(source),
    ]),
    ...findLoops(sources),
  ];
}

function checkImports(source: Source): Violation[] {
  return source.imports.flatMap((imported) => {
    const at = (message: string, rule = 'imports') => [
      { rule, place: `${source.path}:${imported.line}`, message },
    ];
    if (!imported.local) {
      const allowedFiles = source.path.startsWith('src/') ? packageImporters[imported.target] : undefined;
      if (allowedFiles !== undefined && !allowedFiles.test(source.path))
        return at(
          `imports ${imported.target}, which only ${allowedFiles.source} may import`,
          'package-importers',
        );
      return mayImportPackage(source.path, imported)
        ? []
        : at(`may not import the package ${imported.target}`);
    }
    const reason = refuseImport(source.path, imported) ?? refuseFolderAbove(source.path, imported.target);
    return reason === undefined ? [] : at(`may not import ${imported.target}: ${reason}`);
  });
}

function mayImportPackage(file: string, { target: name, typeOnly }: Import): boolean {
  // @townhall/react is built on the gateway's client.
  if (file.startsWith('clients/react/')) return name === 'react' || name === '@townhall/gateway';
  // A client has one dependency at run time; the types of the AI SDK's interface are erased.
  if (file.startsWith('clients/'))
    return (
      name.startsWith('node:') || name === 'eventsource-parser' || (typeOnly && name === '@ai-sdk/provider')
    );
  // src parses event streams through a client or a provider's package.
  if (file.startsWith('src/') && name === 'eventsource-parser') return false;
  if (file.startsWith('src/kernel/') || file.startsWith('src/gateway/'))
    return !clientPackages.includes(name);
  if (file.startsWith('src/agent/') || file.startsWith('src/deploy/')) return name !== '@townhall/agent';
  return true;
}

/** The reason why a file may not import a path of the repository; undefined when it may. */
function refuseImport(file: string, { target, typeOnly }: Import): string | undefined {
  const [area, part, ...rest] = file.split('/');
  const isInside = (folder: string) => target.startsWith(`${folder}/`);
  if (area === 'clients')
    return isInside(`clients/${part}`) || isInside('clients/shared')
      ? undefined
      : 'a client imports only its own code and clients/shared';
  if (area === 'examples')
    return isInside('examples') ? undefined : 'an example imports only the clients, as their users do';
  if (area === 'scripts') return isInside('test') ? 'a script does not import from test' : undefined;
  if (area === 'test') return refuseInTest(file, target);
  if (area !== 'src' || part === undefined) return undefined;
  if (isInside('test') || isInside('scripts') || isInside('examples') || isInside('clients'))
    return 'src imports only src and packages';

  if (part === 'kernel') {
    if (isInside('src/kernel')) return refuseInKernel(file, target);
    if (target === 'src/contract/problem-code.gen.ts')
      return typeOnly ? undefined : 'the kernel may only `import type` it';
    return 'the kernel is the lowest layer and imports nothing else of src';
  }
  if (isInside('src/kernel')) return undefined;
  if (part === 'cli')
    return isInside('src/cli') || isPublicInterface(target) || target === 'package.json'
      ? undefined
      : 'the cli imports a part by its index.ts or composition root';
  if (part === 'index.ts')
    return isPublicInterface(target) || /^src\/\w+\/service\.ts$/.test(target)
      ? undefined
      : 'src/index.ts exports only public interfaces';
  if (surfaces.includes(part)) return refuseInSurface(part, rest, { target, typeOnly });
  return isInside(`src/${part}`) ? undefined : `${part} imports only the kernel and its own files`;
}

/** A folder is a layer above its subfolders. Tests share files of the folders above them. */
function refuseFolderAbove(file: string, target: string): string | undefined {
  const folder = path.posix.dirname(file);
  const parentFolder = path.posix.dirname(target);
  if (file.startsWith('test/') || !folder.startsWith(`${parentFolder}/`)) return undefined;
  // The files directly in the kernel are below its folders, the files directly in a surface are shared
  // by all slices, and package.json has the version.
  const isShared = /^(?:\.|src|src\/(?:kernel|gateway|agent))$/.test(parentFolder);
  if (isShared) return undefined;
  return 'a file does not import from a folder above its own';
}

// The layers of the kernel, lowest first: each may import only itself and the layers before it. The
// empty name stands for the files directly in src/kernel, such as clock.ts, log.ts and problem.ts.
const kernelLayers = ['secrets', '', 'storage', 'data', 'contract', 'http', 'telemetry'];

function refuseInKernel(file: string, target: string): string | undefined {
  const layerOf = (name: string) => kernelLayers.indexOf(/^src\/kernel\/([\w-]+)\//.exec(name)?.[1] ?? '');
  return layerOf(target) > layerOf(file)
    ? 'a layer of the kernel imports only the layers below it'
    : undefined;
}

// Files of a surface that every slice may import.
const sharedFiles = ['service.ts', 'identity.ts'];

function refuseInSurface(
  surface: string,
  rest: string[],
  { target, typeOnly }: Pick<Import, 'target' | 'typeOnly'>,
): string | undefined {
  const ownFolder = `src/${surface}/`;
  const isRoot = rest.length === 1;
  const composesSlices = isRoot && composingFiles.has(rest[0] ?? '');
  const contracts = surface === 'agent' ? ['agent', 'agent-classic'] : [surface];
  if (
    target === 'src/contract/problem-code.gen.ts' ||
    contracts.some((name) => target.startsWith(`src/contract/${name}/`))
  ) {
    return typeOnly || composesSlices
      ? undefined
      : 'below the composition root the contract is only for `import type`';
  }
  if (!target.startsWith(ownFolder))
    return `the ${surface} imports only the kernel, its contract and its own slices`;
  const [slice, ...parts] = target.slice(ownFolder.length).split('/');
  const isShared =
    parts.length === 0 && (isRoot ? slice !== 'compose.ts' : sharedFiles.includes(slice ?? ''));
  if (isShared) return undefined;
  if (composesSlices)
    return parts.join('/') === 'index.ts'
      ? undefined
      : 'the composition root imports a slice by its index.ts';
  if (isRoot && sharedFiles.includes(rest[0] ?? ''))
    return 'a file that all slices share imports none of them';
  if (slice === rest[0]) return undefined;
  // A module of one file is its own interface: mail.ts, directory.ts.
  const isModuleFile = parts.length === 0 && slice !== 'compose.ts';
  if (!isModuleFile && parts.join('/') !== 'index.ts')
    return 'another slice is imported only by its index.ts';
  // Only compose.ts connects the gateway's slices; the agent's slices may load one another.
  return typeOnly || surface === 'agent' ? undefined : 'another slice is only for `import type`';
}

function refuseInTest(file: string, target: string): string | undefined {
  const [, area, slice] = file.split('/');
  if (
    !target.startsWith('src/') ||
    target.startsWith('src/kernel/') ||
    target.startsWith('src/contract/') ||
    target.startsWith('src/cli/')
  )
    return undefined;
  if (isPublicInterface(target) || target === 'src/index.ts' || area === 'support') return undefined;
  // A module of one file lies beside the slices of its surface: service.ts,
  // identity.ts, mail.ts, directory.ts.
  if (/^src\/(?:gateway|agent)\/[\w-]+\.ts$/.test(target)) return undefined;
  if (surfaces.includes(area ?? ''))
    return target.startsWith(`src/${area}/${slice}/`)
      ? undefined
      : 'a test imports only the files of its own slice';
  if (target.startsWith(`src/${area}/`)) return undefined;
  // The simulation runs the ledger without the rest of the gateway.
  if (area === 'simulation' && target.startsWith('src/gateway/credits/')) return undefined;
  return 'a test imports a client, test/support or a composition root';
}

/**
 * The files that a part of src offers to others: its index.ts, or a surface's composition root and settings.
 */
function isPublicInterface(target: string): boolean {
  return (
    /^src\/(?:[\w-]+\/)+index\.ts$/.test(target) ||
    /^src\/\w+\/(?:compose|config|control|database)\.ts$/.test(target)
  );
}

function checkTables(source: Source): Violation[] {
  const [area, surface, slice] = source.path.split('/');
  if (area !== 'src') return [];
  const isStore =
    /(?:^|-)store\.ts$/.test(path.posix.basename(source.path)) && surfaces.includes(surface ?? '');
  return (
    source.tables
      // Functions such as gateway.townhall_now() are no tables.
      .filter(({ what }) => !/\.townhall_/.test(what))
      .filter(({ what }) => !isStore || !what.startsWith(`${surface}.${slice}_`))
      .map(({ what, line }) => ({
        rule: 'tables',
        place: `${source.path}:${line}`,
        message: isStore
          ? `names ${what}, a table of another slice`
          : `names the table ${what}; only a store.ts or *-store.ts does`,
      }))
  );
}

function checkMentions(source: Source): Violation[] {
  const unwanted = source.unwanted.map(({ what, line }) => ({
    rule: 'unwanted',
    place: `${source.path}:${line}`,
    message: `has ${what}`,
  }));
  const isRoot = /^src\/(?:cli\/|\w+\/compose\.ts$)/.test(source.path);
  // Pages run in a browser and have no composition root.
  const isPage = source.path.startsWith('src/console/pages/');
  if (!source.path.startsWith('src/') || isRoot || isPage) return unwanted;
  // clock.ts is the clock that is passed in; the time in an id only orders ids.
  const mayReadTime = source.path === 'src/kernel/clock.ts' || source.path === 'src/kernel/ids.ts';
  const ambientUses = source.ambient
    .filter(({ what }) => !mayReadTime || !what.includes('Date'))
    .map(({ what, line }) => ({
      rule: 'ambient',
      place: `${source.path}:${line}`,
      message: `uses ${what}; below the composition root it is passed in`,
    }));
  return [...unwanted, ...ambientUses];
}

function checkName(source: Source): Violation[] {
  const segments = source.path.split('/');
  const name = (segments.pop() ?? '').replace(/(?:\.(?:test|bench|d))?\.(?:ts|js)$/, '');
  const violations: Violation[] = [];
  for (const segment of [...segments, name]) {
    if (bannedNames.has(segment))
      violations.push({
        rule: 'names',
        place: source.path,
        message: `"${segment}" does not say what the file is for`,
      });
  }
  if (!/^[a-z0-9]+(?:-[a-z0-9]+)*$/.test(name))
    violations.push({ rule: 'names', place: source.path, message: 'a file name is in kebab-case' });
  return violations;
}

/**
 * Finds an import cycle for each back edge of a depth-first search, so at least one if there are any. Type
 * imports count too.
 */
function findLoops(sources: readonly Source[]): Violation[] {
  const sourcesByPath = new Map(sources.map((source) => [source.path, source]));
  const state = new Map<string, 'open' | 'done'>();
  const trail: string[] = [];
  const loops: Violation[] = [];
  const visit = (file: string): void => {
    state.set(file, 'open');
    trail.push(file);
    for (const { target, local } of sourcesByPath.get(file)?.imports ?? []) {
      if (!local || !sourcesByPath.has(target)) continue;
      if (state.get(target) === 'open')
        loops.push({
          rule: 'loops',
          place: file,
          message: [...trail.slice(trail.indexOf(target)), target].join(' -> '),
        });
      else if (!state.has(target)) visit(target);
    }
    trail.pop();
    state.set(file, 'done');
  };
  for (const { path: file } of sources) if (!state.has(file)) visit(file);
  return loops;
}
