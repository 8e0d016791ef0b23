// The files of the pages, read once. TypeScript files are served with their types stripped, which keeps line numbers.
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

/** By the path they are served under. A `.ts` module is served as `.js` too, its name in a built package. */
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

// Hides Node's experimental warning for this function, which says nothing to a user of the console.
function withoutTypes(text: string): string {
  const { emitWarning } = process;
  process.emitWarning = () => {};
  try {
    return stripTypeScriptTypes(text);
  } finally {
    process.emitWarning = emitWarning;
  }
}
