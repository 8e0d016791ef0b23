// Builds the portal into build/docs: guides, operations, error codes and examples as our own pages,
// and a Redoc page for each document of the contract. Pages load nothing from other hosts: a
// content security policy enforces it in the browser, and a text search checks it here. A broken
// link, a sample that differs from its example, or an error code without a text fails the build.
//
//   node scripts/docs.ts [--output DIR] [--update] [--no-check] [--if-changed]
//
// --update rewrites the samples of the guides. --no-check skips the type check of the samples, for a
// server that builds the portal when it is first requested. --if-changed does nothing if the portal was
// already built from the current sources.

import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import path from 'node:path';
import { parseCommandLine } from './command-line.ts';
import { buildPortal, type PortalFiles } from './docs/build-portal.ts';
import { findExternalAssets } from './docs/seal.ts';
import { updateGuides } from './docs/text-pages.ts';
import { digestFiles, writeIfChanged } from './generate/files.ts';
import { surfaces } from './generate/surfaces.ts';
import { packageVersion } from './generate/tools.ts';

const root = path.join(import.meta.dirname, '..');
const { values: options } = parseCommandLine(import.meta.filename, {
  options: {
    output: { type: 'string', default: path.join(root, 'build/docs') },
    root: { type: 'string', default: root },
    update: { type: 'boolean', default: false },
    check: { type: 'boolean', default: true },
    'if-changed': { type: 'boolean', default: false },
  },
  allowNegative: true,
});

const startedMs = performance.now();
try {
  await main(path.resolve(options.root), path.resolve(options.output));
} catch (error) {
  console.error(`docs: ${(error as Error).message}`);
  process.exitCode = 1;
}

async function main(folder: string, output: string): Promise<void> {
  mkdirSync(path.join(root, 'build'), { recursive: true });
  if (options.update) updateGuides(folder);
  const stamp = `${output}.stamp`;
  const inputs = inputDigest(folder);
  const checkedInputs = `${inputs} checked`;
  // A portal that was built without the type check is current only for a build without it.
  const currentStamps = options.check ? [checkedInputs] : [checkedInputs, inputs];
  if (options['if-changed'] && isCurrent(output, { stamp, currentStamps })) {
    console.log('docs: the portal is up to date');
    return;
  }
  const staging = mkdtempSync(path.join(root, 'build/docs-'));
  try {
    const files = await buildPortal({ folder, staging, checksTypes: options.check });
    // Remove the stamp first: if this run is interrupted, the next one builds the portal again.
    rmSync(stamp, { force: true });
    publish(output, files);
    writeIfChanged(stamp, options.check ? checkedInputs : inputs);
  } finally {
    rmSync(staging, { recursive: true, force: true });
  }
  console.log(
    `docs: ${path.relative(process.cwd(), output) || '.'} (${Math.round(performance.now() - startedMs)} ms)`,
  );
}

/** Whether the portal exists and has one of these stamps. */
function isCurrent(
  output: string,
  { stamp, currentStamps }: { stamp: string; currentStamps: readonly string[] },
): boolean {
  return existsSync(output) && existsSync(stamp) && currentStamps.includes(readFileSync(stamp, 'utf8'));
}

function inputDigest(folder: string): string {
  const bundles = surfaces.map(({ name }) => `src/contract/${name}/bundle.json`);
  // The pages and samples are made by both folders of scripts.
  const scripts = ['scripts/docs.ts', 'scripts/docs', 'scripts/generate', 'src/deploy/townhall.schema.json'];
  const tools = ['@redocly/cli', 'highlight.js', 'marked', 'minisearch', 'rolldown'];
  const versions = tools.map((name) => `${name}@${packageVersion(name)}`);
  return digestFiles(
    root,
    [...scripts, ...bundles],
    [...versions, digestFiles(folder, ['docs', 'examples', 'README.md'])],
  );
}

/** Writes changed files and removes pages that no longer exist. */
function publish(output: string, files: PortalFiles): void {
  for (const [name, text] of files) {
    const externalAssets = typeof text === 'string' && name.endsWith('.html') ? findExternalAssets(text) : [];
    if (externalAssets.length > 0)
      throw new Error(`${name} would load ${externalAssets.join(', ')} from another host`);
  }
  for (const [name, text] of files) {
    mkdirSync(path.dirname(path.join(output, name)), { recursive: true });
    writeIfChanged(path.join(output, name), text);
  }
  for (const entry of readdirSync(output, { recursive: true, withFileTypes: true })) {
    const name = path.relative(output, path.join(entry.parentPath, entry.name)).split(path.sep).join('/');
    if (entry.isFile() && !files.has(name)) rmSync(path.join(output, name));
  }
}
