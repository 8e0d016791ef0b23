// The routes of the console: pages, the exchange of a code for a key, calls to the agent, and event
// streams.
import type { IncomingMessage, ServerResponse } from 'node:http';
import { Problem } from '../kernel/problem.ts';
import type { AgentLink } from './agent-link.ts';
import type { Asset, Assets } from './assets.ts';
import { describeFailure } from './failures.ts';
import { parseTarget, readMembers, send, sendJson } from './http.ts';
import { readBearer, type OneTimeLogin } from './one-time-login.ts';
import { agentOperations } from './operations.ts';
import { checkOrigin } from './request-guard.ts';
import { streamSession } from './session-stream.ts';

export interface ConsoleRequest {
  request: IncomingMessage;
  response: ServerResponse;
  requestId: string;
}

export interface RouteOptions {
  assets: Assets;
  link: AgentLink;
  login: OneTimeLogin;
  /** Aborted when the console closes. */
  closing: AbortSignal;
  /** The address of the console; known once it listens. */
  baseUrl(): string;
}

// The agent's own limit, which allows attachments in base64.
const maxBodyBytes = 16 * 1024 * 1024;
// This body is read before the caller is authenticated.
const maxCodeBytes = 1024;
// Each page has at most one stream: of the session that it shows.
const maxStreams = 64;

interface Routes extends RouteOptions {
  operations: ReturnType<typeof agentOperations>;
  /** The number of open event streams. */
  streams: number;
}

/** Returns a function that serves one request; it throws a Problem for a refused one. */
export function createRoutes(options: RouteOptions): (context: ConsoleRequest) => Promise<void> {
  const routes: Routes = { ...options, operations: agentOperations(options.link), streams: 0 };
  return (context) => serve(routes, context);
}

async function serve(routes: Routes, context: ConsoleRequest): Promise<void> {
  const { request } = context;
  checkOrigin(request);
  const url = parseTarget(request.url ?? '/', routes.baseUrl());
  const { pathname, searchParams } = url;
  if (pathname === '/open' && request.method === 'POST') return redeemCode(routes, context);
  const asset = await routes.assets.get(pathname === '/open' ? '/' : pathname);
  if (asset !== undefined) return sendAsset(routes, context, { asset, url });
  const isCall = pathname.startsWith('/call/');
  if (!isCall && pathname !== '/events')
    throw new Problem('not_found', 'route_not_found', 'There is nothing at this path.');
  if (!routes.login.isValidKey(readBearer(request.headers.authorization)))
    throw unauthenticatedProblem('This call needs the key of a page that was opened with a one-time code.');
  requireMethod(request, [isCall ? 'POST' : 'GET']);
  return isCall
    ? callOperation(routes, context, pathname.slice('/call/'.length))
    : streamEvents(routes, context, searchParams);
}

async function redeemCode({ login }: Routes, { request, response }: ConsoleRequest): Promise<void> {
  const { code } = await readMembers(request, maxCodeBytes);
  const key = typeof code === 'string' ? login.redeem(code) : null;
  if (key === null) throw unauthenticatedProblem('This code was already used, or it has expired.');
  sendJson(response, 200, { key });
}

// Pages contain no secret, and a page without a key must load to fetch one.
function sendAsset(
  { login }: Routes,
  { request, response }: ConsoleRequest,
  { asset, url: { pathname, searchParams } }: { asset: Asset; url: URL },
): void {
  const isLogin = pathname === '/open';
  requireMethod(request, ['GET', 'HEAD', ...(isLogin ? ['POST'] : [])]);
  const isSpent = isLogin && !login.isValidCode(searchParams.get('code') ?? '');
  send(response, isSpent ? 401 : 200, asset.content, asset.mediaType);
}

async function callOperation(
  { operations, closing }: Routes,
  { request, response, requestId }: ConsoleRequest,
  name: string,
): Promise<void> {
  const operation = operations.get(name);
  if (operation === undefined)
    throw new Problem('not_found', 'route_not_found', 'The console does not forward this operation.');
  const members = await readMembers(request, maxBodyBytes);
  const disconnection = new AbortController();
  response.once('close', () => disconnection.abort());
  const signal = AbortSignal.any([disconnection.signal, closing]);
  try {
    sendJson(response, 200, (await operation(members, signal)) ?? null);
  } catch (error) {
    if (signal.aborted) return void response.destroy();
    const { status, body } = describeFailure(error, requestId);
    sendJson(response, status, body);
  }
}

async function streamEvents(
  routes: Routes,
  { response, requestId }: ConsoleRequest,
  query: URLSearchParams,
): Promise<void> {
  const { sessionId, after } = readStreamQuery(query);
  if (routes.streams >= maxStreams)
    throw new Problem(
      'rate_limited',
      'rate_limited',
      'The console already serves its maximum number of open pages.',
      { headers: { 'retry-after': '5' } },
    );
  routes.streams += 1;
  try {
    const { link, closing: signal } = routes;
    await streamSession(response, { link, sessionId, after, signal, requestId });
  } finally {
    routes.streams -= 1;
  }
}

function readStreamQuery(query: URLSearchParams): { sessionId: string; after: number } {
  const sessionId = query.get('session') ?? '';
  const after = Number(query.get('after') ?? 0);
  if (!/^[A-Za-z0-9_-]{1,128}$/.test(sessionId) || !Number.isSafeInteger(after) || after < 0)
    throw new Problem(
      'bad_request',
      'invalid_request',
      'A stream needs the id of a session and the sequence number of one of its events.',
    );
  return { sessionId, after };
}

function requireMethod({ method = '' }: IncomingMessage, methods: readonly string[]): void {
  if (methods.includes(method)) return;
  throw new Problem('method_not_allowed', 'method_not_allowed', 'This path does not support this method.', {
    headers: { allow: methods.join(', ') },
  });
}

function unauthenticatedProblem(reason: string): Problem {
  return new Problem('unauthenticated', 'authentication_required', reason, {
    headers: { 'www-authenticate': 'Bearer' },
  });
}
