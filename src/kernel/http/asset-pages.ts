// Serves the pages inside the single executable as `express.static` serves those of
// a folder: an index for a folder, an ETag by content, and only listed files.
import { createHash } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { listFiles, readBytes } from '../assets.ts';

const mediaTypes: Readonly<Record<string, string>> = {
  html: 'text/html; charset=utf-8',
  css: 'text/css; charset=utf-8',
  js: 'text/javascript; charset=utf-8',
  json: 'application/json; charset=utf-8',
  svg: 'image/svg+xml',
};

interface Page {
  content: Uint8Array;
  headers: Record<string, string>;
}

/** For a mount point, whose prefix is removed from the path. A path without a page is passed to `next`. */
export function serveAssets(
  folder: string,
): (request: IncomingMessage, response: ServerResponse, next: (error?: unknown) => void) => Promise<void> {
  let names: Promise<ReadonlySet<string>> | undefined;
  const pages = new Map<string, Page>();

  async function find(name: string): Promise<Page | undefined> {
    names ??= listFiles(folder).then((files) => new Set(files));
    if (!(await names).has(name)) return undefined;
    let page = pages.get(name);
    if (page === undefined) {
      const content = await readBytes(`${folder}/${name}`);
      const etag = `"${createHash('sha256').update(content).digest('base64url').slice(0, 22)}"`;
      page = {
        content,
        headers: {
          'content-type': mediaTypes[name.split('.').pop() ?? ''] ?? 'application/octet-stream',
          'content-length': String(content.byteLength),
          etag,
        },
      };
      pages.set(name, page);
    }
    return page;
  }

  return async (request, response, next) => {
    const [address = '/'] = (request.url ?? '/').split('?');
    const [original = ''] = ('originalUrl' in request ? String(request.originalUrl) : '').split('?');
    // Without the trailing slash the links of an index would be relative to the parent folder.
    if (address === '/' && !original.endsWith('/')) {
      response.writeHead(301, { location: `${original}/` }).end();
      return;
    }
    const page = await find(address.endsWith('/') ? `${address.slice(1)}index.html` : address.slice(1));
    if (page === undefined) {
      next();
    } else if (request.headers['if-none-match'] === page.headers['etag']) {
      response.writeHead(304, { etag: page.headers['etag'] }).end();
    } else {
      response.writeHead(200, page.headers);
      response.end(request.method === 'HEAD' ? undefined : page.content);
    }
  };
}
