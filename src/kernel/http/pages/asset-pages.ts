// Serves a folder of pages, on a disk or inside the single executable: an index for a folder, an
// ETag by content, texts compressed, and only files that the folder lists, so that no path leads
// out of it.
import { createHash } from 'node:crypto';
import { stat } from 'node:fs/promises';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { promisify } from 'node:util';
import { brotliCompress, constants, gzip } from 'node:zlib';
import { isSingleExecutable, listFiles, readBytes } from '../../assets.ts';
import { createLruCache } from '../../cache.ts';
import { acceptsHtml } from './accept.ts';
import { includesTag } from '../../etag.ts';

type Encoding = 'br' | 'gzip';

// At this level the references are an eighth smaller than with gzip. A file is compressed once.
const brotliOptions = { params: { [constants.BROTLI_PARAM_QUALITY]: 5 } };
const compressBrotli = promisify(brotliCompress);
const compressGzip = promisify(gzip);

const textTypes: Readonly<Record<string, string>> = {
  html: 'text/html; charset=utf-8',
  css: 'text/css; charset=utf-8',
  js: 'text/javascript; charset=utf-8',
  json: 'application/json; charset=utf-8',
  md: 'text/markdown; charset=utf-8',
  txt: 'text/plain; charset=utf-8',
  svg: 'image/svg+xml',
};
// Compressed already.
const pictureTypes: Readonly<Record<string, string>> = { webp: 'image/webp' };
// Smaller files would hardly shrink.
const minCompressedBytes = 1_024;
// The portal has 300 pages of 20 kB on average, compressed; the three references have 700 kB each.
const cachedPages = 400;
// A file that is not listed may have been built since, so the folder is listed again after this time.
const relistMs = 1_000;

interface Page {
  /** Identifies the file's content on a disk, so that a changed file is read again. */
  version: string;
  content: Uint8Array;
  headers: Record<string, string>;
}

export type ServeAssets = (
  request: IncomingMessage,
  response: ServerResponse,
  next: (error?: unknown) => void,
) => Promise<void>;

/**
 * Serves the folder at a mount point, whose prefix is removed from the path. A path without a page
 * gets the folder's `404.html` in a browser; otherwise it is passed to `next`.
 */
export function serveAssets(folder: string): ServeAssets {
  const finder = createPageFinder(folder);

  return async (request, response, next) => {
    const [address = '/'] = (request.url ?? '/').split('?');
    const [original = ''] = ('originalUrl' in request ? String(request.originalUrl) : '').split('?');
    const encoding = preferredEncoding(request.headers['accept-encoding']);
    const name = address.slice(1);
    // Without the trailing slash the links of an index would be relative to the parent folder.
    const isFolder = /^[^.]*[^./]$/.test(name) && (await finder.has(`${name}/index.html`));
    if ((address === '/' && !original.endsWith('/')) || isFolder) {
      response.writeHead(301, { location: `${original}/` }).end();
      return;
    }
    const page = await finder.page(address.endsWith('/') ? `${name}index.html` : name, encoding);
    if (page !== undefined) return writePage(request, response, page);
    const errorPage = acceptsHtml(request.headers.accept)
      ? await finder.page('404.html', encoding)
      : undefined;
    if (errorPage === undefined) return next();
    response.writeHead(404, { ...errorPage.headers, 'cache-control': 'no-store' });
    response.end(request.method === 'HEAD' ? undefined : errorPage.content);
  };
}

function writePage(request: IncomingMessage, response: ServerResponse, page: Page): void {
  const { content } = page;
  // The server's own headers are set already, `Vary: Origin` among them.
  const vary = [response.getHeader('vary'), page.headers['vary']].filter((value) => value !== undefined);
  const headers: Record<string, string> = { ...page.headers, vary: vary.join(', ') };
  const tag = headers['etag'] ?? '';
  const ifNoneMatch = request.headers['if-none-match'];
  if (ifNoneMatch !== undefined && includesTag(ifNoneMatch, tag)) {
    const {
      'content-length': _length,
      'content-type': _type,
      'content-encoding': _encoding,
      ...rest
    } = headers;
    response.writeHead(304, rest).end();
    return;
  }
  response.writeHead(200, headers);
  response.end(request.method === 'HEAD' ? undefined : content);
}

