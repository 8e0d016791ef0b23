// The files of the pages, read once. They are TypeScript as everything else; a browser is given them without the types,
// which leaves every line where it was.
import { stripTypeScriptTypes } from 'node:module';
import { extname } from 'node:path';
import { listFiles, readText } from '../kernel/assets.ts';

export interface Asset {
  content: Buffer;
  mediaType: string;
}

const mediaTypes: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.ts': 'text/javascript; charset=utf-8',
  '.svg': 'image/svg+xml',
};

/** By the path that they are served under; a module is found as `.js` too, which is what it is once it is built. */
export async function readAssets(folder: string): Promise<ReadonlyMap<string, Asset>> {
  const assets = new Map<string, Asset>();
  for (const name of await listFiles(folder)) {
    const kind = extname(name);
    const mediaType = mediaTypes[kind];
    if (mediaType === undefined || name.endsWith('.d.ts')) continue;
    const text = await readText(`${folder}/${name}`);
    const asset = { content: Buffer.from(kind === '.ts' ? withoutTypes(text) : text), mediaType };
    assets.set(name === 'index.html' ? '/' : `/${name}`, asset);
    if (kind === '.ts') assets.set(`/${name.slice(0, -3)}.js`, asset);
  }
  return assets;
}

// Node says once, for whoever calls this, that the function is young; whoever runs the console has no use for that.
function withoutTypes(text: string): string {
  const { emitWarning } = process;
  process.emitWarning = () => {};
  try {
    return stripTypeScriptTypes(text);
  } finally {
    process.emitWarning = emitWarning;
  }
}
