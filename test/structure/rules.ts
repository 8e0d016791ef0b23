// The house's rules of structure: who may import whom, which file is the one door to a dependency, no loops, no names
// that say nothing, nothing ambient below the composition roots. Each rule takes sources and gives violations, so that
// it can be shown to say no.

import path from 'node:path';
import type { Import, Source } from './source.ts';

export interface Violation {
  rule: string;
  place: string;
  message: string;
}

/** The files of src that alone may import a package. */
export const doors: Readonly<Record<string, RegExp>> = {
  express: /^src\/kernel\/http\/server\.ts$/,
  'openapi-backend': /^src\/kernel\/contract\/(?:operations|validator)\.ts$/,
  // Requests are checked in validator.ts; what is not a request (files of settings, inputs of tools) in schema.ts.
  ajv: /^src\/kernel\/contract\/(?:validator|schema|text-length)\.ts$/,
  'ajv-formats': /^src\/kernel\/contract\/(?:validator|schema|text-length)\.ts$/,
  postgres: /^src\/kernel\/data\/database\.ts$/,
  '@electric-sql/pglite': /^src\/kernel\/data\/embedded[a-z-]*\.ts$/,
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
// The files beside a server's slices that construct them or call several of them.
const composingFiles = new Set(['compose.ts', 'control.ts', 'extensions.ts']);

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
      const door = source.path.startsWith('src/') ? doors[imported.target] : undefined;
      if (door !== undefined && !door.test(source.path))
        return at(`imports ${imported.target}, whose one door is ${door.source}`, 'doors');
      return mayImportPackage(source.path, imported)
        ? []
        : at(`may not import the package ${imported.target}`);
    }
    const why = refusalOf(source.path, imported);
    return why === undefined ? [] : at(`may not import ${imported.target}: ${why}`);
  });
}

function mayImportPackage(file: string, { target: name, typeOnly }: Import): boolean {
  // A client has one dependency at run time; the types of the AI SDK's interface are erased.
  if (file.startsWith('clients/'))
    return (
      name.startsWith('node:') || name === 'eventsource-parser' || (typeOnly && name === '@ai-sdk/provider')
    );
  // Whatever of src reads a stream of events reads it through a client or a package of its provider.
  if (file.startsWith('src/') && name === 'eventsource-parser') return false;
  if (file.startsWith('src/kernel/') || file.startsWith('src/gateway/'))
    return !clientPackages.includes(name);
  if (file.startsWith('src/agent/') || file.startsWith('src/deploy/')) return name !== '@townhall/agent';
  return true;
}

/** Why a file may not import a path of the repository; undefined when it may. */
function refusalOf(file: string, { target, typeOnly }: Import): string | undefined {
  const [area, room, ...rest] = file.split('/');
  const inside = (folder: string) => target.startsWith(`${folder}/`);
  if (area === 'clients')
    return inside(`clients/${room}`) || inside('clients/shared')
      ? undefined
      : 'a client has only its own code and what the clients share';
  if (area === 'examples')
    return inside('examples') ? undefined : 'an example uses only the clients, as a reader of it will';
  if (area === 'scripts') return inside('test') ? 'a script does not need a test' : undefined;
  if (area === 'test') return refusalOfTest(file, target);
  if (area !== 'src' || room === undefined) return undefined;
  if (inside('test') || inside('scripts') || inside('examples') || inside('clients'))
    return 'src stands alone';

  if (room === 'kernel') {
    if (inside('src/kernel')) return refusalInKernel(file, target);
    if (target === 'src/contract/problem-code.gen.ts')
      return typeOnly ? undefined : 'the kernel takes it by `import type` alone';
    return 'the kernel is the ground floor and imports nothing of src';
  }
  if (inside('src/kernel')) return undefined;
  if (room === 'cli')
    return inside('src/cli') || isDoorOfRoom(target) || target === 'package.json'
      ? undefined
      : 'the cli calls rooms by their index.ts or composition root';
  if (room === 'index.ts')
    return isDoorOfRoom(target) || /^src\/\w+\/service\.ts$/.test(target)
      ? undefined
      : 'src/index.ts gives only what a room shows';
  if (surfaces.includes(room)) return refusalOfSurface(room, rest, { target, typeOnly });
  return inside(`src/${room}`) ? undefined : `${room} has only the kernel and its own files`;
}

// From the ground up: a floor of the kernel stands on those before it and knows nothing of those after it. The empty
// name stands for the files beside the rooms: clock, log, problem and their like.
const kernelFloors = ['secrets', '', 'data', 'contract', 'http', 'telemetry'];