function createPageFinder(folder: string) {
  const pages = createLruCache<string, Page>({ capacity: cachedPages });
  let names: Promise<ReadonlySet<string>> | undefined;
  let listedAtMs = 0;

  async function list(): Promise<ReadonlySet<string>> {
    listedAtMs = performance.now();
    const files = await listFiles(folder).catch(() => []);
    return new Set(files.filter((name) => !/(?:^|\/)\./.test(name)));
  }

  async function isAsset(name: string): Promise<boolean> {
    names ??= list();
    if ((await names).has(name)) return true;
    if (isSingleExecutable || performance.now() - listedAtMs < relistMs) return false;
    names = list();
    return (await names).has(name);
  }

  async function page(name: string, encoding: Encoding | undefined): Promise<Page | undefined> {
    if (!(await isAsset(name))) return undefined;
    const version = await readVersion(`${folder}/${name}`);
    if (version === undefined) return undefined;
    const key = `${encoding ?? 'plain'} ${name}`;
    const cachedPage = pages.get(key);
    if (cachedPage?.version === version) return cachedPage;
    const loadedPage = await readPage(`${folder}/${name}`, { version, encoding });
    pages.set(key, loadedPage);
    return loadedPage;
  }

  return { has: isAsset, page };
}

/** Undefined if the file no longer exists. */
async function readVersion(file: string): Promise<string | undefined> {
  if (isSingleExecutable) return '';
  const stats = await stat(file).catch(() => undefined);
  return stats === undefined ? undefined : `${stats.mtimeMs} ${stats.size}`;
}

async function readPage(
  file: string,
  { version, encoding: accepted }: { version: string; encoding: Encoding | undefined },
): Promise<Page> {
  const bytes = await readBytes(file);
  const extension = file.split('.').pop() ?? '';
  const isText = extension in textTypes;
  const encoding = isText && bytes.byteLength >= minCompressedBytes ? accepted : undefined;
  const content = await compress(bytes, encoding);
  const digest = createHash('sha256').update(bytes).digest('base64url').slice(0, 22);
  return {
    version,
    content,
    headers: {
      'content-type': textTypes[extension] ?? pictureTypes[extension] ?? 'application/octet-stream',
      'content-length': String(content.byteLength),
      // A browser revalidates its cached copy at each use, so that a page and its script always have
      // the same version.
      'cache-control': 'no-cache',
      vary: 'Accept-Encoding',
      // The compressed bytes are another representation, so they have a tag of their own (RFC 9110,
      // 8.8.3).
      etag: `"${digest}${encoding === undefined ? '' : `-${encoding}`}"`,
      ...(encoding === undefined ? {} : { 'content-encoding': encoding }),
    },
  };
}

async function compress(bytes: Uint8Array, encoding: Encoding | undefined): Promise<Uint8Array> {
  if (encoding === undefined) return bytes;
  return encoding === 'br' ? compressBrotli(bytes, brotliOptions) : compressGzip(bytes);
}

/** Brotli before gzip, where both are accepted. */
function preferredEncoding(header: string | string[] = ''): Encoding | undefined {
  return (['br', 'gzip'] as const).find((encoding) => accepts(String(header), encoding));
}

/** `*` stands for the encodings that the header does not name. */
function accepts(header: string, encoding: Encoding): boolean {
  const entries = header.split(',').map((entry) =>
    entry
      .trim()
      .toLowerCase()
      .split(/\s*;\s*/),
  );
  const entry = entries.find(([name]) => name === encoding) ?? entries.find(([name]) => name === '*');
  return entry !== undefined && !/^q=0(?:\.0*)?$/.test(entry[1] ?? '');
}
