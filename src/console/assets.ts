// The files of the pages, each read once. TypeScript files are served with their
// types stripped, which keeps line numbers.
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

export interface Assets {
  /** The file that is served under the path; undefined when there is none. */
  get(path: string): Promise<Asset | undefined>;
}

/**
 * Lists the folder. Each file is read, and its types are stripped, at its first request: doing this for
 * all files when the console starts would take 0.3 s.
 */
export async function openAssets(folder: string): Promise<Assets> {
  const names = namesByPath(await listFiles(folder));
  const assetCache = new Map<string, Asset>();

  async function read(name: string): Promise<Asset> {
    const text = await readText(`${folder}/${name}`);
    const kind = extname(name);
    return {
      content: Buffer.from(kind === '.ts' ? stripTypes(text) : text),
      mediaType: mediaTypes[kind] ?? '',
    };
  }

  return {
    async get(path) {
      const name = names.get(path);
      if (name === undefined) return undefined;
      const asset = assetCache.get(name) ?? (await read(name));
      assetCache.set(name, asset);
      return asset;
    },
  };
}

// A `.ts` module is also served under `.js`, which is its name in a built package.
function namesByPath(files: readonly string[]): ReadonlyMap<string, string> {
  const names = new Map<string, string>();
  for (const name of files) {
    const kind = extname(name);
    if (!(kind in mediaTypes) || name.endsWith('.d.ts')) continue;
    names.set(name === 'index.html' ? '/' : `/${name}`, name);
    if (kind === '.ts') names.set(`/${name.slice(0, -3)}.js`, name);
  }
  return names;
}

// Suppresses Node's experimental warning for this function, which does not help a user of the
// console.
function stripTypes(text: string): string {
  const { emitWarning } = process;
  process.emitWarning = () => {};
  try {
    return stripTypeScriptTypes(text);
  } finally {
    process.emitWarning = emitWarning;
  }
}
