// Pages that are built when they are first requested, such as the portal of a checkout. While the
// build runs, a browser gets a page that reloads itself and a program gets a 503.
import { existsSync } from 'node:fs';
import type { Log } from '../log.ts';
import { Problem } from '../problem.ts';
import { acceptsHtml } from './pages/accept.ts';
import { renderHtml } from './pages/html.ts';
import type { HttpRequest } from './request.ts';

export interface PageFolder {
  directory: string;
  /** Builds the folder where it does not exist. */
  build?: (() => Promise<void>) | undefined;
}

const retryAfterSeconds = 2;

/** A failed build is reported by one 503; the request after it starts the next build. */
type BuildState = 'absent' | 'building' | 'failed' | 'built';

/**
 * Returns a function that is called before a page is served. It starts the build where the folder
 * is absent, and returns true where the page can be served; otherwise it has written the waiting
 * page, or throws a 503.
 */
export function createPageBuild({ directory, build }: PageFolder, log: Log) {
  let state: BuildState = build === undefined || existsSync(directory) ? 'built' : 'absent';

  async function runBuild(buildFolder: () => Promise<void>): Promise<void> {
    state = 'building';
    try {
      await buildFolder();
      state = 'built';
    } catch (error) {
      state = 'failed';
      log.error({ err: error, directory }, 'the pages could not be built');
    }
  }

  return (request: HttpRequest, commonHeaders: Record<string, string>): boolean => {
    if (state === 'built' || build === undefined) return true;
    if (state === 'failed') {
      state = 'absent';
      throw notReady('The documentation could not be built; run "npm run docs" in the checkout to see why.');
    }
    if (state === 'absent') void runBuild(build);
    if (!acceptsHtml(request.headers.accept)) throw notReady('The documentation is being built.');
    writeWaitingPage(request, commonHeaders);
    return false;
  };
}

function writeWaitingPage(request: HttpRequest, commonHeaders: Record<string, string>): void {
  const { content, mediaType, headers } = renderHtml({
    title: 'Building the documentation',
    body: '<p>The first request builds these pages from the checkout; it takes a few seconds. This page reloads itself.</p>',
    refreshSeconds: retryAfterSeconds,
  });
  request.response.writeHead(503, {
    ...commonHeaders,
    ...headers,
    'content-type': mediaType,
    'content-length': String(content.byteLength),
    'retry-after': String(retryAfterSeconds),
  });
  request.response.end(request.method === 'HEAD' ? undefined : content);
}

function notReady(message: string): Problem {
  return new Problem('unavailable', 'not_ready', message, {
    headers: { 'retry-after': String(retryAfterSeconds) },
  });
}