function refusalInKernel(file: string, target: string): string | undefined {
  const floorOf = (name: string) => kernelFloors.indexOf(/^src\/kernel\/([\w-]+)\//.exec(name)?.[1] ?? '');
  return floorOf(target) > floorOf(file) ? 'a floor of the kernel knows only those below it' : undefined;
}

// Files of a surface that every slice may import.
const sharedFiles = ['service.ts', 'identity.ts'];

function refusalOfSurface(
  surface: string,
  rest: string[],
  { target, typeOnly }: Pick<Import, 'target' | 'typeOnly'>,
): string | undefined {
  const own = `src/${surface}/`;
  const isRoot = rest.length === 1;
  const isCompose = isRoot && rest[0] === 'compose.ts';
  const composesSlices = isRoot && composingFiles.has(rest[0] ?? '');
  const contracts = surface === 'agent' ? ['agent', 'agent-classic'] : [surface];
  if (
    target === 'src/contract/problem-code.gen.ts' ||
    contracts.some((name) => target.startsWith(`src/contract/${name}/`))
  ) {
    return typeOnly || isCompose
      ? undefined
      : 'below the composition root the contract is `import type` alone';
  }
  if (!target.startsWith(own)) return `the ${surface} has only the kernel, its contract and its own rooms`;
  const [slice, ...within] = target.slice(own.length).split('/');
  const isShared =
    within.length === 0 && (isRoot ? slice !== 'compose.ts' : sharedFiles.includes(slice ?? ''));
  if (isShared) return undefined;
  if (composesSlices)
    return within.join('/') === 'index.ts' ? undefined : 'the composition root takes a slice by its index.ts';
  if (isRoot && sharedFiles.includes(rest[0] ?? '')) return 'what all slices share knows none of them';
  if (slice === rest[0]) return undefined;
  // A module of one file is its own interface: mail.ts, directory.ts.
  const isModuleFile = within.length === 0 && slice !== 'compose.ts';
  if (!isModuleFile && within.join('/') !== 'index.ts')
    return 'another slice is reached by its index.ts alone';
  // The gateway's slices meet only in its composition root; the agent's rooms are one household.
  return typeOnly || surface === 'agent' ? undefined : 'another slice is reached by `import type` alone';
}

function refusalOfTest(file: string, target: string): string | undefined {
  const [, area, slice] = file.split('/');
  if (
    !target.startsWith('src/') ||
    target.startsWith('src/kernel/') ||
    target.startsWith('src/contract/') ||
    target.startsWith('src/cli/')
  )
    return undefined;
  if (isDoorOfRoom(target) || target === 'src/index.ts' || area === 'support') return undefined;
  // A module of one file stands beside the slices of its surface: service.ts, identity.ts, mail.ts, directory.ts.
  if (/^src\/(?:gateway|agent)\/[\w-]+\.ts$/.test(target)) return undefined;
  if (surfaces.includes(area ?? ''))
    return target.startsWith(`src/${area}/${slice}/`)
      ? undefined
      : 'a test knows the files of its own slice alone';
  if (target.startsWith(`src/${area}/`)) return undefined;
  return 'a test goes through a client, the support or a composition root';
}

/** What a room shows to those who compose: its index.ts, or a surface's composition root and settings. */
function isDoorOfRoom(target: string): boolean {
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
  return source.tables
    .filter(({ what }) => !/\.townhall_/.test(what))
    .filter(({ what }) => !isStore || !what.startsWith(`${surface}.${slice}_`))
    .map(({ what, line }) => ({
      rule: 'tables',
      place: `${source.path}:${line}`,
      message: isStore
        ? `names ${what}, a table of another slice`
        : `names the table ${what}; only a store.ts or *-store.ts does`,
    }));
}

function checkMentions(source: Source): Violation[] {
  const unwanted = source.unwanted.map(({ what, line }) => ({
    rule: 'unwanted',
    place: `${source.path}:${line}`,
    message: `has ${what}`,
  }));
  const isRoot = /^src\/(?:cli\/|\w+\/compose\.ts$)/.test(source.path);
  // Pages run in a browser, where nobody passes anything in.
  const isPage = source.path.startsWith('src/console/pages/');
  if (!source.path.startsWith('src/') || isRoot || isPage) return unwanted;
  // The clock that is passed in has to begin somewhere; the time in an id only puts ids in order.
  const tellsTime = source.path === 'src/kernel/clock.ts' || source.path === 'src/kernel/ids.ts';
  const ambient = source.ambient
    .filter(({ what }) => !tellsTime || !what.includes('Date'))
    .map(({ what, line }) => ({
      rule: 'ambient',
      place: `${source.path}:${line}`,
      message: `reaches for ${what}, which is passed in below the composition root`,
    }));
  return [...unwanted, ...ambient];
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
        message: `"${segment}" says nothing of what is in it`,
      });
  }
  if (!/^[a-z0-9]+(?:-[a-z0-9]+)*$/.test(name))
    violations.push({ rule: 'names', place: source.path, message: 'a file has a name in kebab-case' });
  return violations;
}

/** Every loop of imports once, type imports included, for they too say that two files cannot be understood apart. */
function findLoops(sources: readonly Source[]): Violation[] {
  const known = new Map(sources.map((source) => [source.path, source]));
  const state = new Map<string, 'open' | 'done'>();
  const trail: string[] = [];
  const loops: Violation[] = [];
  const visit = (file: string): void => {
    state.set(file, 'open');
    trail.push(file);
    for (const { target, local } of known.get(file)?.imports ?? []) {
      if (!local || !known.has(target)) continue;
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
