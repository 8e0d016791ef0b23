// What a server does with each request: it admits the request, serves a page or passes the request to the
// contract, and renders every error in one place. The only file that uses express.
import type { IncomingMessage, ServerResponse } from 'node:http';
import express, { type ErrorRequestHandler, type Request, type RequestHandler, type Response } from 'express';
import type { Log } from '../log.ts';
import { admittedRequest } from './admission.ts';
import { createPageBuild, type PageFolder } from './page-build.ts';
import { serveAssets } from './pages/asset-pages.ts';
import type { FixedPage } from './pages/fixed-pages.ts';
import { type FrontPage, renderFrontPage } from './pages/front-page.ts';
import type { HttpRequest } from './request.ts';
import type { Responder } from './respond.ts';

/** A folder of static files. */
export interface FilePages extends PageFolder {
  prefix: string;
}

export interface RequestHandlerOptions {
  pages: readonly FilePages[];
  frontPage: (() => FrontPage) | undefined;
  fixedPages: ReadonlyMap<string, FixedPage>;
  admit(message: IncomingMessage, response: ServerResponse): HttpRequest;
  dispatch(request: HttpRequest): Promise<void>;
  responder: Responder;
  /** A client that accepts no bytes of an ended response for this long is disconnected. */
  stalledMs: number;
  log: Log;
}

/** The chain of each request: admission, then its page or the contract, and errors. */
export function createRequestHandler(options: RequestHandlerOptions) {
  const { pages, frontPage, fixedPages, admit, dispatch, responder, stalledMs, log } = options;
  const folders = pages.map((page) => ({ ...page, prepare: createPageBuild(page, log) }));
  const findFolder = (path: string) =>
    folders.find(({ prefix }) => path === prefix || path.startsWith(`${prefix}/`));

  function renderError(error: unknown, message: IncomingMessage, response: ServerResponse): void {
    const request = admittedRequest(message);
    if (!request) {
      log.error({ err: error }, 'a request failed before it was admitted');
      response.destroy();
      return;
    }
    try {
      responder.problem(request, error);
    } catch (renderingError) {
      request.log.error({ err: renderingError }, 'an error could not be rendered');
      response.destroy();
    }
  }

  const servePage = createFilePages(options, renderError);

  async function serve(message: IncomingMessage, response: ServerResponse): Promise<void> {
    try {
      const request = admit(message, response);
      const isRead = request.method === 'GET' || request.method === 'HEAD';
      const folder = isRead ? findFolder(request.path) : undefined;
      const fixedPage = fixedPages.get(request.path);
      if (folder !== undefined) {
        if (folder.prepare(request, responder.commonHeaders(request))) servePage(request);
      } else if (isRead && request.path === '/' && frontPage)
        serveFixedPage(request, renderFrontPage(frontPage(), request.headers.accept), responder);
      else if (isRead && fixedPage !== undefined) serveFixedPage(request, fixedPage, responder);
      else await dispatch(request);
    } catch (error) {
      renderError(error, message, response);
    }
    disconnectWhenStalled(response, stalledMs);
  }
  return (message: IncomingMessage, response: ServerResponse): void => void serve(message, response);
}

/** Without a deadline, a client that reads nothing would keep an ended response in memory without end. */
function disconnectWhenStalled(response: ServerResponse, stalledMs: number): void {
  const { socket } = response;
  if (socket === null || !response.writableEnded || socket.writableLength === 0) return;
  // Node destroys a socket on which no bytes have moved for this long.
  socket.setTimeout(stalledMs);
  // Before Node's own listener, which sets the timeout of an idle connection.
  response.prependOnceListener('finish', () => socket.setTimeout(0));
}

type RenderError = (error: unknown, message: IncomingMessage, response: ServerResponse) => void;

/**
 * Serves the folders by an Express router, without an application: an application gives every request
 * and response a new prototype, which slows down all later use of them (a quarter of the kernel's
 * processor time), and adds unused methods.
 */
function createFilePages(
  { pages, dispatch, responder }: Pick<RequestHandlerOptions, 'pages' | 'dispatch' | 'responder'>,
  renderError: RenderError,
) {
  const router = express.Router();
  for (const { prefix, directory } of pages) router.use(prefix, serveAssets(directory));
  // A path below the pages that has no file: the contract rejects it.
  router.use(((message) => dispatch(admittedRequest(message) as HttpRequest)) satisfies RequestHandler);
  // Express recognises an error handler by its four parameters.
  router.use(((error: unknown, message, response, _next) =>
    renderError(error, message, response)) satisfies ErrorRequestHandler);

  return (request: HttpRequest): void => {
    const { message, response } = request;
    for (const [name, value] of Object.entries({ ...responder.commonHeaders(request), ...pageHeaders }))
      response.setHeader(name, value);
    // The handlers above answer every request, so the last callback should never run. The casts are needed
    // because Express's types describe the requests of an application.
    router(message as Request, response as Response, () => response.destroy());
  };
}

function serveFixedPage(request: HttpRequest, { body, headers }: FixedPage, responder: Responder): void {
  const sharedHeaders = responder.commonHeaders(request);
  const vary = [sharedHeaders['vary'], headers['vary']].filter((value) => value !== undefined).join(', ');
  request.response.writeHead(200, {
    ...sharedHeaders,
    ...headers,
    ...(vary === '' ? {} : { vary }),
    'content-length': String(Buffer.byteLength(body)),
  });
  request.response.end(body);
}

// The headers of all file pages. A page's own policy in its `<meta>` narrows it. `frame-ancestors`
// works only in a header.
const pageHeaders: Readonly<Record<string, string>> = {
  'content-security-policy': [
    "default-src 'none'",
    "script-src 'self' 'unsafe-inline'",
    "style-src 'self' 'unsafe-inline'",
    "img-src 'self' data:",
    "font-src 'self' data:",
    'worker-src blob:',
    // The form of an operation calls this server, or an agent on the reader's machine.
    "connect-src 'self' http://127.0.0.1:* http://localhost:*",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ].join('; '),
  'x-frame-options': 'DENY',
  'referrer-policy': 'no-referrer',
};
