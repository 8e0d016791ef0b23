// The server of the pages. It keeps the agent's token to itself: a page exchanges a one-time code for a key of its own,
// sends that key with every call, and the server calls the agent for it, for operations of a list alone. There is no
// cookie, since browsers send cookies to every port of a host (docs/decisions/2026-11-22-console-key.md).
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { assetPath } from '../kernel/assets.ts';
import { systemClock, type Clock } from '../kernel/clock.ts';
import { id } from '../kernel/ids.ts';
import type { Log } from '../kernel/log.ts';
import { Problem, renderProblem } from '../kernel/problem.ts';
import { linkAgent } from './agent-link.ts';
import { readAssets } from './assets.ts';
import type { ConsoleConfig } from './config.ts';
import { passDoor } from './request-guard.ts';
import { createEntrance, readBearer } from './one-time-login.ts';
import { agentOperations, describeFailure } from './operations.ts';
import { followSession } from './session-stream.ts';

export interface ConsoleNeeds {
  log: Log;
  clock?: Clock;
}

export interface Console {
  listen(): Promise<{ url: string; port: number }>;
  /** An address that lets one browser in, once; it must not be logged. */
  invite(): string;
  /** Ends the streams and closes the port. */
  close(): Promise<void>;
}

// What the agent itself takes, attachments in base64 included.
const maximumBodyBytes = 16 * 1024 * 1024;
// Read before the caller has shown a key.
const maximumCodeBytes = 1024;
// One for each page that is looked at.
const mostStreams = 64;

const securityHeaders = {
  'content-security-policy':
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'",
  'cache-control': 'no-store',
  'x-frame-options': 'DENY',
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'permissions-policy': 'camera=(), geolocation=(), microphone=()',
};

/** Reads the pages; nothing listens yet. */
export async function createConsole(config: ConsoleConfig, needs: ConsoleNeeds): Promise<Console> {
  const { log, clock = systemClock } = needs;
  const assets = await readAssets(assetPath('src/console/pages'));
  const link = linkAgent(config);
  const operations = agentOperations(link);
  const entrance = createEntrance({ codeTtlMs: config.codeTtlMs, sessionTtlMs: config.sessionTtlMs, clock });
  const closing = new AbortController();
  let streams = 0;
  let address = { url: '', port: 0 };

  async function serve(request: IncomingMessage, response: ServerResponse, requestId: string): Promise<void> {
    passDoor(request);
    const { pathname, searchParams } = urlOf(request.url ?? '/', address.url);
    const { method } = request;
    if (pathname === '/open' && method === 'POST') return open(request, response);
    // The pages hold no secret, and a page without a key must load to fetch one.
    const asset = assets.get(pathname === '/open' ? '/' : pathname);
    if (asset !== undefined) {
      if (method !== 'GET' && method !== 'HEAD')
        throw notAllowed(pathname === '/open' ? 'GET, HEAD, POST' : 'GET, HEAD');
      const isSpent = pathname === '/open' && !entrance.accepts(searchParams.get('code') ?? '');
      return send(response, isSpent ? 401 : 200, asset.content, asset.mediaType);
    }
    const isCall = pathname.startsWith('/call/');
    if (!isCall && pathname !== '/events')
      throw new Problem('not_found', 'route_not_found', 'There is nothing at this path.');
    if (!entrance.admits(readBearer(request.headers.authorization)))
      throw notAdmitted('This call needs the key of a page that was opened with a one-time code.');
    if (method !== (isCall ? 'POST' : 'GET')) throw notAllowed(isCall ? 'POST' : 'GET');
    return isCall
      ? call(request, response, pathname.slice('/call/'.length), requestId)
      : follow(response, searchParams, requestId);
  }

  async function open(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { code } = await readMembers(request, maximumCodeBytes);
    const key = typeof code === 'string' ? entrance.redeem(code) : null;
    if (key === null) throw notAdmitted('This code was used already, or it has expired.');
    return sendJson(response, 200, { key });
  }

  async function call(
    request: IncomingMessage,
    response: ServerResponse,
    name: string,
    requestId: string,
  ): Promise<void> {
    const operation = operations.get(name);
    if (operation === undefined)
      throw new Problem('not_found', 'route_not_found', 'The console does not pass this on.');
    const members = await readMembers(request, maximumBodyBytes);
    const gone = new AbortController();
    response.once('close', () => gone.abort());
    const signal = AbortSignal.any([gone.signal, closing.signal]);
    try {
      const answer = await operation(members, signal);
      return sendJson(response, 200, answer ?? null);
    } catch (error) {
      if (signal.aborted) return response.destroy() && undefined;
      const { status, body } = describeFailure(error, requestId);
      return sendJson(response, status, body);
    }
  }

  async function follow(response: ServerResponse, query: URLSearchParams, requestId: string): Promise<void> {
    const sessionId = query.get('session') ?? '';
    const after = Number(query.get('after') ?? 0);
    if (!/^[A-Za-z0-9_-]{1,128}$/.test(sessionId) || !Number.isSafeInteger(after) || after < 0)
      throw new Problem(
        'bad_request',
        'invalid_request',
        'A stream is of one session, after one of its events.',
      );
    if (streams >= mostStreams)
      throw new Problem(
        'rate_limited',
        'rate_limited',
        'As many pages as the console serves are open already.',
        { headers: { 'retry-after': '5' } },
      );
    streams += 1;
    try {
      await followSession(response, { link, sessionId, after, signal: closing.signal, requestId });
    } finally {
      streams -= 1;
    }
  }

  const server: Server = createServer((request, response) => {
    const requestId = id('req');
    for (const [name, value] of Object.entries({ ...securityHeaders, 'x-request-id': requestId }))
      response.setHeader(name, value);
    serve(request, response, requestId).catch((error: unknown) => {
      if (response.headersSent) return response.destroy();
      const problem =
        error instanceof Problem
          ? error
          : new Problem('internal', 'internal_error', 'Something went wrong in the console.', {
              cause: error,
            });
      if (problem.kind === 'internal')
        log.error({ err: error, requestId }, 'a request of the console failed');
      for (const [name, value] of Object.entries(problem.headers)) response.setHeader(name, value);
      // What has not been read of a body would be taken for the next request.
      response.setHeader('connection', 'close');
      return sendJson(response, problem.status, renderProblem(problem, requestId));
    });
  });
  server.headersTimeout = 10_000;
  server.requestTimeout = 60_000;

  return {
    async listen() {
      await new Promise<void>((resolve, reject) => {
        server.once('error', reject);
        server.listen(config.port, '127.0.0.1', resolve);
      }).catch((cause: unknown) => {
        const isTaken = (cause as NodeJS.ErrnoException).code === 'EADDRINUSE';
        throw new Error(
          isTaken
            ? `The port ${config.port} is taken; say another one with --port, or 0 for any.`
            : `The console cannot listen on the port ${config.port}.`,
          { cause },
        );
      });
      const { port } = server.address() as AddressInfo;
      address = { url: `http://127.0.0.1:${port}`, port };
      return address;
    },
    invite: () => `${address.url}/open?code=${entrance.invite()}`,
    async close() {
      closing.abort();
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      server.closeAllConnections();
      await closed;
    },
  };
}

