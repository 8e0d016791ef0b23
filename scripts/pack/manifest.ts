// The package.json of the published server and of the published clients. The files in the repository are
// for development; members that both need are taken from them.

import { readFileSync } from 'node:fs';
import path from 'node:path';

interface Manifest extends Record<string, unknown> {
  name: string;
  version: string;
  dependencies: Record<string, string>;
  optionalDependencies: Record<string, string>;
}

/** The minimum for undici and for type stripping, which a project's entry needs. */
export const serverNode = '22.19';
const serverEngines = { node: `>=${serverNode}` };

export function serverManifest(root: string): Manifest {
  const rootManifest = JSON.parse(readFileSync(path.join(root, 'package.json'), 'utf8')) as Manifest;
  return {
    name: rootManifest.name,
    version: rootManifest.version,
    description: rootManifest['description'],
    keywords: ['ai', 'gateway', 'llm', 'agent', 'openapi', 'self-hosted'],
    license: rootManifest['license'],
    ...Object.fromEntries(
      ['repository', 'homepage', 'bugs'].flatMap((name) =>
        rootManifest[name] === undefined ? [] : [[name, rootManifest[name]]],
      ),
    ),
    type: 'module',
    engines: serverEngines,
    bin: { townhall: 'bin/townhall.js' },
    exports: {
      '.': { types: './dist/index.d.ts', default: './dist/index.js' },
      './package.json': './package.json',
    },
    files: ['bin', 'dist', 'docs', 'build', 'THIRD-PARTY.txt'],
    dependencies: rootManifest.dependencies,
    optionalDependencies: rootManifest.optionalDependencies,
    publishConfig: { access: 'public', provenance: true },
  };
}

/** The package.json of a client with its compiled files as exports; in a checkout they are its sources. */
export function clientManifest(file: string, name: string): Record<string, unknown> {
  const manifest = JSON.parse(readFileSync(file, 'utf8')) as { exports: Record<string, string> };
  const exports: Record<string, unknown> = {};
  for (const [entry, source] of Object.entries(manifest.exports)) {
    const compiledFile = source.replace('./src/', `./dist/${name}/src/`).replace(/\.ts$/, '');
    exports[entry] = source.endsWith('.ts')
      ? { types: `${compiledFile}.d.ts`, default: `${compiledFile}.js` }
      : source;
  }
  return { ...manifest, exports };
}
