// Installs the peers of the benchmark outside of version control, each in a folder
// of its own under build/bench/peers.
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

export interface Peer {
  name: string;
  version: string;
  folder: string;
}

const folder = join(import.meta.dirname, '../../../build/bench/peers');

// With a newer @hono/node-server this version of the peer answers each streamed call with 500.
const portkeyPackage = {
  name: 'portkey-peer',
  private: true,
  dependencies: { '@portkey-ai/gateway': '1.15.2' },
  overrides: { '@hono/node-server': '1.13.5', hono: '4.9.7' },
};

/** Throws when npm cannot install it. */
export function installPortkey(): Peer {
  const target = join(folder, 'portkey');
  if (!existsSync(join(target, 'node_modules/@portkey-ai/gateway/build/start-server.js'))) {
    mkdirSync(target, { recursive: true });
    writeFileSync(join(target, 'package.json'), JSON.stringify(portkeyPackage));
    execFileSync('npm', ['install', '--no-audit', '--no-fund', '--ignore-scripts'], {
      cwd: target,
      stdio: ['ignore', 'ignore', 'inherit'],
    });
  }
  return { name: 'Portkey', version: portkeyPackage.dependencies['@portkey-ai/gateway'], folder: target };
}