// Joined as text: as a reference, `//name` would be another host, and `//[` no URL at all.
function urlOf(target: string, base: string): URL {
  const url = URL.parse(target.startsWith('/') ? `${base}${target}` : target);
  if (url === null) throw new Problem('bad_request', 'invalid_path', 'The address of the request is no URL.');
  return url;
}

function notAllowed(allow: string): Problem {
  return new Problem('method_not_allowed', 'method_not_allowed', 'This path does not take this method.', {
    headers: { allow },
  });
}

function notAdmitted(reason: string): Problem {
  return new Problem('unauthenticated', 'authentication_required', reason, {
    headers: { 'www-authenticate': 'Bearer' },
  });
}

async function readMembers(request: IncomingMessage, maxBytes: number): Promise<Record<string, unknown>> {
  if (!/^application\/json\s*(?:;|$)/i.test(request.headers['content-type'] ?? ''))
    throw new Problem('unsupported_media', 'unsupported_media_type', 'A call is application/json.');
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of request) {
    bytes += (chunk as Buffer).length;
    if (bytes > maxBytes)
      throw new Problem('too_large', 'request_too_large', `This call has at most ${maxBytes / 1024} KiB.`);
    chunks.push(chunk as Buffer);
  }
  try {
    const members: unknown = JSON.parse(Buffer.concat(chunks).toString('utf8'));
    if (typeof members === 'object' && members !== null && !Array.isArray(members))
      return members as Record<string, unknown>;
  } catch {
    // Said below, in the same words.
  }
  throw new Problem('bad_request', 'invalid_json', 'A call is an object in JSON.');
}

function sendJson(response: ServerResponse, status: number, body: unknown): void {
  send(response, status, Buffer.from(JSON.stringify(body)), 'application/json; charset=utf-8');
}

function send(response: ServerResponse, status: number, content: Buffer, mediaType: string): void {
  response.writeHead(status, { 'content-type': mediaType, 'content-length': content.length });
  // node:http leaves the content of an answer to HEAD out.
  response.end(content);
}
