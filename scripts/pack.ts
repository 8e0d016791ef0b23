// Builds the published packages into build/packages: the tarballs of the server and of the
// clients, and the server's bill of materials. Each has to pass its checks: the package's
// structure, its files, and the absence of secrets.
//
//   node scripts/pack.ts [--output DIR] [--no-check]

import {
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import { parseCommandLine } from './command-line.ts';
import { filesBelow, moveFile } from './generate/files.ts';
import { runNode } from './generate/tools.ts';
import { inspectTarball } from './pack/inspect.ts';
import { serverManifest, serverNode } from './pack/manifest.ts';
import { runNpm } from './pack/npm.ts';
import { createProgress } from './pack/progress.ts';
import { buildPortal } from './pack/portal.ts';
import { shippedFiles } from './pack/shipped-files.ts';
import { thirdPartyNotice } from './pack/third-party.ts';

const root = path.join(import.meta.dirname, '..');
const { values: options } = parseCommandLine(import.meta.filename, {
  options: {
    output: { type: 'string', default: path.join(root, 'build/packages') },
    check: { type: 'boolean', default: true },
  },
  allowNegative: true,
});

// An older Node would only report a missing module. Node 22 prints warnings for experimental
// features, which do not help the user.
const commandFile = `#!/usr/bin/env node
const [major, minor] = process.versions.node.split('.').map(Number);
const [leastMajor, leastMinor] = '${serverNode}'.split('.').map(Number);
if (major < leastMajor || (major === leastMajor && minor < leastMinor)) {
  process.stderr.write(\`townhall: this is Node \${process.versions.node}; install Node ${serverNode} or newer.\\n\`);
  process.exit(1);
}
process.removeAllListeners('warning');
process.on('warning', (warning) => {
  if (warning.name !== 'ExperimentalWarning') process.stderr.write(\`\${warning.stack ?? warning.message}\\n\`);
});
await import('../dist/cli/main.js');
`;

const startedMs = performance.now();
const step = createProgress('pack');
try {
  await main(path.resolve(options.output));
} catch (error) {
  console.error(`pack: ${(error as Error).message}`);
  process.exitCode = 1;
}

async function main(output: string): Promise<void> {
  mkdirSync(path.join(root, 'build'), { recursive: true });
  const staging = mkdtempSync(path.join(root, 'build/pack-'));
  try {
    step('the portal');
    await buildPortal(root);
    step('the clients and the server');
    const clients = path.join(staging, 'clients');
    const tarballs = path.join(staging, 'tarballs');
    mkdirSync(tarballs);
    // Both have to end, even if one fails: they write into the folder that is removed afterwards.
    const builds = await Promise.allSettled([
      buildClients(clients),
      buildServer(path.join(staging, 'townhall')),
    ]);
    for (const build of builds) if (build.status === 'rejected') throw build.reason;
    step('the tarballs');
    for (const folder of [
      path.join(staging, 'townhall'),
      ...['gateway', 'agent', 'react'].map((name) => path.join(clients, name)),
    ]) {
      await runNpm(['pack', '--pack-destination', tarballs], folder);
    }
    step('the checks of the tarballs');
    for (const name of readdirSync(tarballs))
      await inspectTarball(root, path.join(tarballs, name), { check: options.check });
    writeFileSync(path.join(tarballs, 'townhall.cdx.json'), await createBillOfMaterials());
    mkdirSync(output, { recursive: true });
    for (const name of readdirSync(output))
      if (/\.(?:tgz|cdx\.json)$/.test(name)) rmSync(path.join(output, name));
    for (const name of readdirSync(tarballs)) moveFile(path.join(tarballs, name), path.join(output, name));
  } finally {
    rmSync(staging, { recursive: true, force: true });
  }
  for (const name of readdirSync(output).sort())
    console.log(`pack: ${name} (${Math.ceil(statSync(path.join(output, name)).size / 1024)} kB)`);
  console.log(
    `pack: ${path.relative(process.cwd(), output)} (${Math.round(performance.now() - startedMs)} ms)`,
  );
}

async function buildClients(folder: string): Promise<void> {
  const builder = path.join(root, 'scripts/build-clients.ts');
  requireSuccess(
    await runNode(builder, ['--into', folder], { cwd: root, timeoutMs: 600_000 }),
    'build-clients',
  );
}

/**
 * The server as published: compiled JavaScript with types, and its data files at the same paths.
 */
async function buildServer(folder: string): Promise<void> {
  const compiledFolder = path.join(folder, 'dist');
  const tsc = path.join(root, 'node_modules/typescript/bin/tsc');
  requireSuccess(
    await runNode(tsc, ['-p', path.join(root, 'scripts/pack'), '--outDir', compiledFolder], {
      cwd: root,
      timeoutMs: 600_000,
    }),
    'tsc',
  );
  // Data files, such as the contract, which the program reads at run time.
  for (const name of shippedFiles(root)) copy(name, path.join(folder, name.replace(/^src\//, 'dist/')));
  const pages = 'src/console/pages';
  for (const name of filesBelow(root, pages))
    if (!name.endsWith('.ts')) copy(name, path.join(folder, name.replace(/^src\//, 'dist/')));
  mkdirSync(path.join(folder, 'bin'));
  writeFileSync(path.join(folder, 'bin/townhall.js'), commandFile, { mode: 0o755 });
  copy('scripts/pack/README.md', path.join(folder, 'README.md'));
  const manifest = serverManifest(root);
  writeFileSync(path.join(folder, 'package.json'), `${JSON.stringify(manifest, null, 2)}\n`);
  writeFileSync(
    path.join(folder, 'THIRD-PARTY.txt'),
    thirdPartyNotice(
      root,
      new Set(Object.keys(manifest.dependencies).filter((name) => !name.startsWith('@townhall/'))),
      { hasNode: false },
    ),
  );
}

async function createBillOfMaterials(): Promise<string> {
  // `npm sbom --omit dev` also omits packages that our dependencies need, such as express, so the runtime
  // packages are selected by the lock file.
  const text = await runNpm(['sbom', '--sbom-format', 'cyclonedx', '--package-lock-only'], root);
  const bill = JSON.parse(text) as Bill;
  const names = runtimePackages();
  bill.components = bill.components.filter((component) => names.has(component['bom-ref']));
  const references = new Set([
    bill.metadata.component['bom-ref'],
    ...bill.components.map((component) => component['bom-ref']),
  ]);
  bill.dependencies = bill.dependencies
    .filter(({ ref }) => references.has(ref))
    .map(({ ref, dependsOn = [] }) => ({
      ref,
      dependsOn: dependsOn.filter((target) => references.has(target)),
    }));
  // The time and the serial number describe this run and not the program.
  delete bill.serialNumber;
  delete bill.metadata.timestamp;
  return `${JSON.stringify(bill, null, 2)}\n`;
}

interface LockedPackage {
  /** The name of a package in another folder, such as an alias. */
  name?: string;
  version?: string;
  dev?: boolean;
  /** The folder of a workspace. */
  resolved?: string;
  link?: boolean;
  dependencies?: Record<string, string>;
  peerDependencies?: Record<string, string>;
}

/** Each package that the server runs, as `name@version`. */
function runtimePackages(): Set<string> {
  const { packages } = JSON.parse(readFileSync(path.join(root, 'package-lock.json'), 'utf8')) as {
    packages: Record<string, LockedPackage>;
  };
  const { dependencies = {} } = packages[''] ?? {};
  // React belongs to the page that uses @townhall/react, not to the server.
  const { peerDependencies: peers = {} } = packages['clients/react'] ?? {};
  const names = new Set<string>();
  for (const [place, { name, version, dev, link, resolved = '' }] of Object.entries(packages)) {
    const folder = place.split('node_modules/').at(-1) ?? '';
    if (!place.includes('node_modules/') || dev === true || folder in peers) continue;
    if (link === true && !(folder in dependencies)) continue;
    names.add(`${name ?? folder}@${link === true ? packages[resolved]?.version : version}`);
  }
  return names;
}

interface Component {
  /** `name@version`, with the scope. */
  'bom-ref': string;
  properties?: { name: string; value: string }[];
}

/** The members of a CycloneDX document that are used here. */
interface Bill {
  serialNumber?: string;
  metadata: { timestamp?: string; component: Component };
  components: Component[];
  dependencies: { ref: string; dependsOn?: string[] }[];
}

function copy(name: string, targetPath: string): void {
  mkdirSync(path.dirname(targetPath), { recursive: true });
  cpSync(path.join(root, name), targetPath);
}

function requireSuccess(
  { code, stdout, stderr }: { code: number; stdout: string; stderr: string },
  label: string,
): void {
  if (code !== 0) throw new Error(`${label} failed:\n${stdout}${stderr}`);
}
